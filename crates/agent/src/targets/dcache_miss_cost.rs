//! Mean cost of name lookups that miss the kernel's dentry cache.
//!
//! A name that is looked up for the first time may be answered from a directory that is in memory;
//! nothing tells beforehand. A program that looks for each of its files in dozens of directories
//! misses thousands of times and waits for few of them. Treating each as a stall costs a record, a
//! wake-up and a look at the hint log. That must not exceed what the few real waits could be
//! spared.
//!
//! While misses are fast, names are not probed. Only the lookups that waited are counted then, so
//! that probing resumes after some of them.
//!
//! Threads share the counts and occasionally lose one to each other.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use runahead_estimators::Micros;

use super::stall_probing::SHORT_WAIT;

/// Fewest lookups on which the mean is based.
const LOOKUPS_MIN: u32 = 16;
/// Lookups after which the older half of the weight is dropped.
const LOOKUPS_WINDOW: u32 = 64;

/// Decaying mean of the cost of lookups that missed.
pub(super) struct DcacheMissCost {
    lookups: AtomicU32,
    total_us: AtomicU32,
}

impl DcacheMissCost {
    pub(super) const fn new() -> Self {
        DcacheMissCost { lookups: AtomicU32::new(0), total_us: AtomicU32::new(0) }
    }

    /// Notes a lookup that waited for `wait`; 0 if it did not wait.
    pub(super) fn note(&self, wait: Micros) {
        const MOST: Micros = Micros(1 << 20);
        let (mut names, mut sum) = (self.lookups.load(Relaxed), self.total_us.load(Relaxed));
        if names >= LOOKUPS_WINDOW {
            (names, sum) = (names / 2, sum / 2);
        }
        self.lookups.store(names + 1, Relaxed);
        self.total_us.store(sum + wait.min(MOST).0 as u32, Relaxed);
    }

    /// True if lookups that miss the dentry cache are mostly answered from memory.
    pub(super) fn are_fast(&self) -> bool {
        let names = self.lookups.load(Relaxed);
        names >= LOOKUPS_MIN
            && Micros(self.total_us.load(Relaxed).into()) < SHORT_WAIT * u64::from(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_which_one_in_five_waits_for_half_a_millisecond_are_quick() {
        let unknown = DcacheMissCost::new();
        (0..LOOKUPS_MIN - 1).for_each(|_| unknown.note(Micros(0)));
        assert!(!unknown.are_fast(), "too few to tell");
        (0..1_000).for_each(|n| unknown.note(Micros(if n % 5 == 0 { 500 } else { 0 })));
        assert!(unknown.are_fast());
        (0..1_000).for_each(|n| unknown.note(Micros(if n % 5 == 0 { 5_000 } else { 0 })));
        assert!(!unknown.are_fast(), "each fifth takes 5 ms");
        (0..LOOKUPS_WINDOW).for_each(|_| unknown.note(Micros(u64::MAX)));
        assert!(!unknown.are_fast());
        (0..20 * LOOKUPS_WINDOW).for_each(|_| unknown.note(Micros(0)));
        assert!(unknown.are_fast(), "what was long ago fades");
    }
}
