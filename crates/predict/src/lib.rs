//! Predictions of what will be read, from hints and from what targets wait for.
//!
//! Nothing here does I/O, starts threads or reads a clock: what workers find out comes in as
//! reports, and what is to be done next goes into the caller's [`TaskQueue`].
//!
//! | module | contents |
//! |---|---|
//! | `hint_order` | order of the hints of one client |
//! | `directory_expansion` | names and directories that follow from a directory |
//! | `program_loading` | files that follow from a program, and the order of their parts |
//! | `file_guesses` | files that no hint names: neighbours, siblings, references |
//! | `guess_budget` | how much may be spent on guesses |
//! | `read_sizes` | bounds on how much of a file is read |
//! | `task_queue` | the queue that tasks wait in, as a trait |
//! | `deferred_effects` | outcomes to report, collected |
//! | `result_sink` | the receiver of outcomes, as a trait |
#![forbid(unsafe_code)]

mod deferred_effects;
mod directory_expansion;
mod file_guesses;
mod guess_budget;
mod hint_order;
mod program_loading;
mod read_sizes;
mod result_sink;
mod task_queue;
#[cfg(test)]
mod test_support;

pub use deferred_effects::{Effects, StepFailure, Submitted};
pub use directory_expansion::{Batch, Batches, ExpansionRequest, Name, PENDING_MAX, has_room};
pub use file_guesses::{
    ENTRIES_MAX, GuessKind, GuessTask, Guesses, KIND_NAMES, KINDS, NAMED_IN_MAX, Outcome,
    SCAN_BYTES, Sent, Tally, tokens,
};
pub use guess_budget::{GuessBudget, Used};
pub use hint_order::{ClientId, EntryId, Item, Rank, Tag, Tier};
pub use program_loading::{
    Dynamic, FileLead, Files, Inspector, Located, Programs, Report, Role, Task, Urgency,
};
pub use read_sizes::{EXTEND_MAX_BYTES, HINT_MAX_BYTES, PIECE_BYTES};
pub use result_sink::{Completion, LogSink, Sink};
pub use task_queue::TaskQueue;
