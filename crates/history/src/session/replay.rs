//! Hands a recorded run to the prefetcher, in its order.
//!
//! A thread of its own goes through the record, ahead of the command's position ([`Follower`]). It
//! is at most [`WINDOW`] accesses ahead (fewer until the record proves right), and the bytes that
//! memory allows ([`runahead_admission::memory_budget`]). It starts before the command has been
//! executed. Accesses that the command has made already are left out. A program does not report
//! while it uses mapped memory, so used ranges of mappings count in bytes alone.
//!
//! A file's data is requested when its path has been looked up and its attributes are those of the
//! record. A file that has changed is read if all of it had been read, and it was small; otherwise
//! it is only looked up. If the attributes are not cached (a server must be asked again), it is
//! read all the same.
//!
//! An automatic replay begins with a few *samples* of the record, and continues by *steps* that
//! grow. If hardly anything of a step and a few samples of what follows had to come from storage,
//! the replay pauses until a process waits again: it would gain nothing.
//!
//! Invariants: the thread never waits for storage except for the record itself. Every request is a
//! hint like any other, so that it only reads. When the replay is given up, queued requests are
//! cancelled and no more are made.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::{AccessKind, Run};
use runahead_abi::hint_record::{Header, LENGTH_UNKNOWN};
use runahead_abi::{HintKind, Record};
use runahead_admission::memory_budget;
use runahead_admission::slow_devices::DeviceWaits;
use runahead_estimators::{Identity, Ticks};
use runahead_prefetch::{Client, Completion, EXTEND_MAX_BYTES, Prefetcher, Sink};

use super::mutex_locking::lock;
use super::replay_listener::Event;
use super::replayed_run::ReplayedRun;
use super::session_history::History;
use super::unchanged_files;

/// Accesses that a replay may be ahead of the command.
const WINDOW: usize = 4096;
/// Accesses that a replay may be ahead at first where the record is of another command line. It
/// grows by one with each access that is found in the record: programs begin much alike.
const WINDOW_ON_TRIAL: usize = 64;
/// Number of accesses that are tried first: this many from the beginning, and as many spread over
/// the record.
const SAMPLES: usize = 16;
/// Most accesses that wait for a worker or for the lookup of their path. The prefetcher queues some
/// more.
const WAITING_MAX: usize = 1 << 14;
/// Interval of polling for a wait while paused. A wait of a process that reports is known sooner.
const PAUSE_POLL: Duration = Duration::from_secs(1);
/// Accesses in the first step.
const STEP_ACCESSES: u64 = 256;
/// Divisor: one access in this many must come from storage, since dozens of names share a block.
const COLD_SHARE: u64 = 128;
/// Intervals of polling: while requests are queued in the prefetcher, and when none are.
const POLL_INTERVALS: (Duration, Duration) =
    (Duration::from_micros(300), Duration::from_millis(50));
/// First key of the replay's paths; keys that the prefetcher derives from one are unlikely to be
/// another path's.
const FIRST_KEY: u64 = 1 << 40;
const STACK_BYTES: usize = 256 * 1024;

/// Sink for completions of the prefetcher.
struct ReplaySink {
    sender: Sender<Event>,
    places: u64,
}

impl ReplaySink {
    fn place(&self, key: Identity) -> Option<u32> {
        let number = key.raw().checked_sub(FIRST_KEY)?;
        (number < self.places).then_some(number as u32)
    }
}

impl Sink for ReplaySink {
    fn done(&self, key: Identity) {
        self.place(key).into_iter().for_each(|place| _ = self.sender.send(Event::LookedUp(place)));
    }

    fn forget(&self, key: Identity, _: u32) {
        self.place(key).into_iter().for_each(|place| _ = self.sender.send(Event::Refused(place)));
    }

    fn expect(&self, _: Identity, _: u32) -> bool {
        false
    }

    fn completed(&self, _: &Completion) {}
}

/// Result of examining a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathCheck {
    Not,
    UnderWay,
    Same,
    /// The file has changed, and all of the old one was read.
    Whole,
    Other,
}

