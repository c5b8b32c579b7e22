//! What becomes of a call, and what a call waits for.

use runahead_abi::{HintKind, Piece};

use crate::hint_sender::Hint;
use crate::sys::Fd;

/// What became of a call.
pub(super) enum Outcome {
    /// The call is to be made as it stands.
    Native,
    /// Result of the call.
    Answer(i64),
    /// This is the shadow, and the call is still to be answered.
    InShadow,
}

/// Which process returns from a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SyncSide {
    /// The target, which goes on to wait for its data.
    Target,
    /// A runner of the shadow, sandboxed, at the same point.
    Shadow,
}

/// A wait for something that the log may know some of.
pub(super) struct Stall<'a> {
    /// What the log calls it.
    pub piece: Piece,
    pub hint: Hint<'a>,
    /// Where in a file the wait begins.
    pub wait_offset: u64,
    /// The object's name is `path` seen from `dir`; empty: the object is `dir` itself.
    pub dir: Fd,
    pub path: &'a [u8],
}

impl Stall<'_> {
    /// What the log is to know of what is asked for, which may be more than is waited for.
    pub(super) fn demanded_piece(&self, offset: u64, length: u64) -> Piece {
        let Hint { kind, object, .. } = self.hint;
        if kind == HintKind::Data { object.first_piece(offset, length) } else { self.piece }
    }
}
