//! Dependencies between the speculations of a session's processes: committed speculation
//! (Nightingale, Chen and Flinn, "Speculative Execution in a Distributed File System", SOSP 2005,
//! sections 4 to 6), without kernel support.
//!
//! All state is one piece of memory that the processes share ([`Session`]). There are no messages,
//! only signals that poke a waiting thread.
//!
//! | part | what it holds |
//! |---|---|
//! | `table` | open speculations, their outcomes, and the processes that depend on each |
//! | `pipe_tails` | speculative data written to pipes, for readers in the session |
//! | `outcome_events` | a log of predictions and their outcomes |
//! | `host_interface` | calls to the process and the system; words that name threads to poke |
//! | `held_files` | files for which some process of the session holds output |
//! | `mapped_files` | files that some process of the session has mapped |
//!
//! Two rules keep it correct (section 5.3). *Output does not depend on an open speculation*: a
//! pipe, file or terminal holds only committed data. Speculative data lies here, where no process
//! outside the session looks. *A process that sees speculative data depends on it, too*: it begins
//! a speculation of its own, with the same outcome.
//!
//! So dependencies form chains, never cycles. Held output is written in the order of cause and
//! effect: a process completes its own and records the resolution ([`Resolution`]) before its
//! dependents continue.
//!
//! A simulation in this crate's tests runs processes that write, read and roll back by way of these
//! parts. It compares their output with a run of the same processes without predictions.
#![no_std]

#[cfg(test)]
extern crate std;

mod held_files;
mod host_interface;
mod mapped_files;
mod outcome_events;
mod pipe_tails;
mod table;
#[cfg(test)]
mod tests;

pub use held_files::HeldFiles;
pub use host_interface::{Host, Owner};
pub use mapped_files::MappedFiles;
pub use outcome_events::{Event, Events};
pub use pipe_tails::{Pipe, PipeTails, TailFront, TailRead, TailUnavailable};
pub use table::{ANSWER_MAX, Counts, DEPENDENTS, Id, NotOpen, Resolution, SLOTS, Status, Table};

/// Shared memory of a session's speculations. All-zero is valid.
#[repr(C)]
pub struct Session {
    /// Open speculations.
    pub table: Table,
    /// Speculative data written to pipes.
    pub tails: PipeTails,
    /// Files for which output is held.
    pub files: HeldFiles,
    /// Files that processes have mapped.
    pub mapped: MappedFiles,
    /// Log of predictions and outcomes.
    pub events: Events,
}