/// Step of a replay.
struct Step {
    /// Accesses that may be requested in the step; `None`: any number.
    length: Option<u64>,
    /// Accesses that had been requested when it began, and requests that the prefetcher had made.
    asked: u64,
    requests: u64,
    /// Time of the latest wait (`DeviceWaits::latest`) when the replay paused, if it has; a later
    /// wait continues it.
    paused_after: Option<Ticks>,
    /// True if the step is over and gained nothing, and samples of what follows have been
    /// requested.
    sampled: bool,
}

impl Step {
    /// Makes a step of `length` accesses, with the counts at its beginning.
    fn of(length: Option<u64>, asked: u64, requests: u64) -> Self {
        Step { length, asked, requests, paused_after: None, sampled: false }
    }
}

struct Replay {
    history: Arc<History>,
    run: Arc<Run>,
    client: Client,
    checks: Vec<PathCheck>,
    /// Accesses that wait for the lookup of their path.
    waiting: HashMap<u32, Vec<usize>>,
    /// Number of these.
    waiting_count: usize,
    next: usize,
    step: Step,
    /// Bytes of data in the record, by path.
    bytes_of: Vec<u64>,
    /// Bytes of all accesses before each.
    bytes_before: Vec<u64>,
    /// Number of accesses before each that the command reports.
    told_before: Vec<u32>,
    budget: u64,
}

/// Starts the thread. If that fails, nothing is replayed.
fn start(
    history: Arc<History>,
    prefetcher: Arc<Prefetcher>,
    waits: Arc<DeviceWaits>,
    block_signals: fn(),
) {
    let work = move || {
        block_signals();
        history.plan.expect(&prefetcher);
        if !history.load_record() {
            return;
        }
        let Some(followed) = history.followed.get() else { return };
        let Some(events) = lock(&followed.listener.receiver).take() else { return };
        let sender = followed.listener.sender.clone();
        let places = followed.run.paths.len() as u64;
        let client = prefetcher.client(Arc::new(ReplaySink { sender, places }));
        let replay = Replay::new(history.clone(), followed.run.clone(), client);
        merge_beside(&history);
        replay.run_loop(&prefetcher, &events, &waits);
    };
    let thread = std::thread::Builder::new().name("replay".into()).stack_size(STACK_BYTES);
    let _ = thread.spawn(work);
}

/// Merges earlier runs into the records in a thread of the lowest priority. If the command ends
/// before that is done, the next run of the program does it.
fn merge_beside(history: &Arc<History>) {
    /// Lowest priority (nice(2)).
    const LOWEST: i32 = 19;
    let plan = history.plan.clone();
    let work = move || {
        let _ = rustix::process::nice(LOWEST);
        plan.merge_logs();
    };
    let _ = std::thread::Builder::new().name("merge".into()).spawn(work);
}

impl History {
    /// Starts a thread that replays, if there is something to replay. The command must have been
    /// forked; `block_signals` keeps its signals away from the thread.
    pub fn start(
        self: &Arc<Self>,
        prefetcher: &Arc<Prefetcher>,
        waits: &Arc<DeviceWaits>,
        block_signals: fn(),
    ) {
        start(self.clone(), prefetcher.clone(), waits.clone(), block_signals);
    }
}

impl Replay {
    fn new(history: Arc<History>, run: Arc<Run>, client: Client) -> Self {
        let mut sum = 0u64;
        let before = run.accesses.iter().map(|access| {
            let before = sum;
            sum += access.kind.bytes();
            before
        });
        let mut told = 0;
        let told_before = run.accesses.iter().map(|access| {
            let before = told;
            told += u32::from(access.kind.is_reported());
            before
        });
        let mut bytes_of = vec![0; run.paths.len()];
        run.accesses.iter().for_each(|a| bytes_of[a.path as usize] += a.kind.bytes());
        Replay {
            bytes_of,
            bytes_before: before.collect(),
            told_before: told_before.collect(),
            checks: vec![PathCheck::Not; run.paths.len()],
            waiting: HashMap::new(),
            waiting_count: 0,
            next: 0,
            step: Step::of(None, 0, 0),
            budget: memory_budget::bytes(),
            history,
            run,
            client,
        }
    }

