//! A worker's life.

use std::sync::{Arc, PoisonError};

use runahead_abi::{HintKind, Record, device_number};
use runahead_predict::{
    self, ClientId, ExpansionRequest, GuessTask, Name, Report, StepFailure, Task, Used,
};

use super::notifications::{Notifications, PoolClient};
use super::pool::{AssignedJob, IDLE_LIFE, Pool, State};
use super::program_work::unhinted;
use crate::concurrency_limit::{INFORMATIVE, Kind};
use crate::io::{Clock, Device, Node, Reader, SeekTurn, trouble};
use crate::request_queue::{Found, Job, Step};
use crate::scheduler::Ticket;

/// Previous state of a worker that asks for a job.
enum PreviousState {
    Starting,
    Busy(Ticket),
}

enum Outcome {
    Looked(Result<Found<Node>, StepFailure>),
    Done(Result<u64, StepFailure>),
    Program(Box<Result<Report<Node>, StepFailure>>),
    Guessed(runahead_predict::Outcome<Node>),
}

impl Pool {
    /// A worker's life.
    pub(super) fn work(self: Arc<Self>) {
        let mut reader = Reader::new(Clock::new(self.origin));
        let mut notifications = Notifications::default();
        let mut was = PreviousState::Starting;
        while let Some(mut work) = self.next_job(was) {
            self.serve((work.job, work.turn), &mut work.ticket, &mut reader, &mut notifications);
            was = PreviousState::Busy(work.ticket);
        }
        if self.lock().threads == 0 {
            self.gone.notify_all();
        }
    }

    /// Waits for something to do. `None` when the worker shall go. A worker is busy until it asks,
    /// calls of sinks included, so that it takes the next job itself.
    fn next_job(self: &Arc<Self>, was: PreviousState) -> Option<AssignedJob> {
        let mut state = self.lock();
        match was {
            PreviousState::Starting => state.starting -= 1,
            PreviousState::Busy(ticket) => state.end(ticket),
        }
        loop {
            if state.closing || state.threads > state.most {
                state.threads -= 1;
                if state.woken > 0 {
                    // Perhaps it was this one that was told, and another is to come in its place.
                    self.work.notify_all();
                }
                return None;
            }
            if let Some(work) = state.begin() {
                let recruit = state.recruit();
                drop(state);
                self.bring_in(recruit);
                return Some(work);
            }
            state.idle += 1;
            let wait = self.work.wait_timeout_while(state, IDLE_LIFE, |state| {
                state.woken == 0 && !state.closing && state.threads <= state.most
            });
            let timeout;
            (state, timeout) = wait.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            if timeout.timed_out() {
                state.threads -= 1;
                return None;
            }
            if state.threads <= state.most {
                state.woken = state.woken.saturating_sub(1);
            }
        }
    }

    /// Does a job, and what follows from it for the same path.
    fn serve(
        self: &Arc<Self>,
        (job, mut turn): (Job<Node>, Option<SeekTurn>),
        ticket: &mut Ticket,
        reader: &mut Reader,
        notifications: &mut Notifications,
    ) {
        let mut next = Some(job);
        while let Some(job) = next {
            let outcome = self.take_step(&job, turn.take(), reader);
            let used = reader.clock.take_used();
            let remote = match &outcome {
                Outcome::Looked(Ok(found)) => Some((found.place.home, self.is_remote(&found.file))),
                _ => None,
            };
            let mut state = self.lock();
            if let Some((home, remote)) = remote {
                state.sched.queue.set_remote(home, remote);
            }
            self.account(&mut state, &job.step, ticket, reader, used);
            next = match outcome {
                Outcome::Program(result) => {
                    let now = self.origin.elapsed();
                    state.stats.unhinted_bytes += unhinted(&job.step, &result);
                    state.sched.queue.reported(job, *result, now, &mut notifications.fx)
                }
                Outcome::Guessed(outcome) => {
                    state.sched.guessed(job, outcome, used, &mut notifications.fx);
                    None
                }
                Outcome::Looked(result) => {
                    state.sched.looked(job, result, ticket, &mut notifications.fx)
                }
                Outcome::Done(result) => {
                    state.sched.queue.finish(job, result, &mut notifications.fx);
                    None
                }
            };
            state.count(notifications);
            let recruit = state.recruit();
            drop(state);
            self.bring_in(recruit);
            notifications.tell();
        }
    }

