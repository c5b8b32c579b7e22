//! What the threads of a process do at a time: how many wait for storage is, by Little's law, what they have waited together by
//! the time that has passed.

use core::sync::atomic::Ordering::Relaxed;

use runahead_abi::Control;

use crate::sys;

/// What the threads of a process do at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Crowd {
    /// So many wait for storage at once.
    pub wait: u32,
    /// Processors that they keep busy, in 1,024ths of one; at most one.
    pub busy: u32,
}

impl Crowd {
    /// What the supervisor says of all processes of the session, and of the machine's processors.
    pub(super) fn of_session(control: &Control) -> Self {
        let wait = control.session_waits.load(Relaxed);
        Crowd { wait, busy: control.session_busy.load(Relaxed) }
    }

    /// The process among `others`.
    pub(super) fn among(self, others: Self) -> Self {
        match others.wait > self.wait {
            // What a process does by itself it does not do while it waits; what others do they do meanwhile.
            true => Crowd { wait: others.wait, busy: self.busy.max(others.busy) },
            false => self,
        }
    }
}

/// Tells it from what is counted anyway.
pub(super) struct Watch {
    /// At the last look.
    before: Moment,
    usual: Crowd,
}

/// All in ticks.
#[derive(Clone, Copy)]
struct Moment {
    at: u64,
    /// What threads have waited for storage so far.
    waited: u64,
    /// Processor time of the process so far.
    used: u64,
}

impl Watch {
    /// How far looks are apart, in microseconds: some waits.
    const EVERY_US: u64 = 20_000;

    pub(super) const fn new() -> Self {
        let before = Moment { at: 0, waited: 0, used: 0 };
        Watch { before, usual: Crowd { wait: 0, busy: 0 } }
    }

    /// At `at`, when threads have waited `waited` ticks together: a look, if it is time for one.
    pub(super) fn look(&mut self, at: u64, waited: u64, ticks_per_us: u64) {
        if at.wrapping_sub(self.before.at) >= Self::EVERY_US * ticks_per_us {
            let used = sys::cpu_us() * ticks_per_us;
            self.pass(Moment { at, waited, used });
        }
    }

    /// As it was of late.
    pub(super) fn usual(&self) -> Crowd {
        self.usual
    }

    fn pass(&mut self, now: Moment) {
        let before = core::mem::replace(&mut self.before, now);
        let passed = now.at.wrapping_sub(before.at).max(1);
        let waits = now.waited.saturating_sub(before.waited);
        let used = now.used.saturating_sub(before.used).min(passed);
        let wait = u32::try_from((waits + passed / 2) / passed).unwrap_or(u32::MAX);
        self.usual = Crowd { wait, busy: (used.saturating_mul(1024) / passed) as u32 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_many_counts_as_one_of_them() {
        let alone = Crowd { wait: 1, busy: 100 };
        assert_eq!(alone.among(Crowd { wait: 1, busy: 900 }), alone);
        assert_eq!(alone.among(Crowd { wait: 8, busy: 500 }), Crowd { wait: 8, busy: 500 });
        assert_eq!(alone.among(Crowd { wait: 8, busy: 10 }), Crowd { wait: 8, busy: 100 });
        assert_eq!(Crowd { wait: 8, busy: 1 }.among(alone), Crowd { wait: 8, busy: 1 });
    }

    #[test]
    fn threads_that_wait_at_once_are_counted_by_what_they_wait_together() {
        let mut watch = Watch::new();
        let mut now = Moment { at: 0, waited: 0, used: 0 };
        let mut pass = |passed: u64, waited: u64, used: u64| {
            let Moment { at, waited: before, used: so_far } = now;
            now = Moment { at: at + passed, waited: before + waited, used: so_far + used };
            watch.pass(now);
            (watch.usual.wait, watch.usual.busy)
        };
        assert_eq!(pass(1_000, 875, 125), (1, 128), "one thread");
        assert_eq!(pass(1_000, 4_000, 2_000), (4, 1024), "a pool on two processors");
        assert_eq!(pass(1_000, 0, 0), (0, 0), "nothing was waited for");
    }
}
