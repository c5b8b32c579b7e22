//! Who depends on which prediction, what is held back, and what a commit or a failure comes to: the
//! dependencies of committed speculation after Nightingale, Chen and Flinn, "Speculative Execution
//! in a Distributed File System" (SOSP 2005), sections 4, 5.2 and 6.
//!
//! A process that would have to wait for a result goes on with a predicted one, a *speculation*,
//! until it is known what the result is. By then it may have changed files, written to pipes,
//! forked, or exited, and others may have seen that. The [`Tracker`] knows all of these, so that
//! when a prediction comes true, what was held back is let go, and when it does not, exactly what
//! depends on it is taken back.
//!
//! It makes no system call and reads no clock: its host tells it what processes do and what time
//! it is, and carries out what it answers ([`Action`]). The [`Tracker`] therefore runs in a
//! simulation as it runs in a session.
//!
//! | module | what it holds |
//! |---|---|
//! | `tracker` | the operations that a host tells of |
//! | `commit`, `fail` | what the resolution of a speculation comes to |
//! | `state` | open speculations and undo logs together |
//! | `log` | the undo log of one process or object |
//! | `specs` | which speculations are open, and who refers to them |
//! | `set` | sets of open speculations |
//! | `operation`, `action`, `ids` | what host and tracker tell each other |
//!
//! Two rules keep it correct (section 5.3): what is put out does not depend on an open speculation,
//! and who sees something that does depends on it, too. A simulation in this crate's tests holds
//! them against a model without speculation.
//!
//! ```
//! use std::time::Duration;
//! use runahead_speculation::*;
//!
//! # fn main() -> Result<(), Refused> {
//! let (writer, reader, pipe) = (ProcessId(1), ProcessId(2), ObjectId(1));
//! let mut tracker = Tracker::new(Limits::default());
//! let now = Moment::at(Duration::ZERO);
//!
//! // The writer goes on with a prediction, and writes to the pipe what follows from it.
//! let refused = tracker.create(writer, Effect::ReadOnly, now);
//! assert_eq!(refused, Err(Refused::NeedsCheckpoint(writer)));
//! let before = CheckpointId(1);
//! let spec = tracker.create(writer, Effect::ReadOnly, now.with(before))?.spec;
//! let write = Access { changes: &[(pipe, UndoId(1))], ..Access::default() };
//! assert!(tracker.access(writer, write, now)?.kept);
//!
//! // The reader reads it, and says something about it.
//! let read = Access { changes: &[(pipe, UndoId(2))], ..Access::default() };
//! tracker.access(reader, read, now.with(CheckpointId(2)))?;
//! assert_eq!(tracker.output(reader, HeldId(1))?, Output::Held);
//!
//! // The prediction was wrong.
//! let actions = tracker.fail(spec)?;
//! assert_eq!(
//!     actions[..5],
//!     [
//!         Action::Drop(HeldId(1)),
//!         Action::Undo(pipe.into(), UndoId(2)),
//!         Action::Undo(pipe.into(), UndoId(1)),
//!         Action::RollBack(writer, before),
//!         Action::RollBack(reader, CheckpointId(2)),
//!     ]
//! );
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod action;
mod commit;
mod fail;
mod ids;
mod log;
mod operation;
mod plant;
mod set;
mod specs;
mod state;
#[cfg(test)]
mod tests;
mod tracker;

pub use action::Action;
pub use ids::{CheckpointId, HeldId, ObjectId, ProcessId, SpecId, Thing, UndoId};
pub use operation::{Access, Accessed, Created, Effect, Limits, Moment, Output, Refused, Return};
pub use tracker::Tracker;
