//! Scheduler: decides when a job begins. The queue, the limits and the horizon, as data. No thread,
//! no file, no clock.
//!
//! [`crate::worker_pool`] has the threads; the simulation in the tests has virtual ones, and runs
//! the very same code. A free worker calls [`Scheduler::begin`], which hands out a job and a
//! [`Ticket`], does what the job says, tells ([`Scheduler::looked`], or the queue), and gives the
//! ticket back.
//!
//! A job is begun when its device has room for what it is (see [`crate::device_limits`]), and its
//! client's budget for what it reads (see [`crate::horizon`]); of several devices, first on the one
//! where something more urgent waits, and then on the one that has less to do.
//!
//! Invariants: no device has more in flight than its limit allowed when the last began; what is
//! read ahead for a client that has a [`Pace`], counted from where its target is, never exceeds its
//! budget; nothing is begun for a run that was given up.

use std::collections::BTreeMap;
use std::time::Duration;

use hashbrown::HashMap;
use runahead_abi::Record;
use runahead_predict::{
    ClientId, Effects, GuessBudget, GuessTask, Outcome, PIECE_BYTES, StepFailure, Submitted, Tier,
    Used,
};

use crate::concurrency_limit::Sample;
use crate::device_limits::Limits;
use crate::device_number::{DeviceNumber, Home};
use crate::fair_queue::{Head, Reach};
use crate::horizon::Pace;
use crate::request_queue::{Found, Job, Queue, Step, TakenPart};

#[cfg(test)]
mod sim;

/// Reads done or in flight for accesses that a target has not made yet.
struct PrefetchedReads {
    pace: Pace,
    /// Accesses that the target has made.
    position: u64,
    /// Bytes by position of use and the newest run that said so.
    parts: BTreeMap<(u64, u32), u64>,
    bytes: u64,
}

impl PrefetchedReads {
    fn reach(&self) -> Reach {
        let held = self.bytes + PIECE_BYTES > self.pace.budget.max(PIECE_BYTES);
        Reach { position: self.position, compute: self.pace.compute, held }
    }
}

/// A place in what is in flight.
#[derive(Debug)]
pub(crate) struct Ticket {
    home: Home,
    /// Jobs in flight on that device when this one began, itself included.
    in_flight: usize,
}

impl Ticket {
    /// Returns the device of the job.
    pub(crate) fn home(&self) -> Home {
        self.home
    }
}

/// Queue, limits and horizons of all clients.
pub(crate) struct Scheduler<F> {
    pub queue: Queue<F>,
    limits: Limits,
    ahead: HashMap<ClientId, PrefetchedReads>,
    admission: GuessBudget,
    /// Threads that wait for storage at once.
    waiters: u32,
}

impl<F> Scheduler<F> {
    /// At most so many jobs in flight, and parts of hints in the queue.
    pub(crate) fn new(max_in_flight: usize, max_queued: usize) -> Self {
        let (queue, limits) = (Queue::new(max_queued), Limits::new(max_in_flight));
        Scheduler {
            queue,
            limits,
            ahead: HashMap::new(),
            admission: GuessBudget::new(),
            waiters: 0,
        }
    }

    /// Something was hinted, or is waited for: see [`Queue::submit`].
    pub(crate) fn submit(
        &mut self,
        client: ClientId,
        record: &Record<'_>,
        now: Duration,
        fx: &mut Effects<F>,
    ) -> Submitted {
        self.queue.scan(self.admission.scans());
        let submitted = self.queue.submit(client, record, now, fx);
        self.admission.book(self.queue.tally());
        submitted
    }

    /// A [`Step::Guess`] came back, which has used so much.
    pub(crate) fn guessed(
        &mut self,
        job: Job<F>,
        outcome: Outcome<F>,
        used: Used,
        fx: &mut Effects<F>,
    ) {
        if let Step::Guess { sent, errand } = &job.step {
            // A listing is no guess, and spares nothing by itself.
            let requests = if let GuessTask::List { .. } = errand { 0 } else { used.requests };
            self.admission.end(sent.whose().1, used.processor, requests, errand.bytes());
        }
        self.queue.guessed(job, outcome, fx);
    }

