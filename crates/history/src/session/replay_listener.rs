//! Channel to the thread that replays a run, and the counts of the replay.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::Follower;

/// Accesses that must be found in the record, or by which the position must advance, before the
/// replay is woken again.
const WAKE_AFTER: (u64, usize) = (16, 64);

/// Reason for which the replay is woken.
pub(super) enum Event {
    /// The position of the command has advanced.
    Moved,
    /// A path has been looked up.
    LookedUp(u32),
    /// The lookup of a path was dropped.
    Refused(u32),
    /// The replay must end.
    GiveUp,
}

/// Channel to the replay, and its counts.
pub(super) struct ReplayListener {
    pub(super) sender: Sender<Event>,
    pub(super) receiver: Mutex<Option<Receiver<Event>>>,
    /// Accesses that were asked for.
    pub(super) asked: AtomicU64,
    /// Files that have changed.
    pub(super) changed: AtomicU64,
}

impl ReplayListener {
    pub(super) fn new() -> Self {
        let (sender, receiver) = channel();
        let (asked, changed) = (AtomicU64::new(0), AtomicU64::new(0));
        ReplayListener { sender, receiver: Mutex::new(Some(receiver)), asked, changed }
    }

    pub(super) fn send(&self, event: Event) {
        // The replay's thread may have ended.
        let _ = self.sender.send(event);
    }
}

/// True if the position of `follower` has advanced so far from `(place, matched)` that the replay
/// must be woken.
pub(super) fn must_wake((place, matched): (usize, u64), follower: &Follower) -> bool {
    follower.place() / WAKE_AFTER.1 != place / WAKE_AFTER.1
        || follower.matched() / WAKE_AFTER.0 != matched / WAKE_AFTER.0
}
