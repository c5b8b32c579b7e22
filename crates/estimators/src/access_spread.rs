//! Spread of accesses over each file: here and there, or so densely that a chunk is asked for more
//! than once.
//!
//! Invariant: it is a matter of speed alone. Entries are written without locks, one word each, and
//! a count that is lost, or of another file, asks for too much or too little once.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::access_identity::Identity;

/// Files that are counted; one that comes to the place of another begins anew.
const FILES: usize = 64;
/// Beside the first of its chunk, one in so many of what is asked for makes a file dense.
const DENSE: u64 = 6;
/// A file that was dense stays so while one in so many is beside another: most of what lies there
/// has been read by then.
const SPARSE: u64 = 64;
/// Fewer say nothing.
const TELLING: u64 = 4;

/// Spread of accesses over files.
#[repr(C)]
pub struct Spread {
    files: [File; FILES],
}

#[repr(C)]
struct File {
    identity: AtomicU64,
    /// Bits 0 to 30 what was the first of its chunk, 31 to 61 what was not, 62 that it was dense.
    counts: AtomicU64,
}

const BESIDE: u32 = 31;
const WAS_DENSE: u64 = 1 << 62;
const COUNT: u64 = (1 << BESIDE) - 1;

impl Spread {
    /// Something of `file` is asked for, `beside` what was asked for before in the same chunk or
    /// not. Whether all of that chunk is worth asking for.
    pub fn is_dense(&self, file: Identity, beside: bool) -> bool {
        let entry = &self.files[file.place() as usize % FILES];
        let old = match entry.identity.swap(file.raw(), Relaxed) == file.raw() {
            true => entry.counts.load(Relaxed),
            false => 0,
        };
        let (mut fresh, mut near) = (old & COUNT, old >> BESIDE & COUNT);
        *(if beside { &mut near } else { &mut fresh }) += 1;
        if fresh.max(near) == COUNT {
            (fresh, near) = (fresh / 2, near / 2);
        }
        let enough = if old & WAS_DENSE != 0 { SPARSE } else { DENSE };
        let dense = near >= TELLING && near * enough >= fresh;
        let flag = if dense { WAS_DENSE } else { 0 };
        entry.counts.store(fresh | near << BESIDE | flag, Relaxed);
        dense
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;

    use super::*;

    fn spread() -> Box<Spread> {
        // SAFETY: atomics throughout, for which all-zero bytes are a valid value.
        unsafe { Box::new_zeroed().assume_init() }
    }

    #[test]
    fn one_in_six_makes_a_file_dense_and_few_keep_it_so() {
        let (spread, file) = (spread(), Identity::ROOT);
        assert!((0..100).all(|_| !spread.is_dense(file, false)));
        assert!((0..16).all(|_| !spread.is_dense(file, true)));
        assert!(spread.is_dense(file, true), "17 of 100");
        assert!((0..900).all(|_| spread.is_dense(file, false)));
        assert!((0..100).any(|_| !spread.is_dense(file, false)));
        assert!(!spread.is_dense(file, true), "18 of 1,100 or so");
    }

    #[test]
    fn files_are_counted_apart() {
        let (spread, file) = (spread(), Identity::ROOT);
        (0..9).for_each(|_| _ = spread.is_dense(file, true));
        assert!(spread.is_dense(file, false) && !spread.is_dense(file.listing(), true));
    }

    #[test]
    fn counts_do_not_run_over() {
        let (spread, file) = (spread(), Identity::ROOT);
        let entry = &spread.files[file.place() as usize % FILES];
        entry.identity.store(file.raw(), Relaxed);
        entry.counts.store((COUNT - 1) | (5 << BESIDE), Relaxed);
        assert!(!spread.is_dense(file, false));
        assert_eq!(entry.counts.load(Relaxed), (COUNT / 2) | (2 << BESIDE));
    }
}
