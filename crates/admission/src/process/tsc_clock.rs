//! The time-stamp counter, by which agents measure.

use runahead_estimators::{TickRate, Ticks};
use std::time::{Duration, Instant};

/// Relates the time-stamp counter to time.
pub struct Clock {
    start: Ticks,
    at: Instant,
}

impl Clock {
    /// From now on.
    pub fn start() -> Self {
        let (start, at) = now();
        Clock { start, at }
    }

    /// Rate of the counter since the start: good to a percent, which is more than its use for
    /// thresholds needs; better at the end of a session.
    pub fn tick_rate(&self) -> TickRate {
        const ENOUGH: Duration = Duration::from_micros(20);
        while self.at.elapsed() < ENOUGH {
            std::hint::spin_loop();
        }
        let (ticks, at) = now();
        let elapsed = at.saturating_duration_since(self.at).as_nanos().max(1);
        let passed = ticks.saturating_sub(self.start);
        TickRate::new((u128::from(passed.0) * 1000 / elapsed) as u64)
    }
}

/// Returns the counter at a moment. A thread that lost its processor between the two readings would
/// take a millisecond for hundreds of times as many ticks, and agents would wait as many times as
/// long. Of several attempts, the one in which the least time passed counts.
fn now() -> (Ticks, Instant) {
    const ATTEMPTS: usize = 4;
    let attempt = |_| {
        let before = ticks();
        let at = Instant::now();
        (ticks().saturating_sub(before), before, at)
    };
    let (_, before, at) = (0..ATTEMPTS).map(attempt).min().unwrap_or_else(|| attempt(0));
    (before, at)
}

/// The counter now.
#[cfg(target_arch = "x86_64")]
pub fn ticks() -> Ticks {
    // SAFETY: reads a counter.
    Ticks(unsafe { core::arch::x86_64::_rdtsc() })
}
