//! Deferred replies: when to answer, with one thread for any number of requests.
//!
//! A request arrives with a job, the closure that answers it. The model says at arrival when it
//! completes; the job waits in a heap, and one thread sleeps until the earliest. No thread per
//! request, nothing polls.
//!
//! Invariant: a job runs exactly once, no earlier than [`SLACK`] before its time, and never under
//! the lock.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::model::{Access, Model};
use crate::stats::{Counters, Op, Stats};

/// Jobs due within this time of a wake-up run with it: at tens of thousands of requests per second
/// that saves a wake-up for every other one, and 1% of the shortest latency worth simulating is not
/// worth more.
const SLACK: Duration = Duration::from_micros(30);

type Job = Box<dyn FnOnce() + Send>;

/// Queue of waiting requests; clones share one queue.
#[derive(Clone)]
pub(crate) struct Pacer(Arc<Shared>);

struct Shared {
    epoch: Instant,
    state: Mutex<State>,
    earlier: Condvar,
}

struct State {
    model: Model,
    counters: Counters,
    delay: bool,
    waiting: BinaryHeap<Waiting>,
    arrivals: u64,
    outstanding: u64,
}

struct Waiting {
    at: u64,
    arrival: u64,
    job: Job,
}

impl Ord for Waiting {
    /// Reversed, for a max-heap: the greatest is the one due first, then the one that arrived
    /// first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.arrival).cmp(&(self.at, self.arrival))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

impl Pacer {
    pub(crate) fn new(model: Model, delay: bool) -> Self {
        Self(Arc::new(Shared {
            epoch: Instant::now(),
            state: Mutex::new(State {
                model,
                counters: Counters::new(),
                delay,
                waiting: BinaryHeap::new(),
                arrivals: 0,
                outstanding: 0,
            }),
            earlier: Condvar::new(),
        }))
    }

    /// Answers due jobs, forever; the daemon gives this a thread.
    pub(crate) fn run(&self) -> ! {
        let mut due = Vec::new();
        let mut state = self.lock();
        loop {
            let now = self.now();
            let limit = now + SLACK.as_nanos() as u64;
            while state.waiting.peek().is_some_and(|w| w.at <= limit) {
                due.extend(state.waiting.pop());
            }
            if due.is_empty() {
                state = match state.waiting.peek() {
                    Some(next) => {
                        let rest = Duration::from_nanos(next.at - now);
                        let waited = self.0.earlier.wait_timeout(state, rest);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => {
                        let waited = self.0.earlier.wait(state);
                        waited.unwrap_or_else(PoisonError::into_inner)
                    }
                };
                continue;
            }
            // Counted before the answers go out: a client may send its next request at once, which
            // would otherwise count as one more.
            state.outstanding -= due.len() as u64;
            drop(state);
            for waiting in due.drain(..) {
                (waiting.job)();
            }
            state = self.lock();
        }
    }

    /// Counts a request and answers it when it is due, or at once while the delay is off.
    pub(crate) fn submit(
        &self,
        op: Op,
        access: Access,
        bytes: u64,
        job: impl FnOnce() + Send + 'static,
    ) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let outstanding = state.outstanding + 1;
        state.counters.count(op, bytes, outstanding);
        if !state.delay {
            drop(guard);
            job();
            return;
        }
        let now = self.now();
        let at = state.model.submit(now, access);
        state.counters.saw_in_service(state.model.in_service(now));
        state.outstanding = outstanding;
        state.arrivals += 1;
        let first = state.waiting.peek().is_none_or(|w| at < w.at);
        state.waiting.push(Waiting { at, arrival: state.arrivals, job: Box::new(job) });
        drop(guard);
        if first {
            self.0.earlier.notify_one();
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let state = self.lock();
        state.counters.snapshot(state.delay)
    }

    pub(crate) fn reset_stats(&self) {
        self.lock().counters = Counters::new();
    }

    /// Requests that wait already are answered when they were going to be.
    pub(crate) fn set_delay(&self, on: bool) {
        self.lock().delay = on;
    }

    fn now(&self) -> u64 {
        self.0.epoch.elapsed().as_nanos() as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, and panics abort.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Jitter, Service};
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_run_once_each_in_order_and_not_early() {
        let latency = Duration::from_millis(10);
        let service = Service::Parallel { latency, parallel: 2 };
        let pacer = Pacer::new(Model::new(service, Jitter::NONE), true);
        let timer = pacer.clone();
        std::thread::spawn(move || timer.run());
        let (send, receive) = channel();
        let start = Instant::now();
        for i in 0..6u32 {
            let send = send.clone();
            pacer.submit(Op::Read, Access::Control, 1, move || send.send(i).unwrap());
        }
        for i in 0..6 {
            assert_eq!(receive.recv(), Ok(i));
            assert!(start.elapsed() + SLACK >= latency * (i / 2 + 1), "{i} came early");
        }
        drop(send);
        assert!(receive.try_recv().is_err(), "ran twice");
        let stats = pacer.stats();
        assert_eq!((stats.reads, stats.read_bytes), (6, 6));
        assert_eq!((stats.max_in_service, stats.max_outstanding), (2, 6));

        pacer.set_delay(false);
        pacer.reset_stats();
        let (send, receive) = channel();
        pacer.submit(Op::Lookup, Access::Control, 0, move || send.send(()).unwrap());
        assert_eq!(receive.try_recv(), Ok(()), "not at once");
        assert_eq!(pacer.stats().max_in_service, 0);
    }
}
