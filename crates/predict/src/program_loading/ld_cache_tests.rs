//! Caches that were made here, that of this machine, and damaged ones.

use proptest::prelude::*;

use super::*;
use crate::program_loading::fake_files::ld_cache as made;

const SOME: &[(u32, &str, &str)] = &[
    (X86_64, "libz.so.1", "/lib/x86_64-linux-gnu/libz.so.1"),
    (X86_64, "libm.so.6", "/lib/glibc-hwcaps/x86-64-v9/libm.so.6"),
    (X86_64, "libm.so.6", "/lib/libm.so.6"),
    (X86_64, "libm.so.6", "/lib/glibc-hwcaps/x86-64-v2/libm.so.6"),
    (0x0003, "libc.so.6", "/lib32/libc.so.6"),
    (X86_64, "libc.so.6", "/lib/libc.so.6"),
];

#[test]
fn a_library_is_found_with_the_best_build_for_this_processor_first() {
    let cache = LdCache::new(made(SOME));
    assert_eq!(cache.find(b"libz.so.1"), [b"/lib/x86_64-linux-gnu/libz.so.1"]);
    assert_eq!(cache.find(b"libc.so.6"), [b"/lib/libc.so.6"]);
    let found = cache.find(b"libm.so.6");
    assert_eq!(found.last().map(Vec::as_slice), Some(&b"/lib/libm.so.6"[..]));
    assert_eq!(found.len(), if isa_level() >= 2 { 2 } else { 1 });
    assert!(cache.find(b"libm.so").is_empty() && cache.find(b"").is_empty());
}

#[test]
fn an_older_table_in_front_is_passed_over() {
    let mut bytes = OLD_MAGIC.to_vec();
    bytes.extend_from_slice(&3u32.to_le_bytes());
    bytes.resize((OLD_HEADER + 3 * OLD_ENTRY).next_multiple_of(8), 0);
    let cache = LdCache::new([bytes, made(SOME)].concat());
    assert_eq!(cache.find(b"libc.so.6"), [b"/lib/libc.so.6"]);
}

#[test]
fn the_cache_of_this_machine_knows_the_c_library() {
    let Ok(bytes) = std::fs::read("/etc/ld.so.cache") else {
        eprintln!("skipped: this machine has no /etc/ld.so.cache");
        return;
    };
    let found = LdCache::new(bytes).find(b"libc.so.6");
    assert!(!found.is_empty());
    for path in found {
        let path = String::from_utf8(path).expect("a path");
        assert!(std::fs::metadata(&path).is_ok_and(|file| file.is_file()), "{path}");
    }
}

proptest! {
    #![proptest_config(crate::test_support::config(2000))]

    #[test]
    fn damage_means_that_there_is_no_entry(
        damage in prop::collection::vec((0usize..500, any::<u8>()), 0..40),
        cut in 0usize..600,
        old in prop::option::of(any::<u32>()),
    ) {
        let mut bytes = made(SOME);
        damage.iter().for_each(|&(at, value)| if let Some(byte) = bytes.get_mut(at) { *byte = value });
        bytes.truncate(cut);
        if let Some(entries) = old {
            bytes = [OLD_MAGIC, &entries.to_le_bytes()[..], &bytes].concat();
        }
        let cache = LdCache::new(bytes.clone());
        for (_, name, _) in SOME {
            for path in cache.find(name.as_bytes()) {
                prop_assert!(path.starts_with(b"/") && path.len() <= PATH_MAX);
                prop_assert!(bytes.windows(path.len()).any(|part| part == path));
            }
        }
    }
}