    /// Counts a step, and learns from how long it took.
    fn account(
        &self,
        state: &mut State,
        step: &Step<Node>,
        ticket: &Ticket,
        reader: &mut Reader,
        used: Used,
    ) {
        for sample in reader.clock.samples.drain(..) {
            let (device, latency) = (sample.device, sample.latency);
            let least = match sample.kind {
                // It may be the transfer that takes time.
                Kind::LongRead => 4 * INFORMATIVE,
                _ => INFORMATIVE,
            };
            state.sched.sample(sample, ticket);
            // Where requests are short, a long latency comes from the queue.
            if latency >= least && !state.sched.is_quick(device) {
                (self.waited)(device_number(device.0, device.1), latency);
            }
        }
        let stats = &mut state.stats;
        stats.requests += used.requests;
        stats.processor += used.processor;

        if matches!(
            step,
            Step::Read { .. }
                | Step::Program { task: Task::Load { .. }, .. }
                | Step::Guess { errand: GuessTask::Read { .. } | GuessTask::Scan { .. }, .. }
        ) {
            stats.read_requests += used.requests;
        }
        match step {
            Step::Look { .. } => stats.lookups += 1,
            Step::List { .. } => stats.listings += 1,
            Step::Link { .. } => stats.links += 1,
            Step::Read { .. } => stats.reads += 1,
            Step::Names { batch } => stats.lookups += batch.names().len() as u64,
            Step::Program { task: Task::Find { .. }, .. } => stats.programs += 1,
            Step::Program { task: Task::Needs { .. }, .. } => {}
            Step::Program { task: Task::Load { .. }, .. } => stats.reads += 1,
            Step::Guess { errand: GuessTask::List { .. } | GuessTask::Browse { .. }, .. } => {
                stats.listings += 1
            }
            Step::Guess { errand: GuessTask::Look { .. }, .. } => stats.lookups += 1,
            Step::Guess { errand: GuessTask::Read { size, .. }, .. } => {
                stats.guesses += 1;
                stats.reads += 1;
                stats.unhinted_bytes += size;
            }
            Step::Guess { errand: GuessTask::Scan { size, .. }, .. } => {
                stats.reads += 1;
                stats.unhinted_bytes += size;
            }
        }
    }

    fn take_step(
        self: &Arc<Self>,
        job: &Job<Node>,
        turn: Option<SeekTurn>,
        reader: &mut Reader,
    ) -> Outcome {
        let result = match &job.step {
            Step::Look { path, follow } => {
                let found = reader.look(path, *follow).map_err(trouble);
                let found = found.map(|(node, class)| {
                    let place = node.place();
                    Found { file: Arc::new(node), class, place }
                });
                return Outcome::Looked(found);
            }
            Step::List { file, names } => {
                let mut found = Vec::new();
                let wanted = names.then_some((&mut found, usize::MAX));
                let result = reader.list(file, &self.devices, wanted);
                if !found.is_empty() {
                    self.expand(job, found, self.is_remote(file));
                }
                result
            }
            Step::Link { path } => reader.read_link(path),
            Step::Read { file, range } => reader.read(file, range, &self.devices, turn),
            Step::Names { batch } => {
                let pool_client = self.pool_client(batch.client());
                let all = reader.look_at_all(batch, |name| {
                    batch.keys(name).for_each(|key| {
                        _ = pool_client.as_ref().map(|pool_client| pool_client.done(key))
                    });
                    pool_client
                        .as_ref()
                        .is_some_and(|pool_client| !pool_client.is_stale(batch.run()))
                });
                // The rest of it was given up.
                if all { Ok(0) } else { Err(rustix::io::Errno::INTR) }
            }
            Step::Guess { sent, errand } => {
                return Outcome::Guessed(self.guess(sent.whose(), errand, reader));
            }
            Step::Program { task, .. } => {
                return Outcome::Program(Box::new(self.work_on(task, reader)));
            }
        };
        Outcome::Done(result.map_err(trouble))
    }

    /// The client, if it is not gone.
    fn pool_client(&self, client: ClientId) -> Option<Arc<PoolClient>> {
        self.lock().clients.get(&client).cloned()
    }

    /// Goes on with what a directory named, for each client that wishes so.
    fn expand(self: &Arc<Self>, job: &Job<Node>, names: Vec<Name>, remote: bool) {
        let wishes = self.lock().sched.queue.wishes(job);
        for wish in wishes {
            if let Some(pool_client) = self.pool_client(wish.client) {
                self.expand_for(&pool_client, &wish, &names, remote);
            }
        }
    }

    fn expand_for(
        self: &Arc<Self>,
        pool_client: &Arc<PoolClient>,
        wish: &ExpansionRequest,
        names: &[Name],
        remote: bool,
    ) {
        for (header, path) in wish.listings(names, |key, run| pool_client.expect(key, run)) {
            self.submit(pool_client, &Record { kind: HintKind::Listing, header, path: &path });
        }
        let batches = wish.batches(names, remote, |key, run| pool_client.expect(key, run));
        let mut refused = Notifications::to(pool_client);
        let mut state = self.lock();
        for batch in batches {
            if state.closing || !state.sched.queue.add_names(batch.clone()) {
                batch.forget(&mut refused.fx);
            }
        }
        state.count(&mut refused);
        let recruit = state.recruit();
        drop(state);
        self.bring_in(recruit);
        refused.tell();
    }

    fn is_remote(&self, node: &Node) -> bool {
        self.devices.device(node) == Ok(Device::Remote)
    }
}
