//! Recorded run that is replayed in a session.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use crate::{Access, AccessKind, Follower, Run};
use runahead_abi::{ChunkIndex, HintLog, Identity, Piece};

use super::replay_listener::ReplayListener;

/// A run that is replayed.
pub(super) struct ReplayedRun {
    pub(super) run: Arc<Run>,
    /// It was recorded of this very command.
    pub(super) is_own: bool,
    pub(super) follower: Mutex<Follower>,
    /// Accesses that the replay has come to.
    pub(super) requested: AtomicUsize,
    /// Number of these, from the first on, that arrived long ago.
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
            // As the agent has it (`targets/exec.rs`).
            AccessKind::Execute => each(object.chunk(ChunkIndex(u64::MAX)).into()),
            AccessKind::Data { offset, length } | AccessKind::Touched { offset, length } => {
                object.pieces(offset, length).for_each(each);
            }
        }
    }

    /// Enters it into the log of a process, as something that need not be foreseen any more: a
    /// stall there is no reason to make a shadow.
    pub(super) fn expect(&self, number: usize, log: &HintLog) {
        self.for_each_key(number, |piece| log.done_by_target(piece));
    }
}
