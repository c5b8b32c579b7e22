//! Ranges of code that other processes may share: shared mappings of the program.
//!
//! A jump that is written there is written into the file that is mapped, and into the memory of
//! every process that maps it. What the kernel maps at an exec, and dynamic linkers after it, is
//! private.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Ranges told apart. What comes after them makes the last one wider.
const RANGES: usize = 32;

/// Ranges of shared mappings. No range is removed: private code that replaces shared code is not
/// patched.
pub(super) struct SharedRanges([(AtomicU64, AtomicU64); RANGES]);

impl SharedRanges {
    pub const fn new() -> Self {
        SharedRanges([const { (AtomicU64::new(u64::MAX), AtomicU64::new(0)) }; RANGES])
    }

    /// From `start` to `end` is shared.
    pub fn note(&self, start: u64, end: u64) {
        let (last, others) = self.0.split_last().expect("there are some");
        let holds = |(first, behind): &(AtomicU64, AtomicU64)| {
            first.load(Relaxed) <= start && end <= behind.load(Relaxed)
        };
        if others.iter().any(holds) {
            return;
        }
        let take = |(first, _): &&(AtomicU64, AtomicU64)| {
            first.compare_exchange(u64::MAX, start, Relaxed, Relaxed).is_ok()
        };
        let (first, behind) = others.iter().find(take).unwrap_or(last);
        first.fetch_min(start, Relaxed);
        behind.fetch_max(end, Relaxed);
    }

    /// Something between `start` and `end` is.
    pub fn touch(&self, start: u64, end: u64) -> bool {
        self.0
            .iter()
            .any(|(first, behind)| first.load(Relaxed) < end && start < behind.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_found_and_little_else() {
        let ranges = SharedRanges::new();
        assert!(!ranges.touch(0, u64::MAX));
        ranges.note(0x5000, 0x6000);
        ranges.note(0x5000, 0x6000);
        assert!(ranges.touch(0x5800, 0x5801) && ranges.touch(0x4000, 0x5001));
        assert!(!ranges.touch(0x4000, 0x5000) && !ranges.touch(0x6000, 0x7000));
    }

    #[test]
    fn what_is_too_much_is_taken_together() {
        let ranges = SharedRanges::new();
        let at = |n: u64| (n * 0x10000, n * 0x10000 + 0x1000);
        (1..=2 * RANGES as u64).for_each(|n| ranges.note(at(n).0, at(n).1));
        for n in 1..=2 * RANGES as u64 {
            assert!(ranges.touch(at(n).0, at(n).1), "{n}");
        }
        let early = at(RANGES as u64 / 2).1;
        assert!(!ranges.touch(early, early + 1));
    }
}