    /// Adds `count` unforeseen waits of programs, which took `time` together.
    pub(crate) fn waited(&mut self, count: u64, time: Duration) {
        self.admission.waited(count, time);
    }

    /// Calls [`GuessBudget::contended`].
    pub(crate) fn contended(&mut self, part: f64) {
        self.admission.contended(part);
    }

    /// Sets the number of threads that wait for storage at once.
    pub(crate) fn waiters(&mut self, count: u32) {
        self.waiters = count;
    }

    /// Storage that serves few requests side by side has as many as it serves: guesses would only
    /// be in their way.
    fn is_kept_busy(&self, home: Home) -> bool {
        self.waiters > 1 && self.limits.is_narrow(home)
    }

    /// Returns the jobs of `tier` that may still begin on `home` now.
    fn room(&self, home: Home, tier: Tier) -> usize {
        match tier {
            Tier::Guess if !self.admission.admits() || self.is_kept_busy(home) => 0,
            _ => self.limits.room(home, tier),
        }
    }

    /// Something waits that time alone may bring to be begun.
    pub(crate) fn waits(&self) -> bool {
        let admits = self.admission.admits();
        self.queue.heads().any(|h| h.tier != Tier::Guess || admits)
    }

    /// Returns the jobs that could begin now.
    pub(crate) fn startable(&self) -> usize {
        let room = |h: Head| self.room(h.home, h.tier).min(h.waiting);
        self.queue.heads().map(room).sum::<usize>().min(self.limits.free())
    }

    /// True when a target waits for something that could be begun now.
    pub(crate) fn is_urgent(&self) -> bool {
        let mut heads = self.queue.heads();
        heads.any(|h| h.tier == Tier::Demand && self.limits.room(h.home, h.tier) > 0)
    }

    /// Jobs that may be in flight on the device that takes most.
    pub(crate) fn limit(&self) -> usize {
        self.limits.current()
    }

    /// Calls [`Limits::is_sole`].
    pub(crate) fn is_sole(&self) -> bool {
        self.limits.is_sole()
    }

    /// Calls [`Limits::is_narrow`].
    pub(crate) fn is_narrow(&self, home: Home) -> bool {
        self.limits.is_narrow(home)
    }

    /// Calls [`Limits::service`].
    pub(crate) fn service(&self) -> Option<Duration> {
        self.limits.service()
    }

    /// Calls [`Limits::measured`].
    pub(crate) fn measured(&self) -> Vec<(DeviceNumber, bool)> {
        self.limits.measured()
    }

    /// Calls [`Limits::is_sole_on`].
    pub(crate) fn is_sole_on(&self, device: DeviceNumber) -> bool {
        self.limits.is_sole_on(device)
    }

    /// Calls [`Limits::is_quick`].
    pub(crate) fn is_quick(&self, device: DeviceNumber) -> bool {
        self.limits.is_quick(device)
    }

    /// Calls [`Limits::expect_sole`].
    pub(crate) fn expect_sole(&mut self, device: DeviceNumber) {
        self.limits.expect_sole(device);
    }

    /// Calls [`Limits::forget_sole`].
    pub(crate) fn forget_sole(&mut self) {
        self.limits.forget_sole();
    }

    /// The next job, if there is one that may be begun.
    pub(crate) fn begin(&mut self) -> Option<(Job<F>, Ticket)> {
        loop {
            let heads = self.queue.heads().filter(|h| self.room(h.home, h.tier) > 0);
            let head = heads.min_by_key(|h| (h.tier, self.limits.in_flight_on(h.home)))?;
            // Without a job something else has become first there, or nothing.
            if let Some(job) = self.queue.pop_at(head.home, head.tier) {
                self.take_note();
                if let Step::Guess { .. } = job.step {
                    self.admission.begin();
                }
                let in_flight = self.limits.begin(head.home);
                return Some((job, Ticket { home: head.home, in_flight }));
            }
            debug_assert!(!self.queue.heads().any(|h| h == head), "{head:?} is not to be had");
        }
    }

