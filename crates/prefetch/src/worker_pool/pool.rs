//! The state that workers share, and the calls of clients.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use runahead_abi::Record;
use runahead_abi::hint_record::OF_MEMORY;
use runahead_abi::swapped_memory::SCALE;
use runahead_predict::{ClientId, Effects, Inspector, Sink, Submitted};

use super::notifications::{Notifications, PoolClient};
use crate::device_number::Home;
use crate::horizon::Pace;
use crate::io::{Devices, Node, SeekLine, SeekTurn};
use crate::prefetch_options::Options;
use crate::prefetch_stats::PrefetchStats;
use crate::request_queue::{Job, Step};
use crate::scheduler::{Scheduler, Ticket};

/// A worker without work goes away after this.
pub(super) const IDLE_LIFE: Duration = Duration::from_secs(10);
/// Paths and buffers live on the heap; the deepest call is a system call.
pub(super) const STACK_BYTES: usize = 128 * 1024;

/// A job that lasts longer than this waits for storage.
pub(super) const STUCK: Duration = Duration::from_micros(100);
/// Workers that may be at it without being stuck: more would wait for processors, and for each
/// other, where most of what is hinted turns out to be in memory.
pub(super) const ACTIVE_MAX: usize = 8;

pub(super) struct State {
    pub(super) sched: Scheduler<Node>,
    /// Clients that are not gone.
    pub(super) clients: HashMap<ClientId, Arc<PoolClient>>,
    pub(super) stats: PrefetchStats,
    /// Threads that exist or are being started.
    pub(super) threads: usize,
    /// Threads that there may be.
    pub(super) most: usize,
    /// Threads that have not looked for work yet.
    pub(super) starting: usize,
    /// Threads that have a job.
    pub(super) busy: usize,
    /// Threads that sleep.
    pub(super) idle: usize,
    /// Sleeping threads that were told to wake.
    pub(super) woken: usize,
    /// When `settled` was taken: workers that had a job then, less those that have ended one since.
    pub(super) settled_at: Instant,
    pub(super) settled: usize,
    /// Order of the reads on devices whose heads move.
    pub(super) lines: HashMap<Home, SeekLine>,
    pub(super) closing: bool,
}

/// State that the threads share.
pub(crate) struct Pool {
    pub(super) state: Mutex<State>,
    /// Wakes idle workers.
    pub(super) work: Condvar,
    /// Wakes the thread that waits for the last worker to end.
    pub(super) gone: Condvar,
    pub(super) devices: Devices,
    pub(super) inspector: Inspector,
    /// Callback of [`crate::Prefetcher::new`].
    pub(super) waited: Box<WaitCallback>,
    pub(super) origin: Instant,
}

type WaitCallback = dyn Fn(u64, Duration) + Send + Sync;

/// Work of a worker.
pub(super) struct AssignedJob {
    pub(super) job: Job<Node>,
    pub(super) ticket: Ticket,
    /// When the job may begin, where that matters.
    pub(super) turn: Option<SeekTurn>,
}

/// Thread that is brought in to work.
pub(super) enum Recruit {
    Nobody,
    Sleeper,
    NewThread,
}

impl State {
    /// Workers that are on a job for so short a time that they may well be done soon.
    pub(super) fn active(&mut self) -> usize {
        let now = Instant::now();
        if now.duration_since(self.settled_at) >= STUCK {
            self.settled_at = now;
            self.settled = self.busy;
        }
        self.busy - self.settled.min(self.busy)
    }

    pub(super) fn recruit(&mut self) -> Recruit {
        let coming = self.starting + self.woken;
        if self.closing
            || coming >= self.sched.startable()
            || coming + self.active() >= ACTIVE_MAX && !self.sched.is_urgent()
        {
            Recruit::Nobody
        } else if self.idle > self.woken {
            self.woken += 1;
            Recruit::Sleeper
        } else if self.threads < self.most {
            self.starting += 1;
            self.threads += 1;
            Recruit::NewThread
        } else {
            Recruit::Nobody
        }
    }

    /// A job, if there is one and its device has room for it.
    pub(super) fn begin(&mut self) -> Option<AssignedJob> {
        let (job, ticket) = self.sched.begin()?;
        self.busy += 1;
        self.stats.peak_in_flight = self.stats.peak_in_flight.max(self.busy);
        let home = ticket.home();
        let is_in_line = matches!(job.step, Step::Read { .. }) && self.sched.is_narrow(home);
        let turn = is_in_line.then(|| self.lines.entry(home).or_default().take());
        Some(AssignedJob { job, ticket, turn })
    }

