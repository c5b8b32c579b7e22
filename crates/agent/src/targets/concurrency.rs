//! Concurrency of a process's threads. By Little's law, the number of waiting threads is the time
//! that all threads have waited, divided by the elapsed time.

use core::sync::atomic::Ordering::Relaxed;

use runahead_abi::Control;
use runahead_estimators::{Micros, TickRate, Ticks};

use crate::sys;

/// Concurrency of the threads of a process, or of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Concurrency {
    /// Threads that wait for storage at the same time.
    pub waiting_threads: u32,
    /// Processor time in use, in 1,024ths of one processor; at most 1,024.
    pub busy_processors: u32,
}

impl Concurrency {
    /// Concurrency of the whole session, as published by the supervisor.
    pub(super) fn of_session(control: &Control) -> Self {
        let wait = control.session_waits.load(Relaxed);
        Concurrency { waiting_threads: wait, busy_processors: control.session_busy.load(Relaxed) }
    }

    /// Concurrency of this process, given that of all processes of the session.
    pub(super) fn combined_with(self, others: Self) -> Self {
        match others.waiting_threads > self.waiting_threads {
            // Our own processor time cannot overlap our waits; that of other processes can. Take
            // the maximum.
            true => Concurrency {
                waiting_threads: others.waiting_threads,
                busy_processors: self.busy_processors.max(others.busy_processors),
            },
            false => self,
        }
    }
}

/// Measures concurrency from totals that are counted anyway.
pub(super) struct ConcurrencyMeter {
    /// Totals at the last sample.
    previous: ProcessTotals,
    latest: Concurrency,
}

/// Totals of a process.
#[derive(Clone, Copy)]
struct ProcessTotals {
    at: Ticks,
    /// Time that all threads have waited for storage.
    waited: Ticks,
    /// Processor time of the process.
    used: Ticks,
}

impl ConcurrencyMeter {
    /// Interval between samples: the length of some waits.
    const INTERVAL: Micros = Micros(20_000);

    pub(super) const fn new() -> Self {
        let before = ProcessTotals { at: Ticks(0), waited: Ticks(0), used: Ticks(0) };
        ConcurrencyMeter {
            previous: before,
            latest: Concurrency { waiting_threads: 0, busy_processors: 0 },
        }
    }

    /// Takes a sample at `at`, when threads have waited `waited` in total, if the interval
    /// has passed.
    pub(super) fn sample(&mut self, at: Ticks, waited: Ticks, rate: TickRate) {
        if at.wrapping_sub(self.previous.at) >= Self::INTERVAL.to_ticks(rate) {
            let used = Micros(sys::cpu_us()).to_ticks(rate);
            self.advance(ProcessTotals { at, waited, used });
        }
    }

    /// Concurrency at the last sample.
    pub(super) fn current(&self) -> Concurrency {
        self.latest
    }

    fn advance(&mut self, now: ProcessTotals) {
        let before = core::mem::replace(&mut self.previous, now);
        let passed = now.at.wrapping_sub(before.at).0.max(1);
        let waits = now.waited.saturating_sub(before.waited).0;
        let used = now.used.saturating_sub(before.used).0.min(passed);
        let wait = u32::try_from((waits + passed / 2) / passed).unwrap_or(u32::MAX);
        self.latest = Concurrency {
            waiting_threads: wait,
            busy_processors: (used.saturating_mul(1024) / passed) as u32,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_many_counts_as_one_of_them() {
        let alone = Concurrency { waiting_threads: 1, busy_processors: 100 };
        assert_eq!(
            alone.combined_with(Concurrency { waiting_threads: 1, busy_processors: 900 }),
            alone
        );
        assert_eq!(
            alone.combined_with(Concurrency { waiting_threads: 8, busy_processors: 500 }),
            Concurrency { waiting_threads: 8, busy_processors: 500 }
        );
        assert_eq!(
            alone.combined_with(Concurrency { waiting_threads: 8, busy_processors: 10 }),
            Concurrency { waiting_threads: 8, busy_processors: 100 }
        );
        assert_eq!(
            Concurrency { waiting_threads: 8, busy_processors: 1 }.combined_with(alone),
            Concurrency { waiting_threads: 8, busy_processors: 1 }
        );
    }

    #[test]
    fn threads_that_wait_at_once_are_counted_by_what_they_wait_together() {
        let mut watch = ConcurrencyMeter::new();
        let mut now = ProcessTotals { at: Ticks(0), waited: Ticks(0), used: Ticks(0) };
        let mut pass = |passed: u64, waited: u64, used: u64| {
            let ProcessTotals { at, waited: before, used: so_far } = now;
            now = ProcessTotals {
                at: at + Ticks(passed),
                waited: before + Ticks(waited),
                used: so_far + Ticks(used),
            };
            watch.advance(now);
            (watch.latest.waiting_threads, watch.latest.busy_processors)
        };
        assert_eq!(pass(1_000, 875, 125), (1, 128), "one thread");
        assert_eq!(pass(1_000, 4_000, 2_000), (4, 1024), "a pool on two processors");
        assert_eq!(pass(1_000, 0, 0), (0, 0), "nothing was waited for");
    }
}
