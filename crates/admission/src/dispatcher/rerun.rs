//! When a shadow runs again.
//!
//! A shadow that met a directory, a name or attributes that were not in memory went on with a
//! guess, and could not see what depends on the answer. Once such *steering* hints have been read,
//! running again from the same point gets further: the depth of dependencies, not their number,
//! bounds the stalls. A run is repeated when it has ended and either all that it lacked has arrived
//! or some of it arrived [`SETTLE`] ago; runs that find nothing new become rarer. While hints of
//! this process wait for their turn at the storage there is no other: what it found could only wait
//! behind them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::process::doorbell::request_run;
use runahead_abi::RunEnd;

use super::{BACKOFF, Dispatcher};

/// Time to wait for further arrivals after the first.
const SETTLE: Duration = Duration::from_micros(1500);
/// Longest pause between runs that found nothing new.
const LONGEST: Duration = Duration::from_millis(64);
/// A run is repeated from its old start while the target has made at most this many accesses since.
const NEAR: u64 = 128;
/// Hints that the target has used since the newest sync, after which runs had better start where it
/// is now.
const FAR_USES: u64 = 256;

impl Dispatcher {
    pub(super) fn started_run(&mut self) {
        self.arrived_before = self.progress.steers();
        self.first_arrival = None;
        self.hints_before = self.shared.control.hints_issued.load(Relaxed);
    }

    /// Starts another run if that is worth while now; otherwise, how long to sleep at most.
    pub(super) fn run_again(&mut self) -> Option<Duration> {
        if self.session.without.again {
            return None;
        }
        let shared = self.shared.clone();
        let control = &shared.control;
        let arrived = self.progress.steers();
        if arrived == self.arrived_before || self.sync == 0 {
            return None;
        }
        let now = Instant::now();
        let first = *self.first_arrival.get_or_insert(now);
        let run = control.run_request.load(Relaxed);
        let status = shared.run(run);
        let started = status.run.load(Relaxed) == run;
        let end = RunEnd::from_raw(status.end.load(Relaxed));
        if !started || matches!(end, RunEnd::Running | RunEnd::Paused) {
            return Some(SETTLE);
        }
        let all = arrived >= self.submitted;
        let ready = if all { first } else { first + SETTLE }.max(self.not_before);
        if now < ready {
            return Some(ready - now);
        }
        // The count is that of this turn.
        if control.queued.load(Relaxed) > 0 {
            return Some(SETTLE);
        }
        let (now_at, then_at) = (&control.accesses, &control.accesses_at_sync);
        let moved = now_at.load(Relaxed).wrapping_sub(then_at.load(Relaxed));
        if end == RunEnd::Unsafe || control.stopped.load(Relaxed) != 0 {
            return None;
        }
        if moved > NEAR.max(status.accesses.load(Relaxed) / 4) {
            // The target is far from where the shadow would start; it will make a new one.
            control.want_sync.store(1, Relaxed);
            return None;
        }
        // What it uses of mapped files is no access: of that, so much of what runs have asked for.
        // (It looks at times only whether it is to make one: until then there is this one.)
        let uses = control.hints_used.load(Relaxed).wrapping_sub(self.used_before);
        if control.mapped_cold.load(Relaxed) != 0 && uses > FAR_USES {
            control.want_sync.store(1, Relaxed);
        }
        if control.hints_issued.load(Relaxed) == self.hints_before {
            self.backoff = (self.backoff * 2).min(LONGEST);
        } else {
            self.backoff = BACKOFF;
        }
        self.not_before = now + self.backoff;
        self.started_run();
        self.active = Some(now);
        request_run(control);
        Some(SETTLE)
    }
}
