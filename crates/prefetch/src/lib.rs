//! Turns hints into reads, in parallel and within limits.
//!
//! A hint says what a target will soon want: that a path will be looked up, a directory listed, a
//! link or a range of a file read. The [`Prefetcher`] does the same things first, on its own
//! threads, and ignores what it reads: it is then in the kernel's page, dentry and inode caches.
//!
//! One prefetcher serves many processes. Each has a [`Client`] with hints, runs, log keys and a
//! [`Sink`] of its own; threads, the limit and what is known of devices are shared, and so is every
//! read that more than one of them wants.
//!
//! | module | what it decides |
//! |---|---|
//! | `request_queue` | what is to be read, merged by path |
//! | `request_queue/client_requests` | the share of one client in a path |
//! | `request_queue/job_selection` | what is started next on a device, in sweeps where heads move |
//! | `byte_ranges` | which bytes of a file, merged by range |
//! | `fair_queue` | which client is served next, for each device |
//! | `concurrency_limit`, `device_limits` | how much at a time, on each device |
//! | `device_number` | numbers of devices |
//! | `prefetch_options`, `prefetch_stats` | the caller's bounds and switches; counts |
//! | `horizon` | how far ahead of the target |
//! | `scheduler` | all of this together: what is begun when |
//! | `io` | how to read without effects |
//! | `worker_pool` | which thread |
//!
//! The order of one client's hints, what follows from a directory or a program, and guesses are in
//! `runahead-predict`, which does no I/O.
//!
//! Invariant: whatever a hint says, acting on it only reads (see `io`), takes a bounded number of
//! threads, descriptors and queue places, and ends in the hint's log keys being done or forgotten.
//!
//! Two things are the caller's: hints must come from a target with the credentials, root directory
//! and mount namespace of this process, since the prefetcher reads with its own; and descriptors
//! must allow for two per request in flight (`RLIMIT_NOFILE`; short of them, hints are forgotten).
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use runahead_abi::{HintKind, Record};

mod byte_ranges;
mod concurrency_limit;
pub mod device_limits;
mod device_number;
mod fair_queue;
mod horizon;
mod io;
mod prefetch_options;
mod prefetch_stats;
mod request_queue;
mod scheduler;
#[cfg(test)]
mod test_support;
mod worker_pool;

pub use horizon::{Horizon, MARGIN, Pace};
pub use io::{is_sample_page, memory_path};
pub use prefetch_options::Options;
pub use prefetch_stats::PrefetchStats;
pub use runahead_predict::{
    Completion, EXTEND_MAX_BYTES, HINT_MAX_BYTES, KIND_NAMES, LogSink, Sink,
};

/// Longest wait of [`Prefetcher::close`] for reads in flight.
const CLOSE_GRACE: Duration = Duration::from_millis(50);

/// The prefetcher. Dropping it is [`Prefetcher::close`] without waiting.
pub struct Prefetcher {
    pool: Arc<worker_pool::Pool>,
}

impl Prefetcher {
    /// A prefetcher without threads and clients: threads are started as hints need them.
    ///
    /// `waited` is told of each operation that waited for storage: its device (major number shifted
    /// left by 32, and minor), and how long it took. It must not come back to the prefetcher.
    pub fn new(options: Options, waited: impl Fn(u64, Duration) + Send + Sync + 'static) -> Self {
        Prefetcher { pool: Arc::new(worker_pool::Pool::new(options, Box::new(waited))) }
    }

    /// Creates a client, whose hints have log keys and runs of their own. `sink` receives their
    /// outcomes.
    pub fn client(&self, sink: Arc<dyn Sink>) -> Client {
        Client { pool: self.pool.clone(), pool_client: self.pool.open_client(sink) }
    }

    /// Brings in more workers if those there are seem to be stuck in reads. To be called every
    /// few hundred microseconds while it returns true, which says that something waits.
    pub fn kick(&self) -> bool {
        self.pool.kick()
    }

    /// There are to be at most so many workers from now on, and at least one.
    pub fn set_threads(&self, most: usize) {
        self.pool.set_threads(most);
    }

    /// Major and minor number of each device that has been measured, and whether it serves one
    /// request at a time.
    pub fn measured(&self) -> Vec<((u32, u32), bool)> {
        self.pool.measured()
    }