    fn run_loop(mut self, prefetcher: &Prefetcher, events: &Receiver<Event>, waits: &DeviceWaits) {
        let history = self.history.clone();
        let Some(followed) = history.followed.get() else { return };
        if history.plan.starts_at_first_stall() {
            self.step.length = Some(STEP_ACCESSES);
            if waits.latest() == Ticks(0) {
                self.step.paused_after = Some(Ticks(0));
                self.samples(0)
                    .into_iter()
                    .for_each(|number| self.request_or_defer(followed, number));
            }
        }
        self.request_window(followed);
        loop {
            let idle = !prefetcher.kick();
            let nap = match self.step.paused_after {
                Some(_) if idle && prefetcher.stats().in_flight == 0 => PAUSE_POLL,
                _ if idle => POLL_INTERVALS.1,
                _ => POLL_INTERVALS.0,
            };
            let mut event = match events.recv_timeout(nap) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => {
                    // A request in flight after so long is not worth an entry in every log.
                    if idle {
                        followed.arrived.store(self.next, Relaxed);
                    }
                    None
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Some(now) = event {
                match now {
                    Event::Moved => {}
                    Event::LookedUp(place) => self.path_looked_up(followed, place),
                    Event::Refused(place) => self.path_refused(place),
                    Event::GiveUp => return self.give_up(followed),
                }
                event = events.try_recv().ok();
            }
            // Nothing is read ahead on a device that serves one request at a time.
            if history.plan.starts_at_first_stall() && prefetcher.stats().sole {
                return self.give_up(followed);
            }
            self.take_step(followed, prefetcher, waits);
            self.request_window(followed);
        }
    }

    /// Starts the next step, if this one is over and gained something.
    fn take_step(&mut self, followed: &ReplayedRun, prefetcher: &Prefetcher, waits: &DeviceWaits) {
        let asked = followed.listener.asked.load(Relaxed);
        if let Some(then) = self.step.paused_after {
            if waits.latest() > then {
                self.step = Step::of(Some(STEP_ACCESSES), asked, prefetcher.stats().requests);
            }
            return;
        }
        let Some(length) = self.step.length else { return };
        if asked - self.step.asked < length {
            return;
        }
        let now = prefetcher.stats();
        let made = now.requests - self.step.requests;
        if self.step.sampled && made > 0 {
            self.step = Step::of(Some(STEP_ACCESSES), asked, now.requests);
        } else if made * COLD_SHARE >= length {
            let length = Some(2 * length).filter(|&length| length < WINDOW as u64);
            self.step = Step::of(length, asked, now.requests);
        } else if self.client.queued() == 0 && now.in_flight == 0 {
            if self.step.sampled {
                self.step.paused_after = Some(waits.latest());
            } else {
                self.step.sampled = true;
                self.step.requests = now.requests;
                self.samples(self.next)
                    .into_iter()
                    .for_each(|n| self.request_or_defer(followed, n));
            }
        }
    }

    fn has_room(&self, followed: &ReplayedRun) -> bool {
        let asked = followed.listener.asked.load(Relaxed);
        let Step { length, asked: before, paused_after: calm, .. } = self.step;
        calm.is_none() && length.is_none_or(|length| asked - before < length)
    }

    /// Samples of the accesses from number `first` on, which show whether the record's files are
    /// cached.
    fn samples(&self, first: usize) -> Vec<usize> {
        let all = self.run.accesses.len().saturating_sub(first);
        let spread = (0..SAMPLES).map(|n| all * (2 * n + 1) / (2 * SAMPLES));
        let mut samples: Vec<usize> = (0..SAMPLES.min(all)).chain(spread).collect();
        samples.sort_unstable();
        samples.dedup();
        samples.retain(|&number| number < all);
        samples.iter_mut().for_each(|number| *number += first);
        samples
    }

    /// Number of the access after the window, while the command is at `place`.
    fn end_of_window(&self, is_own: bool, place: usize, matched: u64) -> usize {
        if !is_own {
            return place + WINDOW.min(WINDOW_ON_TRIAL + matched as usize);
        }
        let Some(told) = self.told_before.get(place) else { return place };
        let most = told.saturating_add(WINDOW as u32);
        self.told_before.partition_point(|&told| told < most)
    }

    /// Requests all accesses that the window allows.
    fn request_window(&mut self, followed: &ReplayedRun) {
        let (place, matched) = {
            let follower = lock(&followed.follower);
            (follower.place(), follower.matched())
        };
        let end = self.end_of_window(followed.is_own, place, matched);
        self.next = self.next.max(place);
        let first = self.bytes_before.get(place).copied().unwrap_or(0);
        let waiting = self.client.queued() + self.waiting_count;
        let room = self.next.saturating_add(WAITING_MAX.saturating_sub(waiting));
        let end = end.min(self.run.accesses.len()).min(room);
        while self.next < end && self.has_room(followed) {
            let ahead = self.bytes_before[self.next] - first;
            if ahead > self.budget {
                break;
            }
            self.request_or_defer(followed, self.next);
            self.next += 1;
            followed.requested.store(self.next, Relaxed);
        }
    }

    /// Requests an access, or defers it until its path has been looked up.
    fn request_or_defer(&mut self, followed: &ReplayedRun, number: usize) {
        let access = self.run.accesses[number];
        if lock(&followed.follower).is_passed(number) {
            return;
        }
        if access.kind.range().is_some() && self.run.path_of(&access).attributes.is_some() {
            match self.checks[access.path as usize] {
                PathCheck::Same | PathCheck::Whole => {}
                PathCheck::Other => return,
                look => {
                    self.waiting.entry(access.path).or_default().push(number);
                    self.waiting_count += 1;
                    if look == PathCheck::Not {
                        self.submit(number, AccessKind::Lookup);
                    }
                    return;
                }
            }
        }
        self.request(followed, number);
    }

    fn request(&mut self, followed: &ReplayedRun, number: usize) {
        lock(&followed.follower).has_sent(number);
        self.history.expect_everywhere(followed, number);
        followed.listener.asked.fetch_add(1, Relaxed);
        self.submit(number, self.run.accesses[number].kind);
    }

    fn submit(&mut self, number: usize, what: AccessKind) {
        let access = self.run.accesses[number];
        let look = &mut self.checks[access.path as usize];
        if what == AccessKind::Lookup && *look == PathCheck::Not {
            *look = PathCheck::UnderWay;
        }
        let (kind, mut flags) = what.hint();
        if kind == HintKind::Data && *look == PathCheck::Whole {
            flags |= LENGTH_UNKNOWN;
        }
        let (offset, length) = what.range().unwrap_or_default();
        let path = &self.run.path_of(&access).path[..];
        let header = Header {
            kind: kind as u32,
            run: 0,
            position: number as u64,
            key: FIRST_KEY + u64::from(access.path),
            offset,
            length,
            flags,
            path_len: path.len() as u32,
        };
        self.client.submit(&Record { kind, header, path });
    }

    fn path_looked_up(&mut self, followed: &ReplayedRun, place: u32) {
        let look = &mut self.checks[place as usize];
        if !matches!(look, PathCheck::Not | PathCheck::UnderWay) {
            return;
        }
        let place_of = &self.run.paths[place as usize];
        let bytes = self.bytes_of[place as usize];
        let known = place_of.attributes.as_ref().filter(|_| bytes > 0);
        let same = known
            .is_none_or(|known| unchanged_files::is_same(&place_of.path, known) != Some(false));
        let whole = known.is_some_and(|known| bytes >= known.size && bytes <= EXTEND_MAX_BYTES);
        *look = match (same, whole) {
            (true, _) => PathCheck::Same,
            (false, true) => PathCheck::Whole,
            (false, false) => PathCheck::Other,
        };
        let other = *look == PathCheck::Other;
        let waiting = self.waiting.remove(&place).unwrap_or_default();
        self.waiting_count -= waiting.len();
        if !same {
            followed.listener.changed.fetch_add(1, Relaxed);
            lock(&followed.follower).has_changed(place);
        }
        if other {
            return;
        }
        for number in waiting {
            if !lock(&followed.follower).is_passed(number) {
                self.request(followed, number);
            }
        }
    }

    /// Drops the accesses of a path whose lookup was dropped, since the queue is full: they are
    /// left to the command.
    fn path_refused(&mut self, place: u32) {
        self.checks[place as usize] = PathCheck::Not;
        self.waiting_count -= self.waiting.remove(&place).map_or(0, |waiting| waiting.len());
    }

    fn give_up(self, followed: &ReplayedRun) {
        self.client.drop_queued_before(u32::MAX);
        let pending: Vec<usize> = {
            let follower = lock(&followed.follower);
            (0..self.next).filter(|&number| follower.is_pending(number)).collect()
        };
        pending.iter().for_each(|&number| self.history.forget_everywhere(followed, number));
    }
}
