//! Recorded run that is replayed in a session.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use crate::{Access, Follower, Run, What};
use runahead_abi::{ChunkIndex, HintLog, Identity, Piece};

use super::replay_listener::Listener;

/// A run that is replayed.
pub(super) struct Followed {
    pub(super) run: Arc<Run>,
    /// It was recorded of this very command.
    pub(super) is_own: bool,
    pub(super) follower: Mutex<Follower>,
    /// Accesses that the replay has come to.
    pub(super) reached: AtomicUsize,
    /// Number of these, from the first on, that arrived long ago.
    pub(super) settled: AtomicUsize,
    pub(super) listener: Listener,
}

impl Followed {
    /// Calls `each` with the hint log's key of each piece of the access.
    pub(super) fn keys(&self, number: usize, mut each: impl FnMut(Piece)) {
        let access: &Access = &self.run.accesses[number];
        let object = Identity::from_raw(self.run.place(access).key);
        match access.what {
            What::Look | What::LookNoFollow => each(object.into()),
            What::List => each(object.listing().into()),
            What::Link => each(object.link().into()),
            // As the agent has it (`targets/exec.rs`).
            What::Execute => each(object.chunk(ChunkIndex(u64::MAX)).into()),
            What::Data { offset, length } | What::Touched { offset, length } => {
                object.pieces(offset, length).for_each(each);
            }
        }
    }

    /// Enters it into the log of a process, as something that need not be foreseen any more: a
    /// stall there is no reason to make a shadow.
    pub(super) fn expect(&self, number: usize, log: &HintLog) {
        self.keys(number, |piece| log.done_by_target(piece));
    }
}