    /// The job is over, and what followed from it.
    pub(crate) fn end(&mut self, ticket: Ticket) {
        self.limits.end(ticket.home);
    }

    /// A lookup came back: the job that the same worker shall do next, with the same ticket.
    pub(crate) fn looked(
        &mut self,
        job: Job<F>,
        result: Result<Found<F>, StepFailure>,
        ticket: &mut Ticket,
        fx: &mut Effects<F>,
    ) -> Option<Job<F>> {
        // It may be elsewhere than was thought: then it waits until there is room there.
        let home = result.as_ref().map_or(ticket.home, |found| found.place.home);
        let client_may = self.ahead.values().all(|ahead| !ahead.reach().held);
        let stay = home == ticket.home || self.limits.room(home, Tier::Hint) > 0;
        let next = self.queue.looked(job, (result, stay && client_may), fx)?;
        self.take_note();
        if home != ticket.home {
            self.limits.end(ticket.home);
            *ticket = Ticket { home, in_flight: self.limits.begin(home) };
        }
        Some(next)
    }

    /// Learns from how long an operation took.
    pub(crate) fn sample(&mut self, sample: Sample, ticket: &Ticket) {
        let home = Some(sample.device);
        self.limits.sample(sample, ticket.in_flight);
        self.queue.set_narrow(home, self.limits.is_narrow(home));
        self.queue.set_speed(home, self.limits.speed(home));
        self.queue.set_piece(home, self.limits.piece(home));
    }

    /// Counts what was just taken out of the queue against its client's budget.
    fn take_note(&mut self) {
        let Some(TakenPart { client, tag, bytes }) = self.queue.taken() else { return };
        let Some(ahead) = self.ahead.get_mut(&client) else { return };
        if bytes > 0 && !tag.is_demand() && tag.position > ahead.position {
            *ahead.parts.entry((tag.position, tag.run)).or_default() += bytes;
            ahead.bytes += bytes;
            let reach = ahead.reach();
            self.queue.set_reach(client, Some(reach));
        }
    }

    /// Sets the computing time of the target of `client`, and the bytes that may be read ahead for
    /// it.
    pub(crate) fn set_pace(&mut self, client: ClientId, pace: Pace) {
        let (position, parts) = (0, BTreeMap::new());
        let ahead =
            self.ahead.entry(client).or_insert(PrefetchedReads { pace, position, parts, bytes: 0 });
        ahead.pace = pace;
        let reach = ahead.reach();
        self.queue.set_reach(client, Some(reach));
    }

    /// The target of `client` has made so many accesses.
    pub(crate) fn reached(&mut self, client: ClientId, position: u64) {
        let Some(ahead) = self.ahead.get_mut(&client) else { return };
        if position <= ahead.position {
            return;
        }
        ahead.position = position;
        while let Some(part) = ahead.parts.first_entry()
            && part.key().0 <= position
        {
            ahead.bytes -= part.remove();
        }
        let reach = ahead.reach();
        self.queue.set_reach(client, Some(reach));
    }

    /// Calls [`Queue::drop_stale`], and counts what was read for those runs no more: the kernel may
    /// evict it.
    pub(crate) fn drop_stale(
        &mut self,
        client: ClientId,
        before: Option<u32>,
        fx: &mut Effects<F>,
    ) -> usize {
        if let Some(ahead) = self.ahead.get_mut(&client) {
            ahead.parts.retain(|&(_, run), _| before.is_some_and(|before| run >= before));
            ahead.bytes = ahead.parts.values().sum();
            let reach = ahead.reach();
            self.queue.set_reach(client, Some(reach));
        }
        self.queue.drop_stale(client, before, fx)
    }

    /// Calls [`Queue::close_client`].
    pub(crate) fn close_client(&mut self, client: ClientId, fx: &mut Effects<F>) -> usize {
        self.ahead.remove(&client);
        self.queue.close_client(client, fx)
    }
}
