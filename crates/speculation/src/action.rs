//! What the host is told to do.

use crate::ids::{CheckpointId, HeldId, ObjectId, ProcessId, SpecId, Thing, UndoId};

/// Something that the host has to do, once. Those that one call answers with are done in their
/// order, and before the next call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The speculation was created by work that is being taken back. It does not exist any more:
    /// nobody shall commit it or fail it.
    Forget(SpecId),
    /// The output goes where it was meant to go.
    Release(HeldId),
    /// The output is thrown away.
    Drop(HeldId),
    /// The change of the thing is undone, which nothing but changes that have been undone came
    /// after. If it is the making of an object, the object ceases to exist.
    Undo(Thing, UndoId),
    /// The process ends, without a trace, and its number is free: on the right path it may never
    /// have existed.
    Destroy(ProcessId),
    /// The process goes on from the checkpoint, which is gone with that; also if it has exited
    /// since.
    RollBack(ProcessId, CheckpointId),
    /// The checkpoint is not needed any more.
    DiscardCheckpoint(ProcessId, CheckpointId),
    /// The change of the thing will not be undone.
    DiscardUndo(Thing, UndoId),
    /// The object depends on nothing any more.
    Settled(ObjectId),
    /// The process depends on nothing any more.
    Wake(ProcessId),
    /// The process, which has exited, depends on nothing any more: it will not be taken back to
    /// before its exit, nor what was done about its exit.
    MayGo(ProcessId),
}
