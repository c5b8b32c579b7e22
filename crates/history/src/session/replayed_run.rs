//! Recorded run that is replayed in a session.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use crate::{Access, AccessKind, Follower, Run};
use runahead_abi::HintLog;
use runahead_estimators::{ChunkIndex, Identity, Piece};

use super::replay_listener::ReplayListener;

/// A run that is replayed.
pub(super) struct ReplayedRun {
    pub(super) run: Arc<Run>,
    /// True if it was recorded of this very command line.
    pub(super) is_own: bool,
    pub(super) follower: Mutex<Follower>,
    /// Number of accesses that the replay has come to.
    pub(super) requested: AtomicUsize,
    /// Number of these, from the first on, that have arrived long ago.
    pub(super) arrived: AtomicUsize,
    pub(super) listener: ReplayListener,
}

impl ReplayedRun {
    /// Calls `each` with the hint log's key of each piece of the access.
    pub(super) fn for_each_key(&self, number: usize, mut each: impl FnMut(Piece)) {
        let access: &Access = &self.run.accesses[number];
        let object = Identity::from_raw(self.run.path_of(access).key);
        match access.kind {
            AccessKind::Lookup | AccessKind::LookupNoFollow => each(object.into()),
            AccessKind::List => each(object.listing().into()),
            AccessKind::Link => each(object.link().into()),
            // Same key as in the agent (`targets/exec.rs`).
            AccessKind::Execute => each(object.chunk(ChunkIndex(u64::MAX)).into()),
            AccessKind::Data { offset, length } | AccessKind::Touched { offset, length } => {
                object.pieces(offset, length).for_each(each);
            }
        }
    }

    /// Enters the access into the hint log of a process, as one that need not be foreseen: a stall
    /// at it is no reason to make a shadow.
    pub(super) fn expect(&self, number: usize, log: &HintLog) {
        self.for_each_key(number, |piece| log.done_by_target(piece));
    }
}
