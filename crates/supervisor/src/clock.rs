//! The time-stamp counter, by which agents measure.

use std::time::{Duration, Instant};

/// Relates the time-stamp counter to time.
pub(crate) struct Clock {
    ticks: u64,
    at: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock { ticks: ticks(), at: Instant::now() }
    }

    /// Good to a percent, which is more than its use for thresholds needs; better at the end of a
    /// session.
    pub(crate) fn ticks_per_us(&self) -> u64 {
        const ENOUGH: Duration = Duration::from_micros(20);
        while self.at.elapsed() < ENOUGH {
            std::hint::spin_loop();
        }
        let (ticks, elapsed) = (ticks() - self.ticks, self.at.elapsed());
        (u128::from(ticks) * 1000 / elapsed.as_nanos().max(1)).max(1) as u64
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}
