//! Progress of the prefetcher with one process's hints, as its agents and its dispatcher see it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::process::doorbell::ring;
use crate::process::shared_memory::Mapping;
use runahead_abi::HintKind;
use runahead_abi::hint_log::Hinted;
use runahead_abi::hint_record::LENGTH_UNKNOWN;
use runahead_estimators::Identity;
use runahead_prefetch::{Completion, Sink};

/// Receiver of the prefetcher's progress with one process's hints.
pub(crate) struct Progress {
    shared: Arc<Mapping>,
    /// Counter that [`Progress::steers`] returns.
    steers: AtomicU64,
    /// Counter that [`Progress::bytes`] returns.
    bytes: AtomicU64,
}

impl Progress {
    /// Creates the progress of a process that has just joined.
    pub(crate) fn new(shared: Arc<Mapping>) -> Self {
        Progress { shared, steers: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Steering hints that have come to their end since the process joined.
    pub(crate) fn steers(&self) -> u64 {
        self.steers.load(Relaxed)
    }

    /// Bytes that have been read because shadows hinted them of files whose length they did not
    /// know.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl Sink for Progress {
    fn done(&self, key: Identity) {
        self.shared.log.done(key);
    }

    fn forget(&self, key: Identity, before: u32) {
        // Pending means hinted and not read: what the target read itself meanwhile stays known.
        if self.shared.log.pending_since(key).is_some_and(|run| run < before)
            && self.shared.log.forget(key)
        {
            self.shared.control.hints_issued.fetch_sub(1, Relaxed);
        }
    }

    fn expect(&self, key: Identity, run: u32) -> bool {
        let new = self.shared.log.hint(key, run) == Hinted::New;
        if new {
            self.shared.control.hints_issued.fetch_add(1, Relaxed);
        }
        new
    }

    fn was_used(&self, key: Identity) -> bool {
        self.shared.log.was_used(key)
    }

    fn completed(&self, completion: &Completion) {
        self.shared.control.queued.store(completion.queued as u32, Relaxed);
        let unknown = completion.flags & LENGTH_UNKNOWN != 0;
        if completion.kind == HintKind::Data && completion.run != 0 && unknown {
            self.bytes.fetch_add(completion.bytes, Relaxed);
        }
        if completion.steers > 0 {
            self.steers.fetch_add(completion.steers.into(), Relaxed);
            ring(&self.shared);
        }
    }
}
