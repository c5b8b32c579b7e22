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
//! Invariant: while something can be taken, the limit is used up or a worker is on its way; `busy`
//! never exceeds what the limit was when the last worker became busy. No system call that can wait
//! for storage, and no call of the sink, is made with the lock held.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use runahead_abi::Record;

use crate::PrefetchStats;
use crate::io::{Clock, Devices, Node, Reader, trouble};
use crate::limit::Limit;
use crate::queue::{Effects, Found, Job, Queue, Step, Submitted, Trouble};
use crate::sink::Sink;

/// A worker without work goes away after this.
const IDLE_LIFE: Duration = Duration::from_secs(10);
/// Paths and buffers live on the heap; the deepest call is a system call.
const STACK_BYTES: usize = 128 * 1024;

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
    fn recruit(&mut self) -> Recruit {
        let coming = self.starting + self.woken;
        if self.closing
            || coming >= self.queue.ready()
            || self.busy + coming >= self.limit.current()
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
    fn begin(&mut self) -> Option<(Job<Node>, usize)> {
        if self.busy >= self.limit.current() {
            return None;
        }
        let job = self.queue.pop()?;
        self.busy += 1;
        self.stats.peak_in_flight = self.stats.peak_in_flight.max(self.busy);
        Some((job, self.busy))
    }

    /// Counts what `fx` is going to tell, and says how much waits.
    fn count(&mut self, fx: &mut Effects<Node>) {
        for completion in &mut fx.completed {
            completion.queued = self.queue.len();
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
        drop(state);
        self.tell(&mut fx);
        dropped
    }

    pub(crate) fn queued(&self) -> usize {
        self.lock().queue.len()
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
        while let Some((job, in_flight)) = self.next_job(was) {
            self.serve(job, in_flight, &mut reader, &mut fx);
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
    fn next_job(self: &Arc<Self>, was: Was) -> Option<(Job<Node>, usize)> {
        let mut state = self.lock();
        match was {
            Was::Starting => state.starting -= 1,
            Was::Busy => state.busy -= 1,
        }
        loop {
            if state.closing {
                return None;
            }
            if let Some(job) = state.begin() {
                let recruit = state.recruit();
                drop(state);
                self.bring_in(recruit);
                return Some(job);
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
            let outcome = self.take_step(&job.step, reader);
            let mut state = self.lock();
            for sample in reader.clock.samples.drain(..) {
                state.limit.sample(sample, in_flight);
            }
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

    fn take_step(&self, step: &Step<Node>, reader: &mut Reader) -> Outcome {
        let result = match step {
            Step::Look { path, follow } => {
                let found = reader.look(path, *follow).map_err(trouble);
                let found = found.map(|(node, class)| Found { file: Arc::new(node), class });
                return Outcome::Looked(found);
            }
            Step::List { file } => reader.list(file, &self.devices),
            Step::Link { path } => reader.read_link(path),
            Step::Read { file, range } => reader.read(file, range, &self.devices),
        };
        Outcome::Done(result.map_err(trouble))
    }
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
