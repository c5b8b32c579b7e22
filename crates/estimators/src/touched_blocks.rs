//! Blocks of shared memory that runs have used. The next template copies those of them at once that
//! change.
//!
//! So they are as they were at the sync, in all of its runs; what a run uses besides comes as it is
//! then, which is the same unless a process stores to it. A direct-mapped cache without locks: a
//! lost entry costs a shadow accuracy.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Entries; a power of two.
const BLOCKS: usize = 1 << 10;
/// A block that was the same in so many copies is left to be copied when it is used. (Of a
/// database's buffers, each sync finds few changed, and all have been used in the end: to copy them
/// took longer than the stall.)
const STEADY: u32 = 4;

/// Cache of the blocks that runs have used.
#[repr(C)]
pub struct Touched {
    blocks: [Block; BLOCKS],
}

#[repr(C)]
struct Block {
    /// Address of the block; 0: none.
    at: AtomicU64,
    /// Print of what the block held when it was copied last (see [`print_of`]).
    print: AtomicU64,
    /// Copies since the block has changed.
    steady: AtomicU32,
    _unused: u32,
}

impl Block {
    /// The block holds what `print` is of: something else than when it was copied last, or not.
    fn look(&self, print: u64) {
        match self.print.swap(print, Relaxed) == print {
            true => self.steady.store(self.steady.load(Relaxed).saturating_add(1), Relaxed),
            false => self.steady.store(0, Relaxed),
        }
    }

    fn changes(&self) -> bool {
        self.at.load(Relaxed) != 0 && self.steady.load(Relaxed) < STEADY
    }
}

impl Touched {
    /// A run has used the block that begins at the address `at`, of `len` bytes (a power of two),
    /// and holds what `print` is of.
    pub fn note(&self, at: u64, len: u64, print: u64) {
        let block = &self.blocks[(at / len.max(1)) as usize & (BLOCKS - 1)];
        if block.at.load(Relaxed) == at {
            block.look(print);
        } else if !block.changes() {
            block.at.store(at, Relaxed);
            block.print.store(print, Relaxed);
            block.steady.store(0, Relaxed);
        }
    }

    /// Has `copy` copy each block that changes: it takes the address, and says of what it then
    /// holds the print, if it could be copied.
    pub fn each(&self, mut copy: impl FnMut(u64) -> Option<u64>) {
        for block in self.blocks.iter().filter(|block| block.changes()) {
            if let Some(print) = copy(block.at.load(Relaxed)) {
                block.look(print);
            }
        }
    }
}

/// A number that is another one for almost all other words.
pub fn print_of(words: &[u64]) -> u64 {
    // Four at a time: a multiplication waits for the one before.
    let mut lanes = [1u64, 2, 3, 4];
    for four in words.chunks(lanes.len()) {
        for (lane, word) in lanes.iter_mut().zip(four) {
            *lane = (*lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    lanes.iter().fold(0, |all, lane| (all ^ lane).wrapping_mul(0xff51_afd7_ed55_8ccd))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    const LEN: u64 = 8192;

    fn touched() -> Box<Touched> {
        // SAFETY: atomics throughout, for which all-zero bytes are a valid value.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn copied(touched: &Touched, print: u64) -> Vec<u64> {
        let mut all = Vec::new();
        touched.each(|at| {
            all.push(at);
            Some(print)
        });
        all
    }

    #[test]
    fn what_was_noted_is_copied_until_it_has_shown_to_be_steady() {
        let touched = touched();
        assert_eq!(copied(&touched, 0), []);
        touched.note(0x10_0000, LEN, 1);
        touched.note(0x10_2000, LEN, 1);
        touched.note(0x10_0000, LEN, 7);
        for n in 0..20 {
            assert_eq!(copied(&touched, n), [0x10_0000, 0x10_2000], "it changes");
        }
        for _ in 0..STEADY {
            assert_eq!(copied(&touched, 19), [0x10_0000, 0x10_2000]);
        }
        assert_eq!(copied(&touched, 19), []);
        touched.note(0x10_0000, LEN, 19);
        assert_eq!(copied(&touched, 19), [], "used, but the same as ever");
        touched.note(0x10_0000, LEN, 20);
        assert_eq!(copied(&touched, 20), [0x10_0000], "it has changed");
    }

    #[test]
    fn a_block_that_changes_keeps_its_place() {
        let touched = touched();
        let (old, new) = (0x10_0000, 0x10_0000 + LEN * BLOCKS as u64);
        touched.note(old, LEN, 1);
        touched.note(new, LEN, 1);
        assert_eq!(copied(&touched, 1), [old]);
        (0..STEADY).for_each(|_| drop(copied(&touched, 1)));
        touched.note(new, LEN, 1);
        assert_eq!(copied(&touched, 1), [new]);
    }

    #[test]
    fn any_other_word_makes_another_print() {
        let words: Vec<u64> = (0..1024).map(|n| n * n).collect();
        let all: std::collections::HashSet<u64> = (0..words.len())
            .map(|at| {
                let mut words = words.clone();
                words[at] ^= 1;
                print_of(&words)
            })
            .chain([print_of(&words)])
            .collect();
        assert_eq!(all.len(), words.len() + 1);
    }
}
