//! The threads that do what the queue says.
//!
//! A worker blocks in one read, like any program, and there are as many as the limit allows reads:
//! no asynchronous interface covers path walks and directory reads on all file systems, and a
//! blocked thread costs nothing but a small stack. A thread is started when there is something to
//! take, nobody idle to take it, and room below the limit; an idle one sleeps on a condition
//! variable and goes away after [`IDLE_LIFE`].
//!
//! Whoever puts something into the queue, or takes something out and leaves more behind, brings at
//! most one other worker in, who does the same: load spreads without a herd being woken.
//!
//! Only workers that seem stuck in a read make room for others beyond a few ([`ACTIVE_MAX`]): those
//! that find their answers in memory are limited by processors, and a crowd would be slower. Time
//! alone makes a worker look stuck, so somebody has to look again ([`Pool::kick`]).
//!
//! Invariant: while something can be taken, the limit is used up, or a worker is on its
//! way or will be at the next look; `busy`
//! never exceeds what the limit was when the last worker became busy. No system call that can wait
//! for storage, and no call of the sink, is made with the lock held.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use runahead_abi::{HintKind, Record};

use crate::PrefetchStats;
use crate::expand::{self, Batch, Batches, Name, Wish};
use crate::io::{Clock, Device, Devices, Node, Reader, trouble};
use crate::limit::Limit;
use crate::queue::{Effects, Found, Job, Queue, Step, Submitted, Trouble};
use crate::sink::Sink;

/// A worker without work goes away after this.
const IDLE_LIFE: Duration = Duration::from_secs(10);
/// Paths and buffers live on the heap; the deepest call is a system call.
const STACK_BYTES: usize = 128 * 1024;

/// A job that lasts longer than this waits for storage.
const STUCK: Duration = Duration::from_micros(100);
/// Workers that may be at it without being stuck: more would wait for processors, and for each
/// other, where most of what is hinted turns out to be in memory.
const ACTIVE_MAX: usize = 8;

struct State {
    queue: Queue<Node>,
    limit: Limit,
    stats: PrefetchStats,
    /// Threads that exist or are being started.
    threads: usize,
    /// Those of them that have not looked for work yet.
    starting: usize,
    /// Those that have a job.
    busy: usize,
    /// Those that sleep.
    idle: usize,
    /// Those of the sleeping that were told to wake.
    woken: usize,
    /// Names of directories that wait to be looked up.
    batches: Batches,
    /// When `settled` was taken: workers that had a job then, less those that have ended one since.
    settled_at: Instant,
    settled: usize,
    closing: bool,
}

/// What the threads share.
pub(crate) struct Pool {
    state: Mutex<State>,
    /// For idle workers.
    work: Condvar,
    /// For whoever waits for the last thread to go.
    gone: Condvar,
    sink: Arc<dyn Sink>,
    devices: Devices,
    origin: Instant,
}

/// Who is to be brought in.
enum Recruit {
    Nobody,
    Sleeper,
    NewThread,
}

impl State {
    fn ready(&self) -> usize {
        self.queue.ready() + self.batches.len()
    }

    /// Workers that are on a job for so short a time that they may well be done soon.
    fn active(&mut self) -> usize {
        let now = Instant::now();
        if now.duration_since(self.settled_at) >= STUCK {
            self.settled_at = now;
            self.settled = self.busy;
        }
        self.busy - self.settled.min(self.busy)
    }

    fn recruit(&mut self) -> Recruit {
        let coming = self.starting + self.woken;
        if self.closing
            || coming >= self.ready()
            || self.busy + coming >= self.limit.current()
            || coming + self.active() >= ACTIVE_MAX && !self.queue.is_urgent()
        {
            Recruit::Nobody
        } else if self.idle > self.woken {
            self.woken += 1;
            Recruit::Sleeper
        } else {
            self.starting += 1;
            self.threads += 1;
            Recruit::NewThread
        }
    }

    /// A job, if there is one and the limit has room for it, and how many are in flight with it.
    fn begin(&mut self) -> Option<(Work, usize)> {
        if self.busy >= self.limit.current() {
            return None;
        }
        let batch = if self.queue.is_urgent() { None } else { self.batches.pop() };
        let work = match batch {
            Some(batch) => Work::Batch(batch),
            None => Work::Job(self.queue.pop()?),
        };
        self.busy += 1;
        self.stats.peak_in_flight = self.stats.peak_in_flight.max(self.busy);
        Some((work, self.busy))
    }

    /// A worker's job is over.
    fn end(&mut self) {
        self.busy -= 1;
        self.settled = self.settled.saturating_sub(1);
    }

    /// Counts what `fx` is going to tell, and says how much waits.
    fn count(&mut self, fx: &mut Effects<Node>) {
        for completion in &mut fx.completed {
            completion.queued = self.queue.len() + self.batches.names();
            self.stats.completed += u64::from(completion.hints);
            self.stats.bytes += completion.bytes;
            self.stats.failed += u64::from(completion.failed);
        }
    }
}

