//! The time-stamp counter, by which agents measure.

use std::time::{Duration, Instant};

/// Relates the time-stamp counter to time.
pub struct Clock {
    ticks: u64,
    at: Instant,
}

impl Clock {
    /// From now on.
    pub fn start() -> Self {
        let (ticks, at) = now();
        Clock { ticks, at }
    }

    /// Good to a percent, which is more than its use for thresholds needs; better at the end of a
    /// session.
    pub fn ticks_per_us(&self) -> u64 {
        const ENOUGH: Duration = Duration::from_micros(20);
        while self.at.elapsed() < ENOUGH {
            std::hint::spin_loop();
        }
        let (ticks, at) = now();
        let elapsed = at.saturating_duration_since(self.at).as_nanos().max(1);
        (u128::from(ticks.saturating_sub(self.ticks)) * 1000 / elapsed).max(1) as u64
    }
}

/// Returns the counter at a moment. A thread that lost its processor between the two readings would
/// take a millisecond for hundreds of times as many ticks, and agents would wait as many times as
/// long. Of several attempts, the one in which the least time passed counts.
fn now() -> (u64, Instant) {
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
pub fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}