    /// A worker's job is over.
    pub(super) fn end(&mut self, ticket: Ticket) {
        self.sched.end(ticket);
        self.busy -= 1;
        self.settled = self.settled.saturating_sub(1);
    }

    /// Counts what is going to be told, and finds out to whom.
    pub(super) fn count(&mut self, notifications: &mut Notifications) {
        notifications.address(&self.clients);
        for (client, completion) in &mut notifications.fx.completed {
            completion.queued = self.sched.queue.len_of(*client);
            self.stats.completed += u64::from(completion.hints);
            match completion.flags & OF_MEMORY {
                0 => self.stats.bytes += completion.bytes,
                _ => self.stats.swapped_bytes += completion.bytes / SCALE,
            }
            self.stats.failed += u64::from(completion.failed);
        }
    }
}

/// A variable of the environment, which is taken to be the targets' as well.
pub(super) fn variable(name: &str) -> Vec<u8> {
    std::env::var_os(name).map(OsString::into_vec).unwrap_or_default()
}

impl Pool {
    pub(crate) fn new(options: Options, waited: Box<WaitCallback>) -> Self {
        let mut sched = Scheduler::new(options.max_in_flight, options.max_queued);
        sched.queue.allow(&options);
        Pool {
            state: Mutex::new(State {
                sched,
                clients: HashMap::new(),
                stats: PrefetchStats::default(),
                threads: 0,
                most: usize::MAX,
                starting: 0,
                busy: 0,
                idle: 0,
                woken: 0,
                settled_at: Instant::now(),
                settled: 0,
                lines: HashMap::new(),
                closing: false,
            }),
            work: Condvar::new(),
            gone: Condvar::new(),
            devices: Devices::default(),
            inspector: Inspector::new(&variable("LD_LIBRARY_PATH"), &variable("PATH")),
            waited,
            origin: Instant::now(),
        }
    }

    /// A panic of a sink in one thread leaves the state whole: the lock is never held there.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new client, whose results go to `sink`.
    pub(crate) fn open_client(&self, sink: Arc<dyn Sink>) -> Arc<PoolClient> {
        let mut state = self.lock();
        let pool_client = Arc::new(PoolClient::new(state.sched.queue.open_client(), sink.clone()));
        state.sched.queue.watch_use(pool_client.id, sink);
        state.clients.insert(pool_client.id, pool_client.clone());
        pool_client
    }

    /// Closes a client: see the drop of [`crate::Client`].
    pub(crate) fn close_client(&self, pool_client: &Arc<PoolClient>) {
        let mut notifications = Notifications::to(pool_client);
        let mut state = self.lock();
        let dropped = state.sched.close_client(pool_client.id, &mut notifications.fx);
        state.stats.dropped += dropped as u64;
        pool_client.closed.store(true, Release);
        let own = state.clients.remove(&pool_client.id);
        drop(state);
        notifications.tell();
        drop(own);
    }

    pub(crate) fn submit(self: &Arc<Self>, pool_client: &Arc<PoolClient>, record: &Record<'_>) {
        let mut notifications = Notifications::to(pool_client);
        let now = self.origin.elapsed();
        let mut state = self.lock();
        let submitted = match state.closing {
            false => state.sched.submit(pool_client.id, record, now, &mut notifications.fx),
            true => state.sched.queue.refuse(pool_client.id, record, &mut notifications.fx),
        };
        state.stats.submitted += 1;
        match submitted {
            Submitted::Merged => state.stats.merged += 1,
            Submitted::Duplicate => state.stats.duplicates += 1,
            Submitted::Refused => state.stats.refused += 1,
            Submitted::Queued | Submitted::Answered => {}
        }
        state.count(&mut notifications);
        let recruit = state.recruit();
        drop(state);
        self.bring_in(recruit);
        notifications.tell();
    }

    pub(crate) fn decline(&self, pool_client: &Arc<PoolClient>, record: &Record<'_>) {
        let mut notifications = Notifications::to(pool_client);
        let mut state = self.lock();
        state.sched.queue.refuse(pool_client.id, record, &mut notifications.fx);
        state.stats.submitted += 1;
        state.stats.dropped += 1;
        drop(state);
        notifications.tell();
    }

    pub(crate) fn drop_queued_before(&self, pool_client: &PoolClient, run: u32) -> usize {
        self.give_up(|sched, fx| {
            pool_client.stale_before.fetch_max(run, Release);
            sched.drop_stale(pool_client.id, Some(run), fx)
        })
    }