impl Pool {
    pub(crate) fn new(sink: Arc<dyn Sink>, max_in_flight: usize, max_queued: usize) -> Self {
        Pool {
            state: Mutex::new(State {
                queue: Queue::new(max_queued),
                limit: Limit::new(max_in_flight),
                stats: PrefetchStats::default(),
                threads: 0,
                starting: 0,
                busy: 0,
                idle: 0,
                woken: 0,
                batches: Batches::default(),
                settled_at: Instant::now(),
                settled: 0,
                closing: false,
            }),
            work: Condvar::new(),
            gone: Condvar::new(),
            sink,
            devices: Devices::default(),
            origin: Instant::now(),
        }
    }

    /// A panic of the sink in one thread leaves the state whole: the lock is never held there.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn submit(self: &Arc<Self>, record: &Record<'_>) {
        let mut fx = Effects::default();
        let mut state = self.lock();
        let submitted = state.queue.submit(record, &mut fx);
        state.stats.submitted += 1;
        match submitted {
            Submitted::Merged => state.stats.merged += 1,
            Submitted::Duplicate => state.stats.duplicates += 1,
            Submitted::Refused => state.stats.refused += 1,
            Submitted::Queued | Submitted::Answered => {}
        }
        state.count(&mut fx);
        let recruit = state.recruit();
        drop(state);
        self.bring_in(recruit);
        self.tell(&mut fx);
    }

    pub(crate) fn drop_queued_before(&self, run: u32) -> usize {
        let mut fx = Effects::default();
        let mut state = self.lock();
        let dropped = state.queue.drop_stale(Some(run), &mut fx);
        state.stats.dropped += dropped as u64;
        let batches = state.batches.drop_stale(Some(run));
        drop(state);
        self.tell(&mut fx);
        expand::forget(&batches, &*self.sink);
        dropped
    }

    pub(crate) fn queued(&self) -> usize {
        let state = self.lock();
        state.queue.len() + state.batches.names()
    }

    pub(crate) fn kick(self: &Arc<Self>) -> bool {
        loop {
            let mut state = self.lock();
            let recruit = state.recruit();
            let waits = state.ready() > 0;
            drop(state);
            if let Recruit::Nobody = recruit {
                return waits;
            }
            self.bring_in(recruit);
        }
    }

    pub(crate) fn stats(&self) -> PrefetchStats {
        let state = self.lock();
        PrefetchStats {
            queued: state.queue.len(),
            in_flight: state.busy,
            limit: state.limit.current(),
            threads: state.threads,
            ..state.stats
        }
    }

    /// Drops what waits, tells the workers to go, and waits up to `grace` until they have gone.
    /// Returns how many have not.
    pub(crate) fn shut(&self, grace: Duration) -> usize {
        let mut fx = Effects::default();
        let mut state = self.lock();
        state.closing = true;
        let dropped = state.queue.drop_stale(None, &mut fx);
        state.stats.dropped += dropped as u64;
        drop(state.batches.drop_stale(None));
        drop(state);
        self.work.notify_all();
        self.tell(&mut fx);
        let still_there = |state: &mut State| state.threads > 0;
        let wait = self.gone.wait_timeout_while(self.lock(), grace, still_there);
        wait.unwrap_or_else(PoisonError::into_inner).0.threads
    }

    fn bring_in(self: &Arc<Self>, recruit: Recruit) {
        match recruit {
            Recruit::Nobody => {}
            Recruit::Sleeper => self.work.notify_one(),
            Recruit::NewThread => {
                let pool = self.clone();
                let thread = thread::Builder::new()
                    .name("prefetch".into())
                    .stack_size(STACK_BYTES)
                    .spawn(move || pool.work());
                if thread.is_err() {
                    // No more threads to be had: those there are do the work, or, when there is
                    // none, the next hint tries again.
                    let mut state = self.lock();
                    state.starting -= 1;
                    state.threads -= 1;
                }
            }
        }
    }

    fn tell(&self, fx: &mut Effects<Node>) {
        fx.done.drain(..).for_each(|key| self.sink.done(key));
        fx.forget.drain(..).for_each(|(key, before)| self.sink.forget(key, before));
        fx.completed.drain(..).for_each(|completion| self.sink.completed(&completion));
        fx.files.clear();
    }

    /// A worker's life.
    fn work(self: Arc<Self>) {
        let mut reader = Reader::new(Clock::new(self.origin));
        let mut fx = Effects::default();
        let mut was = Was::Starting;
        while let Some((work, in_flight)) = self.next_job(was) {
            match work {
                Work::Job(job) => self.serve(job, in_flight, &mut reader, &mut fx),
                Work::Batch(batch) => self.look_at_all(&batch, in_flight, &mut reader),
            }
            was = Was::Busy;
        }
        let mut state = self.lock();
        state.threads -= 1;
        if state.threads == 0 {
            self.gone.notify_all();
        }
    }

    /// Waits for something to do. `None` when the worker shall go. A worker is busy until it asks,
    /// calls of the sink included, so that it takes the next job itself.
    fn next_job(self: &Arc<Self>, was: Was) -> Option<(Work, usize)> {
        let mut state = self.lock();
        match was {
            Was::Starting => state.starting -= 1,
            Was::Busy => state.end(),
        }
        loop {
            if state.closing {
                return None;
            }
            if let Some(work) = state.begin() {
                let recruit = state.recruit();
                drop(state);
                self.bring_in(recruit);
                return Some(work);
            }
            state.idle += 1;
            let wait = self
                .work
                .wait_timeout_while(state, IDLE_LIFE, |state| state.woken == 0 && !state.closing);
            let timeout;
            (state, timeout) = wait.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            if timeout.timed_out() {
                return None;
            }
            state.woken = state.woken.saturating_sub(1);
        }
    }

    /// Does a job, and what follows from it for the same path.
    fn serve(
        self: &Arc<Self>,
        job: Job<Node>,
        mut in_flight: usize,
        reader: &mut Reader,
        fx: &mut Effects<Node>,
    ) {
        let mut next = Some(job);
        while let Some(job) = next {
            let mut names = Vec::new();
            let outcome = self.take_step(&job.step, reader, &mut names);
            if let (Step::List { wish: Some(wish), file }, false) = (&job.step, names.is_empty()) {
                self.expand(wish, names, self.is_remote(file));
            }
            let remote = match &outcome {
                Outcome::Looked(Ok(found)) => Some(self.is_remote(&found.file)),
                _ => None,
            };
            let mut state = self.lock();
            if let Some(remote) = remote {
                state.queue.set_take_turns(!remote);
            }
            for sample in reader.clock.samples.drain(..) {
                state.limit.sample(sample, in_flight);
            }
            let narrow = state.limit.is_narrow();
            state.queue.set_lookups_first(narrow);
            match &job.step {
                Step::Look { .. } => state.stats.lookups += 1,
                Step::List { .. } => state.stats.listings += 1,
                Step::Link { .. } => state.stats.links += 1,
                Step::Read { .. } => state.stats.reads += 1,
            }
            next = match outcome {
                Outcome::Looked(result) => state.queue.looked(job, result, fx),
                Outcome::Done(result) => {
                    state.queue.finish(job, result, fx);
                    None
                }
            };
            in_flight = state.busy;
            state.count(fx);
            let recruit = state.recruit();
            drop(state);
            self.bring_in(recruit);
            self.tell(fx);
        }
    }

    /// Goes on with what a directory named.
    fn expand(self: &Arc<Self>, wish: &Wish, names: Vec<Name>, remote: bool) {
        for (header, path) in wish.listings(&names, &*self.sink) {
            let record = Record { kind: HintKind::Listing, header, path: &path };
            self.submit(&record);
        }
        let batches = wish.batches(names, remote, &*self.sink);
        let mut state = self.lock();
        let refused = state.batches.add(batches);
        let recruit = state.recruit();
        drop(state);
        self.bring_in(recruit);
        expand::forget(&refused, &*self.sink);
    }

    fn is_remote(&self, node: &Node) -> bool {
        self.devices.device(node) == Ok(Device::Remote)
    }

    /// Looks up a batch of names.
    fn look_at_all(self: &Arc<Self>, batch: &Batch, in_flight: usize, reader: &mut Reader) {
        reader.look_at_all(batch, |name| batch.keys(name).for_each(|key| self.sink.done(key)));
        let mut state = self.lock();
        for sample in reader.clock.samples.drain(..) {
            state.limit.sample(sample, in_flight);
        }
        state.stats.lookups += batch.names().len() as u64;
        let queued = state.queue.len() + state.batches.names();
        drop(state);
        self.sink.completed(&batch.completion(queued));
    }

    fn take_step(&self, step: &Step<Node>, reader: &mut Reader, names: &mut Vec<Name>) -> Outcome {
        let result = match step {
            Step::Look { path, follow } => {
                let found = reader.look(path, *follow).map_err(trouble);
                let found = found.map(|(node, class)| Found { file: Arc::new(node), class });
                return Outcome::Looked(found);
            }
            Step::List { file, wish } => {
                reader.list(file, &self.devices, wish.is_some().then_some(names))
            }
            Step::Link { path } => reader.read_link(path),
            Step::Read { file, range } => reader.read(file, range, &self.devices),
        };
        Outcome::Done(result.map_err(trouble))
    }
}

/// What a worker can be given to do.
enum Work {
    Job(Job<Node>),
    Batch(Batch),
}

/// What a worker that asks for a job was counted as until then.
#[derive(Clone, Copy)]
enum Was {
    Starting,
    Busy,
}

enum Outcome {
    Looked(Result<Found<Node>, Trouble>),
    Done(Result<u64, Trouble>),
}
