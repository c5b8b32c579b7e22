//! Takes hints to the prefetcher, and runs shadows again when what they lacked has arrived.
//!
//! A shadow that met a directory, a name or attributes that were not in memory went on with a
//! guess, and could not see what depends on the answer. Once such *steering* hints have been read,
//! running again from the same point gets further: the depth of dependencies, not their number,
//! bounds the stalls. A run is repeated when it has ended and either all that it lacked has
//! arrived or some of it arrived [`SETTLE`] ago; runs that find nothing new become rarer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use runahead_abi::record::{MAX_RECORD, STEERS};
use runahead_abi::{Record, RunEnd};
use runahead_prefetch::Client;

use crate::budget;
use crate::members::Common;
use crate::memory::Mapping;
use crate::progress::Progress;
use crate::rights::Watch;
use crate::wake::{request_run, sleep_until_rung, supersede};

/// How long after a first arrival the rest is waited for.
const SETTLE: Duration = Duration::from_micros(1500);
/// Pause between runs that found nothing new, first and longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(64));
/// A run is repeated from its old start while the target has made at most this many accesses since.
const NEAR: u64 = 128;

/// A shadow from which nothing comes for this long is let go: it holds memory.
const IDLE: Duration = Duration::from_secs(2);
/// And so is one that has run, and has nothing to wait for: whoever removes a file that it has open
/// hears late that it is gone (inotify(7)).
const SPENT: Duration = Duration::from_millis(200);
/// Between two looks at rings that keep filling: waking for every record costs more than reading it.
const NAP: Duration = Duration::from_micros(150);
/// Bytes of records that are taken out at a time: a writer may be faster than we are.
const BATCH_BYTES: usize = 1 << 20;

/// The state of the one thread that runs [`Dispatcher::run`], for one process.
pub struct Dispatcher {
    shared: Arc<Mapping>,
    common: Arc<Common>,
    client: Client,
    progress: Arc<Progress>,
    stop: Arc<AtomicBool>,
    process: Pid,
    rights: Watch,
    /// It is not to have anything read any more.
    revoked: bool,
    /// The newest sync that was seen.
    sync: u32,
    /// Steering hints handed to the prefetcher, and those of them that had arrived when the
    /// newest run started.
    submitted: u64,
    arrived_before: u64,
    first_arrival: Option<Instant>,
    hints_before: u64,
    used_before: u64,
    backoff: Duration,
    not_before: Instant,
    /// When something last came of the shadow; `None` when there is none.
    active: Option<Instant>,
}

impl Dispatcher {
    /// For a process that shares `shared`.
    pub fn new(
        shared: Arc<Mapping>,
        common: Arc<Common>,
        stop: Arc<AtomicBool>,
        process: Pid,
        rights: Watch,
    ) -> Self {
        let progress = Arc::new(Progress::new(shared.clone()));
        Dispatcher {
            shared,
            client: common.prefetcher.client(progress.clone()),
            common,
            progress,
            stop,
            process,
            rights,
            revoked: false,
            sync: 0,
            submitted: 0,
            arrived_before: 0,
            first_arrival: None,
            hints_before: 0,
            used_before: 0,
            backoff: BACKOFF.0,
            not_before: Instant::now(),
            active: None,
        }
    }

    /// Until `stop` is set and the bell rung.
    pub fn run(mut self) {
        let shared = self.shared.clone();
        let control = &shared.control;
        while !self.stop.load(Acquire) {
            let bell = control.doorbell.load(SeqCst);
            self.common.waits.hear_of(control);
            self.follow_target();
            let busy = self.drain();
            self.publish();
            let timeout = self.run_again();
            if busy || self.common.prefetcher.kick() {
                std::thread::sleep(NAP);
                continue;
            }
            let timeout = self.let_go_if_idle(timeout);
            sleep_until_rung(control, bell, timeout);
        }
        supersede(control);
    }

    /// Lets go of a shadow that does nothing; how long to sleep at most, `timeout` if that is less.
    fn let_go_if_idle(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let active = self.active?;
        let idle = active.elapsed();
        if let Some(rest) = self.patience().checked_sub(idle) {
            return Some(timeout.map_or(rest, |t| t.min(rest)));
        }
        supersede(&self.shared.control);
        self.active = None;
        timeout
    }

