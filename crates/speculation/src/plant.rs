//! Rules that the simulation breaks on purpose, one at a time, to show that it would notice.

/// A rule that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plant {
    /// Who changes an object does not come to depend on what the object depends on: a reader of a
    /// pipe, for instance.
    ChangesBlindly,
    /// What a process changes does not come to depend on what the process depends on.
    ChangesUnmarked,
    /// Output is released once the last speculation before it is committed, whatever the earlier
    /// ones come to.
    ReleasesEarly,
    /// Output does not wait for what shares its checkpoint and came after it.
    ReleasesShared,
    /// Changes are undone in the order in which they were made.
    UndoesForwards,
    /// The child of a speculative process survives what its parent was wrong about.
    KeepsChildren,
    /// A checkpoint is shared although the process has changed something since.
    SharesAfterChange,
    /// A checkpoint is shared although somebody has seen the process since.
    SharesAfterSeen,
    /// A checkpoint is shared however old it is.
    SharesOld,
    /// Speculations that were created by work that is taken back stay open.
    KeepsCreated,
    /// What shares a checkpoint with an entry that is taken back is not taken back.
    SplitsShared,
    /// A process that has exited is done with at once.
    ForgetsExited,
    /// A process is taken back to its first checkpoint, whatever it was wrong about.
    GoesTooFar,
    /// Nobody is told that something depends on nothing any more.
    TellsNobody,
    /// Nobody is told that a checkpoint is not needed any more.
    KeepsCheckpoints,
}
