//! Survey of the call sites of real files that could be patched.

use super::std;
use std::prelude::rust_2024::{String, Vec};
use std::{env, eprintln, fs};

use crate::arch::{ABSENT, Code, PAGE_BYTES, RUN_UP, SiteShape, Window};

/// Every executable page of an ELF file: address and bytes.
fn pages(file: &[u8]) -> Vec<(u64, Window)> {
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let half = |at: usize| usize::from(u16::from_le_bytes([file[at], file[at + 1]]));
    let (headers, size, count) = (word(32) as usize, half(54), half(56));
    let mut pages = Vec::new();
    for header in (0..count).map(|n| headers + n * size) {
        const LOAD_EXECUTABLE: u64 = 1 << 32 | 1;
        if word(header) & LOAD_EXECUTABLE != LOAD_EXECUTABLE || file[header + 1] != 0 {
            continue;
        }
        let (offset, address, len) = (word(header + 8), word(header + 16), word(header + 32));
        for page in (address & !4095..address + len).step_by(4096) {
            let mut bytes = [ABSENT; size_of::<Window>()];
            for (i, byte) in bytes.iter_mut().enumerate() {
                let at = page + i as u64 - RUN_UP as u64;
                if (address..address + len).contains(&at) {
                    *byte = file[(at - address + offset) as usize];
                }
            }
            pages.push((page - RUN_UP as u64, bytes));
        }
    }
    pages
}

/// The number that `mov eax, nr` or `mov rax, nr` before a site gives.
fn number(before: &[u8]) -> u64 {
    let number = before.last_chunk::<4>().map_or(0, |n| u32::from_le_bytes(*n));
    number.into()
}

/// The C library of this process.
fn c_library() -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.contains("/libc.so.6"))?;
    Some(line[line.find('/')?..].into())
}

/// `RUNAHEAD_SURVEY` may name files, with colons between them, whose sites are then printed.
#[test]
fn most_sites_of_the_c_library_can_be_patched_under_threads() {
    let given = env::var("RUNAHEAD_SURVEY").ok();
    let Some(files) = given.clone().or_else(c_library) else {
        eprintln!("skipped: this process has no libc.so.6");
        return;
    };
    let (mut sites, mut patched) = (0, 0);
    for name in files.split(':') {
        let file = fs::read(name).unwrap();
        for (page, bytes) in pages(&file) {
            let code = Code::new(&bytes, &|_, _| None);
            for site in RUN_UP..RUN_UP + PAGE_BYTES - 1 {
                if bytes[site..site + 2] != [0x0f, 5] {
                    continue;
                }
                let shapes: Vec<_> = SiteShape::of(&code, site, number(&bytes[..site])).collect();
                sites += 1;
                patched += usize::from(shapes.iter().any(|s| *s != SiteShape::CompareAfter));
                if given.is_some() {
                    eprintln!("SITE {name} {:x} {shapes:?}", page + site as u64);
                }
            }
        }
    }
    eprintln!("{patched} of {sites} sites");
    // glibc 2.36: 479 of 527. Others are calls of locks, in the middle of long functions.
    assert!(given.is_some() || sites > 100 && patched * 5 > sites * 4);
}