    fn patience(&self) -> Duration {
        let run = self.shared.control.run_request.load(Relaxed);
        let status = self.shared.run(run);
        let end = RunEnd::from_raw(status.end.load(Relaxed));
        let has_run =
            status.run.load(Relaxed) == run && !matches!(end, RunEnd::Running | RunEnd::Paused);
        let is_spent = has_run && self.progress.steers() >= self.submitted;
        if is_spent && !self.common.keep_shadows { SPENT } else { IDLE }
    }

    /// Hands every waiting record to the prefetcher; false if there was none.
    fn drain(&mut self) -> bool {
        let mut buf = [0u8; MAX_RECORD];
        let mut batch: Vec<u8> = Vec::new();
        let mut ends = Vec::new();
        for ring in &self.shared.rings {
            while batch.len() < BATCH_BYTES
                && let Some(record) = ring.pop(&mut buf)
            {
                batch.extend_from_slice(record.header.as_bytes());
                batch.extend_from_slice(record.path);
                ends.push(batch.len());
            }
        }
        let any = !ends.is_empty();
        // They have been taken out: whoever wrote them had at most the rights that it had then.
        if !any || !self.may_ask() {
            return any;
        }
        let mut rest = &batch[..];
        let mut start = 0;
        for end in ends {
            let (bytes, others) = rest.split_at(end - start);
            (rest, start) = (others, end);
            if let Ok(record) = Record::parse(bytes) {
                self.submitted += u64::from(record.header.flags & STEERS != 0);
                self.client.submit(&record);
            }
        }
        if any && self.active.is_some() {
            self.active = Some(Instant::now());
        }
        any
    }

    /// The process may still read all that we may, and has not given up. If not, that is final.
    fn may_ask(&mut self) -> bool {
        if self.revoked {
            return false;
        }
        let stopped = self.shared.control.stopped.load(Relaxed) != 0;
        let (same, ended) = match self.rights.compare() {
            Ok(same) => (same, false),
            Err(error) => (false, error.kind() == std::io::ErrorKind::NotFound),
        };
        if !same && !ended && !stopped {
            self.common
                .losses
                .count("a process has other rights than runahead: its hints were ignored");
        }
        self.revoked = stopped || !same;
        if self.revoked {
            self.client.drop_queued_before(u32::MAX);
        }
        !self.revoked
    }

    /// A new sync: what the shadows before it hinted and nobody has started to read is dropped.
    fn follow_target(&mut self) {
        let shared = self.shared.clone();
        let control = &shared.control;
        let sync = control.sync.load(Acquire);
        if sync == self.sync {
            return;
        }
        self.sync = sync;
        if !budget::allows_shadows(self.process.as_raw() as u32) {
            if control.horizon.swap(0, Relaxed) != 0 {
                self.common
                    .losses
                    .count("a process ran without shadows: its control group lacks memory");
            }
            supersede(control);
            return;
        }
        let run = control.run_request.load(Relaxed);
        // A shadow whose hints were being used was cut off, not astray: they stay.
        let used = control.hints_used.load(Relaxed);
        if used == self.used_before {
            self.client.drop_queued_before(run);
        }
        self.used_before = used;
        self.active = Some(Instant::now());
        self.started_run();
        self.backoff = BACKOFF.0;
        self.not_before = Instant::now();
    }

    fn started_run(&mut self) {
        self.arrived_before = self.progress.steers();
        self.first_arrival = None;
        self.hints_before = self.shared.control.hints_issued.load(Relaxed);
    }

    fn publish(&self) {
        let control = &self.shared.control;
        control.queued.store(self.client.queued() as u32, Relaxed);
        let (issued, used) = (control.hints_issued.load(Relaxed), control.hints_used.load(Relaxed));
        // Hints are taken to be of one size: this guards memory, to which that is near enough.
        let unused = issued.saturating_sub(used) as u128;
        let bytes = u128::from(self.common.prefetcher.stats().bytes);
        control.bytes_ahead.store((bytes * unused / u128::from(issued.max(1))) as u64, Relaxed);
    }

    /// Starts another run if that is worth while now; otherwise, how long to sleep at most.
    fn run_again(&mut self) -> Option<Duration> {
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
        if control.hints_issued.load(Relaxed) == self.hints_before {
            self.backoff = (self.backoff * 2).min(BACKOFF.1);
        } else {
            self.backoff = BACKOFF.0;
        }
        self.not_before = now + self.backoff;
        self.started_run();
        self.active = Some(now);
        request_run(control);
        Some(SETTLE)
    }
}
