//! Load of a session: how many threads wait for storage at a time (Little's law: the sum of their
//! waits by the time that has passed), and how busy the processors are meanwhile.
//!
//! Processes that wait at once wait once, as threads do (the agent's `targets/concurrency.rs`).
//! Each may spend a part of its waits on shadows, so eight of them might spend eight times as much
//! of the time that passes. As far as processors would have been idle, that costs nothing.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use runahead_abi::Control;
use runahead_estimators::Micros;

/// Interval of looks: the kernel counts processor time in hundredths of a second.
const EVERY: Duration = Duration::from_millis(100);

/// Load of a session.
#[derive(Debug, Default)]
pub struct SessionLoad {
    /// Sum of the threads' waits for storage, in microseconds.
    waited_us: AtomicU64,
    before: Mutex<Option<Moment>>,
    /// Threads that wait at once.
    waits: AtomicU32,
    /// Part of the processors that is busy, in 1,024ths.
    busy: AtomicU32,
}

/// Counts at a moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    waited_us: u64,
    processors: Processors,
}

/// Times of the machine's processors so far, in the kernel's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Processors {
    idle: u64,
    all: u64,
}

impl SessionLoad {
    /// Threads of a process have waited so long, together, since that was last told.
    pub(crate) fn waited(&self, time: Micros) {
        self.waited_us.fetch_add(time.0, Relaxed);
        let mut before = match self.before.try_lock() {
            Ok(before) => before,
            Err(TryLockError::Poisoned(before)) => PoisonError::into_inner(before),
            // Another dispatcher is looking.
            Err(TryLockError::WouldBlock) => return,
        };
        let at = Instant::now();
        if before.is_none_or(|before| at.duration_since(before.at) >= EVERY)
            && let Some(processors) = Processors::now()
        {
            let now = Moment { at, waited_us: self.waited_us.load(Relaxed), processors };
            if let Some(before) = before.replace(now) {
                let (waits, busy) = now.since(&before);
                self.waits.store(waits, Relaxed);
                self.busy.store(busy, Relaxed);
            }
        }
    }

    /// Threads that wait at once.
    pub(crate) fn waiters(&self) -> u32 {
        self.waits.load(Relaxed)
    }

    /// A process is told of it.
    pub(crate) fn tell(&self, control: &Control) {
        control.session_waits.store(self.waits.load(Relaxed), Relaxed);
        control.session_busy.store(self.busy.load(Relaxed), Relaxed);
    }
}

impl Moment {
    /// Threads that waited at once, and how busy processors were, since `before`.
    fn since(&self, before: &Self) -> (u32, u32) {
        let passed = self.at.duration_since(before.at).as_micros().max(1) as u64;
        let waited = self.waited_us.wrapping_sub(before.waited_us);
        let waits = waited.saturating_add(passed / 2) / passed;
        (u32::try_from(waits).unwrap_or(u32::MAX), self.processors.busy_since(&before.processors))
    }
}

impl Processors {
    /// Reads the times of all processors (proc_stat(5)).
    fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        /// Indices in the first line: idle, and idle while a process waits for I/O.
        const IDLE: std::ops::Range<usize> = 3..5;
        /// Number of values to sum; those behind them are included in the first ones, too.
        const KINDS: usize = 8;
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let times = line.split_ascii_whitespace().take(KINDS).map(str::parse::<u64>);
        let times = times.collect::<Result<Vec<_>, _>>().ok()?;
        Some(Processors { idle: times.get(IDLE)?.iter().sum(), all: times.iter().sum() })
    }

    /// Returns the busy part since `before`, in 1,024ths.
    fn busy_since(&self, before: &Self) -> u32 {
        let all = self.all.saturating_sub(before.all);
        let idle = self.idle.saturating_sub(before.idle).min(all);
        ((all - idle) * 1024).checked_div(all).unwrap_or(0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_wait_at_once_are_counted_by_what_they_wait_together() {
        let at = Instant::now();
        let before = Moment { at, waited_us: 5, processors: Processors { idle: 100, all: 200 } };
        let after = |ms: u64, waited_us: u64, processors| Moment {
            at: at + Duration::from_millis(ms),
            waited_us: 5 + waited_us,
            processors,
        };
        let half = Processors { idle: 110, all: 220 };
        assert_eq!(after(100, 790_000, half).since(&before), (8, 512));
        assert_eq!(after(100, 0, half).since(&before), (0, 512));
        assert_eq!(after(100, 100_000, before.processors).since(&before), (1, 0), "nothing passed");
    }

    #[test]
    fn processors_are_what_the_kernel_says() {
        let text = "cpu  10 1 9 70 5 2 3 0 99 98\ncpu0 1 2 3\n";
        assert_eq!(Processors::parse(text), Some(Processors { idle: 75, all: 100 }));
        assert_eq!(Processors::parse("cpu  10 1"), None);
        assert_eq!(Processors::parse("intr 5"), None);
        let now = Processors::now().expect("this machine has some");
        assert!(now.idle <= now.all && now.all > 0);
    }
}
