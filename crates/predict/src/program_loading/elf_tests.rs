//! Heads and dynamic sections, whole and damaged.

use proptest::prelude::*;

use super::*;
use crate::program_loading::fake_files::Made;

/// A file in memory; counts what is read of it.
struct Bytes<'a>(&'a [u8], u64);

impl Source for Bytes<'_> {
    fn bytes(&mut self, offset: u64, length: u64) -> Vec<u8> {
        self.1 += length;
        let start = offset.min(self.0.len() as u64) as usize;
        let end = offset.saturating_add(length).min(self.0.len() as u64) as usize;
        self.0[start..end].to_vec()
    }
}

fn parse(bytes: &[u8]) -> Option<Head> {
    Head::parse(&bytes[..bytes.len().min(HEAD_BYTES as usize)], bytes.len() as u64)
}

#[test]
fn a_program_names_its_linker_and_libraries() {
    let mut made = Made::needing(&["libm.so.6", "libc.so.6"]);
    (made.rpath, made.runpath) = (Some("/old".into()), Some("$ORIGIN/../lib".into()));
    made.padding = 300_000;
    let bytes = made.bytes();
    let head = parse(&bytes).expect("an ELF file");
    let mut source = Bytes(&bytes, 0);
    assert_eq!(head.interpreter(&mut source).as_deref(), Some(&b"/lib64/ld.so"[..]));
    assert_eq!(
        head.needs(&mut source),
        Needs {
            names: vec![b"libm.so.6".to_vec(), b"libc.so.6".to_vec()],
            rpath: Some(b"/old".to_vec()),
            runpath: Some(b"$ORIGIN/../lib".to_vec()),
        }
    );
    assert_eq!(head.entry, Some(64));
    let ends: Vec<u64> = head.loads.iter().map(|load| load.file.end).collect();
    assert_eq!((ends.len(), ends[2]), (3, bytes.len() as u64));
    assert_eq!(head.loads.iter().map(|l| l.writable).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn this_very_test_is_a_program() {
    let bytes = std::fs::read("/proc/self/exe").expect("the test's own file");
    let head = parse(&bytes).expect("an ELF file");
    let needs = head.needs(&mut Bytes(&bytes, 0));
    assert!(needs.names.iter().any(|name| name == b"libc.so.6"), "{needs:?}");
}

#[test]
fn files_for_other_machines_are_none() {
    let good = Made::needing(&[]).bytes();
    assert!(parse(&good).is_some());
    // Class, byte order, machine, magic.
    for (at, value) in [(4, 1), (5, 2), (18, 183), (0, 0)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert_eq!(parse(&bytes), None, "byte {at}");
    }
    assert_eq!(parse(&good[..50]), None);
    assert_eq!(parse(b""), None);
}

proptest! {
    #![proptest_config(crate::test_support::config(2000))]

    /// Whatever is damaged, there is no panic, little is read, and nothing is claimed to lie beyond
    /// the end of the file.
    #[test]
    fn damage_does_no_harm(
        damage in prop::collection::vec((0usize..4300, any::<u8>()), 0..30),
        words in prop::collection::vec((0usize..518, any::<u64>()), 0..4),
        cut in 0usize..6000,
        names in 0usize..500,
    ) {
        let needed: Vec<String> = (0..names).map(|n| format!("lib{n}.so")).collect();
        let mut bytes = Made { needed, ..Made::needing(&[]) }.bytes();
        for (at, value) in words {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&value.to_le_bytes());
        }
        damage.iter().for_each(|&(at, value)| if let Some(byte) = bytes.get_mut(at) { *byte = value });
        if cut < 5000 {
            bytes.truncate(cut);
        }
        if let Some(head) = parse(&bytes) {
            let mut source = Bytes(&bytes, 0);
            let _ = head.interpreter(&mut source);
            let needs = head.needs(&mut source);
            prop_assert!(source.1 <= READ_MAX, "{} bytes", source.1);
            prop_assert!(needs.names.len() <= NEEDS_MAX && head.loads.len() <= SEGMENTS_MAX);
            for load in &head.loads {
                prop_assert!(load.file.start < load.file.end);
                prop_assert!(load.file.end <= bytes.len() as u64);
            }
            for (_, range) in crate::program_loading::load_plan::of_program(&head) {
                prop_assert!(range.start < range.end && range.end <= bytes.len() as u64);
            }
        }
    }

    /// Segments of absurd sizes, in files that claim to be large, cause no large reads.
    #[test]
    fn absurd_sizes_cost_little(
        segments in prop::collection::vec((any::<u64>(), any::<u64>(), 0u32..8), 1..40),
        size in any::<u64>(),
    ) {
        let mut bytes = vec![0; 64 + 56 * 40];
        bytes[..64].copy_from_slice(&Made::needing(&[]).bytes()[..64]);
        bytes[56] = segments.len() as u8;
        for (n, (offset, length, flags)) in segments.iter().enumerate() {
            let at = 64 + 56 * n;
            bytes[at] = 1;
            bytes[at + 4] = *flags as u8;
            bytes[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            bytes[at + 32..at + 40].copy_from_slice(&length.to_le_bytes());
        }
        let head = Head::parse(&bytes, size).expect("an ELF file");
        let parts = crate::program_loading::load_plan::of_program(&head);
        let sum: u64 = parts.iter().map(|(_, range)| range.end - range.start).sum();
        prop_assert!(sum <= 2 * crate::program_loading::load_plan::WHOLE_MAX, "{sum} bytes");
        prop_assert!(parts.iter().all(|(_, range)| range.end <= size));
    }
}