    /// The device of that major and minor number served one request at a time when it was measured
    /// before.
    pub fn expect_sole(&self, device: (u32, u32)) {
        self.pool.expect_sole(device);
    }

    /// True if `device` is known to serve one request at a time.
    pub fn is_sole(&self, device: (u32, u32)) -> bool {
        self.pool.is_sole(device)
    }

    /// Forgets what is known of a device that serves one request at a time
    /// ([`PrefetchStats::sole`]).
    pub fn measure_again(&self) {
        self.pool.measure_again();
    }

    /// Parts of hints that wait for a worker, of all clients.
    pub fn queued(&self) -> usize {
        self.pool.queued()
    }

    /// Returns counts for all clients, also those that are gone.
    pub fn stats(&self) -> PrefetchStats {
        self.pool.stats()
    }

    /// Gives up everything that waits, and waits up to 50 ms for reads under way. Returns how many
    /// workers are still in the kernel then: each ends when its read does, and may call the sinks
    /// of those that wanted it once more. Hints that are submitted later are refused.
    pub fn close(&self) -> usize {
        self.pool.shut(CLOSE_GRACE)
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        self.pool.shut(Duration::ZERO);
    }
}

/// A source of hints: a process, with the keys of its log and the numbers of its runs.
///
/// Dropping it gives up all its hints, and no other client's: what others want as well is read for
/// them. The dropping thread tells the sink to forget every key that is not settled, those too that
/// a worker is just reading, and no worker tells it of these later. What may still be told after
/// the drop has returned is what was settled before it: a worker whose read (or other step) had
/// ended by then, and which is on its way to tell so, does. Each key is done or forgotten in the
/// end, the sink may outlive its client for a moment, and it must own what it needs.
pub struct Client {
    pool: Arc<worker_pool::Pool>,
    pool_client: Arc<worker_pool::PoolClient>,
}

impl Client {
    /// Queues a hint, or merges it with what is there for its path. Never waits for storage. A
    /// record that is no hint but a [`HintKind::Cancel`] is [`Client::cancel`].
    pub fn submit(&self, record: &Record<'_>) {
        if record.kind == HintKind::Cancel {
            self.cancel(record.header.run);
            return;
        }
        self.pool.submit(&self.pool_client, record);
    }

    /// Forgets a hint that is not wanted any more, as if it had been refused.
    pub fn decline(&self, record: &Record<'_>) {
        self.pool.decline(&self.pool_client, record);
    }

    /// Cancels what the process, or its shadow in `run`, has disclosed (see [`HintKind::Cancel`])
    /// and no worker has begun. Returns the number of hints cancelled.
    pub fn cancel(&self, run: u32) -> usize {
        self.pool.cancel(&self.pool_client, run)
    }

    /// Drops the hints of this client's runs before `run`, as a shadow strayed: those that no
    /// worker has begun, except demands of the target. Returns the number of hints dropped.
    pub fn drop_queued_before(&self, run: u32) -> usize {
        self.pool.drop_queued_before(&self.pool_client, run)
    }

    /// Sets the computing time of the target, and the bytes that may be read ahead of it. Hints
    /// beyond the resulting [`Horizon`] wait, unless the storage would idle. Hints that the budget
    /// has no room for always wait. Before the first call, all hints are acted on as they come.
    pub fn set_pace(&self, pace: Pace) {
        self.pool.set_pace(&self.pool_client, pace);
    }

    /// The target has made `position` accesses, counted as the positions of hints are. Cheap: to be
    /// called as often as that is looked at. Of no effect before [`Client::set_pace`].
    pub fn reached(&self, position: u64) {
        self.pool.reached(&self.pool_client, position);
    }

    /// Adds `count` unforeseen waits of the target, which took `time` together.
    pub fn waited(&self, count: u64, time: Duration) {
        self.pool.waited(count, time);
    }

    /// Sets the number of threads, of all processes, that wait for storage at once.
    pub fn waiters(&self, count: u32) {
        self.pool.waiters(count);
    }

    /// The target has waited for a processor for so long, as a part of what the prefetcher's
    /// workers used meanwhile.
    pub fn contended(&self, part: f64) {
        self.pool.contended(part);
    }

    /// Parts of this client's hints that wait for a worker.
    pub fn queued(&self) -> usize {
        self.pool.queued_of(&self.pool_client)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.pool.close_client(&self.pool_client);
    }
}
