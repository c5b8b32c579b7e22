//! Which blocks of shared memory runs have used: the next template copies them at once.
//!
//! So they are as they were at the sync, in all of its runs; what a run uses besides comes as it is then.
//! A direct-mapped cache without locks: a lost entry costs a shadow accuracy.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Entries; a power of two.
const BLOCKS: usize = 1 << 10;

/// See the module's text.
#[repr(C)]
pub struct Touched {
    blocks: [AtomicU64; BLOCKS],
}

impl Touched {
    /// A run has used the block that begins at the address `at`, of `len` bytes (a power of two).
    pub fn note(&self, at: u64, len: u64) {
        self.blocks[(at / len.max(1)) as usize & (BLOCKS - 1)].store(at, Relaxed);
    }

    /// The addresses that were noted.
    pub fn each(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().map(|block| block.load(Relaxed)).filter(|&at| at != 0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    #[test]
    fn what_was_noted_is_found_until_something_takes_its_place() {
        // SAFETY: atomics throughout, for which all-zero bytes are a valid value.
        let touched: Box<Touched> = unsafe { Box::new_zeroed().assume_init() };
        assert_eq!(touched.each().count(), 0);
        touched.note(0x10_0000, 8192);
        touched.note(0x10_2000, 8192);
        touched.note(0x10_0000, 8192);
        assert_eq!(touched.each().collect::<Vec<_>>(), [0x10_0000, 0x10_2000]);
        touched.note(0x10_0000 + 8192 * BLOCKS as u64, 8192);
        let found: Vec<_> = touched.each().collect();
        assert_eq!(found, [0x10_0000 + 8192 * BLOCKS as u64, 0x10_2000]);
    }
}
