//! Storage that serves one request at a time, as one spindle does: nothing is read ahead there.
//!
//! What is read ahead elsewhere comes beside what the target waits for; here it comes in place of
//! that, and moves the head away from what the kernel's own readahead would have read next. So as
//! soon as the prefetcher has measured that the device it waits for most is such a one, shadows are
//! stopped, and what the target waits for is left to the target. What the program itself discloses
//! is still read. Storage changes, and is measured again after a pause, which grows.
//!
//! Invariant: of the time at most one part in some 30 goes into measuring: two dozen requests, and
//! never again before [`PAUSE`]'s first.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use runahead_prefetch::Prefetcher;

/// First and longest time until the storage is measured again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(256));

/// State of a session's storage: does it serve one request at a time?
#[derive(Debug, Default)]
pub struct SingleSpindle {
    is_single_spindle: AtomicBool,
    pause: Mutex<Pause>,
}

#[derive(Debug, Default)]
struct Pause {
    until: Option<Instant>,
    last: Duration,
}

impl SingleSpindle {
    /// True if nothing was to be read ahead at the last look.
    pub fn is_single_spindle(&self) -> bool {
        self.is_single_spindle.load(Relaxed)
    }

    /// Looks; true if nothing is to be read ahead now.
    pub fn look(&self, prefetcher: &Prefetcher) -> bool {
        self.look_at(Instant::now(), || prefetcher.stats().sole, || prefetcher.measure_again())
    }

    fn look_at(
        &self,
        now: Instant,
        measured: impl FnOnce() -> bool,
        measure_again: impl FnOnce(),
    ) -> bool {
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        match pause.until {
            Some(until) if now >= until => {
                measure_again();
                pause.until = None;
            }
            None if measured() => {
                pause.last = (2 * pause.last).clamp(PAUSE.0, PAUSE.1);
                pause.until = Some(now + pause.last);
            }
            _ => {}
        }
        self.is_single_spindle.store(pause.until.is_some(), Relaxed);
        pause.until.is_some()
    }

    /// Returns the time until the next measurement.
    pub fn rest(&self) -> Option<Duration> {
        let pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        pause.until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_measured_ever_more_rarely() {
        let (spindle, mut now) = (SingleSpindle::default(), Instant::now());
        assert!(!spindle.look_at(now, || false, || panic!("there is nothing to forget")));
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert!(spindle.look_at(now, || true, || panic!("it has just been measured")));
            let began = now;
            loop {
                now += Duration::from_secs(1);
                let mut again = false;
                if !spindle.look_at(now, || panic!("nobody reads"), || again = true) {
                    assert!(again && !spindle.is_single_spindle());
                    break;
                }
                assert!(spindle.is_single_spindle() && spindle.rest().is_some());
            }
            pauses.push((now - began).as_secs());
        }
        assert_eq!(pauses, [8, 16, 32, 64, 128, 256, 256]);
    }
}
