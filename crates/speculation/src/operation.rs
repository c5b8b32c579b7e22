//! What the host tells of, and what it is answered.

use std::time::Duration;

use crate::ids::{CheckpointId, ObjectId, ProcessId, SpecId, Thing, UndoId};

/// Bounds of a tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Speculations that may be open at a time.
    pub open: usize,
    /// A checkpoint that is as old as this is not shared any more, so that no more work than that
    /// is done again needlessly.
    pub share: Duration,
}

impl Default for Limits {
    /// Those of section 5.2: 2,000 and 500 ms.
    fn default() -> Self {
        Limits { open: 2_000, share: Duration::from_millis(500) }
    }
}

/// When an operation is performed, and from which state of the process it can be performed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The time, by a clock that does not go backwards.
    pub now: Duration,
    /// A checkpoint that was taken for this operation, just before it. A host may take one without
    /// having been asked to: then less is taken back if what the process sees fails.
    pub checkpoint: Option<CheckpointId>,
}

impl Moment {
    /// No checkpoint has been taken: the operation is refused with
    /// [`Refused::NeedsCheckpoint`] if it needs one.
    pub fn at(now: Duration) -> Self {
        Moment { now, checkpoint: None }
    }

    /// The same moment, with a checkpoint.
    pub fn with(self, checkpoint: CheckpointId) -> Self {
        Moment { checkpoint: Some(checkpoint), ..self }
    }
}

/// What the process is taken back to if what it has just come to depend on fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Return {
    /// It depends on nothing new. A checkpoint that was taken for the operation is not used: the
    /// host discards it.
    Unneeded,
    /// The checkpoint that was taken for the operation.
    Own(CheckpointId),
    /// The checkpoint that an operation before it has, too.
    Shared(CheckpointId),
}

/// Whether an operation whose result is predicted changes what others see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It only asks.
    ReadOnly,
    /// It changes something, at a server for instance. What follows does not share its
    /// checkpoint, as others may have seen the change by then.
    Changes,
}

/// A speculation that was created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Created {
    /// Its name, by which it is committed or failed.
    pub spec: SpecId,
    /// Open speculations on which it depends, the oldest first.
    pub after: Vec<SpecId>,
    /// What the process is taken back to if it fails.
    pub back: Return,
}

/// One operation of a process on any number of things, as a whole.
#[derive(Clone, Copy, Default, Debug)]
pub struct Access<'a> {
    /// What it looks at.
    pub observes: &'a [Thing],
    /// What it changes, and so looks at, too; with what undoes each change.
    pub changes: &'a [(ObjectId, UndoId)],
    /// What it makes anew; with what removes each again.
    pub makes: &'a [(ObjectId, UndoId)],
}

/// What became of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accessed {
    /// What the process is taken back to if what it has seen fails.
    pub back: Return,
    /// What undoes the changes is kept until the tracker says what becomes of it. Otherwise the
    /// process and what it changed depend on nothing, and the host discards it.
    pub kept: bool,
}

/// What becomes of output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// It goes where it is meant to go.
    Now,
    /// It is kept until the tracker says what becomes of it.
    Held,
}

/// Why nothing was done. The tracker is as it was before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The process comes to depend on more than before, and has no checkpoint that it could
    /// share. The host takes one and tells of the operation again, or has the process wait.
    #[error("{0} needs a checkpoint before that")]
    NeedsCheckpoint(ProcessId),
    /// As many speculations are open as may be.
    #[error("{0} speculations are open, which is as many as may be")]
    TooMany(usize),
    /// The process has exited, and cannot do anything.
    #[error("{0} has exited")]
    Exited(ProcessId),
    /// The process that is waited for has not exited.
    #[error("{0} has not exited")]
    Alive(ProcessId),
    /// What is made anew is there already, and speculative.
    #[error("{0:?} is there already")]
    Exists(Thing),
    /// The speculation has been committed, failed or forgotten.
    #[error("{0} is not open")]
    Resolved(SpecId),
}
