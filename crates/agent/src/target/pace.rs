//! Whether calls are worth trying without waiting, and what counts as a stall.
//!
//! A probe costs up to a microsecond on calls that take half of one, so a program that finds
//! everything in memory must not pay it. Calls are probed from the start and for [`PROBES`] calls
//! after each stall; in between they are made as they stand, with a look at the clock. The threads of
//! a process share one pace, and lose a count to each other now and then.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Calls probed after a stall. A stall that comes when probing has ceased is only timed, and costs
/// one missed sync.
const PROBES: u32 = 512;
/// Calls probed at the start: loading a program and its libraries takes some fifty.
const PROBES_AT_START: u32 = 160;
/// A call that took longer than this waited for storage or for a processor.
const STALL_US: u64 = 50;
/// Reading from memory runs at no less than this many bytes in a microsecond.
const COPY_BYTES_PER_US: u64 = 1024;

/// See the module's text.
pub struct Pace {
    probes: AtomicU32,
    /// Calls that a stall of the recent past makes suspicious.
    suspects: AtomicU32,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Pace { probes: AtomicU32::new(PROBES_AT_START), suspects: AtomicU32::new(0) }
    }

    /// A new process.
    pub(super) fn start(&self) {
        self.probes.store(PROBES_AT_START, Relaxed);
        self.suspects.store(0, Relaxed);
    }

    /// Calls are to be tried without waiting.
    pub fn probing(&self) -> bool {
        self.probes.load(Relaxed) > 0
    }

    /// Something has stalled of late. What cannot be tried without waiting (reading a directory)
    /// is expected to stall only then.
    pub fn stalling(&self) -> bool {
        self.suspects.load(Relaxed) > 0
    }

    /// A suspect turned out not to stall: suspicion fades quickly.
    pub fn cleared(&self) {
        self.suspects.store(self.suspects.load(Relaxed) / 2, Relaxed);
    }

    /// A call found its data in memory.
    pub fn hit(&self) {
        for count in [&self.probes, &self.suspects] {
            count.store(count.load(Relaxed).saturating_sub(1), Relaxed);
        }
    }

    /// Something stalls.
    pub fn stalled(&self) {
        self.probes.store(PROBES, Relaxed);
        self.suspects.store(PROBES, Relaxed);
    }

    /// A call took `ticks` for `bytes`: true if that was a stall. `slept` tells, and is asked only
    /// if it took long, whether the thread has given up its processor since it was last asked: one
    /// that was merely pushed off it has not stalled.
    pub fn took(
        &self,
        ticks: u64,
        bytes: u64,
        ticks_per_us: u64,
        slept: impl FnOnce() -> bool,
    ) -> bool {
        let allowed = STALL_US + bytes / COPY_BYTES_PER_US;
        let stalled = ticks > allowed * ticks_per_us && slept();
        if stalled {
            self.stalled();
        } else {
            self.hit();
        }
        stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_ends_without_stalls_and_resumes_with_one() {
        let pace = Pace::new();
        for _ in 0..PROBES_AT_START {
            assert!(pace.probing());
            assert!(!pace.took(10, 0, 2000, || unreachable!()));
        }
        assert!(!pace.probing() && !pace.stalling());
        assert!(!pace.took(60 * 2000, 1 << 20, 2000, || true), "a megabyte may take a millisecond");
        assert!(!pace.took(60 * 2000, 0, 2000, || false), "another program had the processor");
        assert!(pace.took(60 * 2000, 0, 2000, || true));
        assert!(pace.probing() && pace.stalling());
    }
}
