//! What names take that the kernel does not know, on average.
//!
//! One that is asked for the first time may be answered from a directory that is in memory; nothing tells beforehand. A
//! program that looks for each of its files in dozens of directories asks for thousands of them, and waits for few.
//! To take each for a stall costs a record, a wake-up and a look at the hint log, which must not be more than what
//! the few that wait could be spared.
//!
//! While they are quick, names are not tried either: only those that waited are counted then, so that after some of these
//! it is looked at anew.
//!
//! Threads share the counts, and lose one to each other now and then.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::stall_probing::SHORT_US;

/// Names that tell.
const ENOUGH: u32 = 16;
/// Of older ones only so many count.
const WINDOW: u32 = 64;

/// See the module's text.
pub(super) struct Unknown {
    names: AtomicU32,
    us: AtomicU32,
}

impl Unknown {
    pub(super) const fn new() -> Self {
        Unknown { names: AtomicU32::new(0), us: AtomicU32::new(0) }
    }

    /// One was waited for so long, in microseconds; 0: not at all.
    pub(super) fn took(&self, us: u64) {
        const MOST_US: u64 = 1 << 20;
        let (mut names, mut sum) = (self.names.load(Relaxed), self.us.load(Relaxed));
        if names >= WINDOW {
            (names, sum) = (names / 2, sum / 2);
        }
        self.names.store(names + 1, Relaxed);
        self.us.store(sum + us.min(MOST_US) as u32, Relaxed);
    }

    /// Names that the kernel does not know are answered from memory, mostly.
    pub(super) fn are_quick(&self) -> bool {
        let names = self.names.load(Relaxed);
        names >= ENOUGH && u64::from(self.us.load(Relaxed)) < SHORT_US * u64::from(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_which_one_in_five_waits_for_half_a_millisecond_are_quick() {
        let unknown = Unknown::new();
        (0..ENOUGH - 1).for_each(|_| unknown.took(0));
        assert!(!unknown.are_quick(), "too few to tell");
        (0..1_000).for_each(|n| unknown.took(if n % 5 == 0 { 500 } else { 0 }));
        assert!(unknown.are_quick());
        (0..1_000).for_each(|n| unknown.took(if n % 5 == 0 { 5_000 } else { 0 }));
        assert!(!unknown.are_quick(), "each fifth takes 5 ms");
        (0..WINDOW).for_each(|_| unknown.took(u64::MAX));
        assert!(!unknown.are_quick());
        (0..20 * WINDOW).for_each(|_| unknown.took(0));
        assert!(unknown.are_quick(), "what was long ago fades");
    }
}