    pub(crate) fn cancel(&self, pool_client: &PoolClient, run: u32) -> usize {
        self.give_up(|sched, fx| sched.queue.cancel(pool_client.id, run, fx))
    }

    pub(super) fn give_up(
        &self,
        drop_some: impl FnOnce(&mut Scheduler<Node>, &mut Effects<Node>) -> usize,
    ) -> usize {
        let mut notifications = Notifications::default();
        let mut state = self.lock();
        let dropped = drop_some(&mut state.sched, &mut notifications.fx);
        state.stats.dropped += dropped as u64;
        state.count(&mut notifications);
        drop(state);
        notifications.tell();
        dropped
    }

    pub(crate) fn set_pace(self: &Arc<Self>, pool_client: &PoolClient, pace: Pace) {
        let mut state = self.lock();
        state.sched.set_pace(pool_client.id, pace);
        let recruit = state.recruit();
        drop(state);
        self.bring_in(recruit);
    }

    pub(crate) fn waited(self: &Arc<Self>, count: u64, time: Duration) {
        let mut state = self.lock();
        state.sched.waited(count, time);
        let recruit = state.recruit();
        drop(state);
        self.bring_in(recruit);
    }

    pub(crate) fn waiters(&self, count: u32) {
        self.lock().sched.waiters(count);
    }

    pub(crate) fn contended(&self, part: f64) {
        self.lock().sched.contended(part);
    }

    pub(crate) fn reached(self: &Arc<Self>, pool_client: &PoolClient, position: u64) {
        let mut state = self.lock();
        state.sched.reached(pool_client.id, position);
        let recruit = state.recruit();
        drop(state);
        self.bring_in(recruit);
    }

    pub(crate) fn queued(&self) -> usize {
        self.lock().sched.queue.len()
    }

    pub(crate) fn queued_of(&self, pool_client: &PoolClient) -> usize {
        self.lock().sched.queue.len_of(pool_client.id)
    }

    /// Threads beyond `most` go as soon as they have ended what they are at.
    pub(crate) fn set_threads(&self, most: usize) {
        let mut state = self.lock();
        state.most = most.max(1);
        let too_many = state.threads > state.most;
        drop(state);
        if too_many {
            self.work.notify_all();
        }
    }

    pub(crate) fn kick(self: &Arc<Self>) -> bool {
        loop {
            let mut state = self.lock();
            let recruit = state.recruit();
            let waits = state.sched.waits();
            drop(state);
            if let Recruit::Nobody = recruit {
                return waits;
            }
            // Who gets no thread now is not to ask for one without end.
            if !self.bring_in(recruit) {
                return waits;
            }
        }
    }

    pub(crate) fn stats(&self) -> PrefetchStats {
        let state = self.lock();
        PrefetchStats {
            queued: state.sched.queue.len().max(state.sched.queue.ready()),
            in_flight: state.busy,
            limit: state.sched.limit(),
            threads: state.threads,
            clients: state.clients.len(),
            guessed: state.sched.queue.tally().by_kind(),
            sole: state.sched.is_sole(),
            service: state.sched.service(),
            ..state.stats
        }
    }

    pub(crate) fn measured(&self) -> Vec<((u32, u32), bool)> {
        self.lock().sched.measured()
    }

    pub(crate) fn expect_sole(&self, device: (u32, u32)) {
        self.lock().sched.expect_sole(device);
    }

    pub(crate) fn is_sole(&self, device: (u32, u32)) -> bool {
        self.lock().sched.is_sole_on(device)
    }

    pub(crate) fn measure_again(&self) {
        self.lock().sched.forget_sole();
    }

    /// Drops what waits, tells the workers to go, and waits up to `grace` until they have gone.
    /// Returns how many have not.
    pub(crate) fn shut(&self, grace: Duration) -> usize {
        let mut notifications = Notifications::default();
        let mut state = self.lock();
        state.closing = true;
        for client in state.sched.queue.clients() {
            let dropped = state.sched.drop_stale(client, None, &mut notifications.fx);
            state.stats.dropped += dropped as u64;
        }
        state.count(&mut notifications);
        drop(state);
        self.work.notify_all();
        notifications.tell();
        let still_there = |state: &mut State| state.threads > 0;
        let wait = self.gone.wait_timeout_while(self.lock(), grace, still_there);
        wait.unwrap_or_else(PoisonError::into_inner).0.threads
    }

    /// False: there was none to be had.
    pub(super) fn bring_in(self: &Arc<Self>, recruit: Recruit) -> bool {
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
                    return false;
                }
            }
        }
        true
    }
}
