//! Outcome of a call, and the description of a wait.

use runahead_abi::HintKind;
use runahead_estimators::Piece;

use crate::hint_sender::Hint;
use crate::read_extent::FileRange;
use crate::sys::Fd;

/// Decision of the policy on a call.
pub(super) enum Outcome {
    /// The caller makes the call as it stands.
    Native,
    /// Result of the call, which has been made.
    Answer(i64),
    /// This process is now the shadow, and the call is still to be answered.
    InShadow,
}

/// Process that returns from a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SyncSide {
    /// The target, which goes on to wait for its data.
    Target,
    /// A runner of the shadow, sandboxed, at the same point.
    Shadow,
}

/// A wait for an object that the hint log may know.
pub(super) struct Stall<'a> {
    /// Key of the object in the hint log.
    pub piece: Piece,
    pub hint: Hint<'a>,
    /// File offset at which the wait begins, in bytes.
    pub wait_offset: u64,
    /// Directory or object: the object's name is `path` seen from `dir`; if `path` is empty it is
    /// `dir` itself.
    pub dir: Fd,
    pub path: &'a [u8],
}

impl Stall<'_> {
    /// Piece to enter into the hint log for the I/O that is demanded, which may be more than the
    /// call waits for.
    pub(super) fn demanded_piece(&self, range: FileRange) -> Piece {
        let Hint { kind, object, .. } = self.hint;
        match kind {
            HintKind::Data => object.first_piece(range.offset, range.length),
            _ => self.piece,
        }
    }
}
