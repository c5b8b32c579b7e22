//! Receiver of the prefetcher's results: the hint log, and counters of completions.
//!
//! A trait and not the log itself, so that tests can watch every call and so that the memory the
//! log lives in is owned by its implementation: a worker that is stuck in a read when the session
//! ends keeps its sink, and with it the mapping, alive until it returns.

use std::ops::Deref;

use runahead_abi::hint_log::Hinted;
use runahead_abi::{HintKind, HintLog};
use runahead_estimators::Identity;

/// Hints that came to their end together: one, or several that were merged into one job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The newest run among the hints; 0 is the target.
    pub run: u32,
    /// Kind of the hints.
    pub kind: HintKind,
    /// Flags of the hints, or-ed ([`runahead_abi::hint_record`]).
    pub flags: u32,
    /// Number of hints; a repetition of a waiting hint does not count.
    pub hints: u32,
    /// Number of the hints that carry `STEERS`.
    pub steers: u32,
    /// Bytes of file data read or asked for, from memory or from storage.
    pub bytes: u64,
    /// True if some of it could not be read: no such file, another kind of file, no permission, an
    /// error of the storage.
    pub failed: bool,
    /// Hints that wait for a worker, after this one.
    pub queued: usize,
}

/// Told of every change in the state of a hint, from the thread that calls the prefetcher and from
/// its workers. Calls should return soon: each occupies a worker. They must not come back to the
/// prefetcher: `expect`, `done` and `was_used` may be called with its lock held.
pub trait Sink: Send + Sync {
    /// Marks `key` as done: its data is in memory, or is known not to exist.
    fn done(&self, key: Identity);

    /// The prefetch of `key` was given up, as a hint of a run older than `before`. An
    /// implementation that knows of a newer hint for the same key, whose record may be on its way
    /// to the prefetcher just now, should keep it.
    fn forget(&self, key: Identity, before: u32);

    /// Announces `key`, which the expansion of a directory foresees for `run`. False if the key is
    /// known and nothing need be done.
    fn expect(&self, key: Identity, run: u32) -> bool;

    /// True if the target has made the access of `key` without a wait.
    fn was_used(&self, key: Identity) -> bool {
        let _ = key;
        false
    }

    /// Hints came to their end; `done` was called for their keys before.
    fn completed(&self, completion: &Completion);
}

/// The usual [`Sink`]: a hint log in shared memory and a function for completions.
///
/// `log` is whatever owns or borrows the log for as long as it is needed: `&'static HintLog`,
/// `Arc<HintLog>`, or a handle of the mapping that dereferences to its log.
pub struct LogSink<L, C> {
    /// The log.
    pub log: L,
    /// Called for every completion.
    pub completed: C,
}

impl<L, C> Sink for LogSink<L, C>
where
    L: Deref<Target = HintLog> + Send + Sync,
    C: Fn(&Completion) + Send + Sync,
{
    fn done(&self, key: Identity) {
        self.log.done(key);
    }

    fn forget(&self, key: Identity, before: u32) {
        // Pending means hinted and not read: what the target read itself meanwhile stays known.
        if self.log.pending_since(key).is_some_and(|run| run < before) {
            self.log.forget(key);
        }
    }

    fn expect(&self, key: Identity, run: u32) -> bool {
        self.log.hint(key, run) == Hinted::New
    }

    fn was_used(&self, key: Identity) -> bool {
        self.log.was_used(key)
    }

    fn completed(&self, completion: &Completion) {
        (self.completed)(completion);
    }
}
