//! Who depends on which prediction, and what the processes of a session tell each other about it: the dependencies of
//! committed speculation (Nightingale, Chen and Flinn, "Speculative Execution in a Distributed File System", SOSP 2005,
//! sections 4 to 6), without a kernel that knows of them.
//!
//! All of it is one piece of memory that the processes of a session share ([`Session`]). No process is asked, and no message
//! sent, but for a signal to one that waits.
//!
//! | part | what it holds |
//! |---|---|
//! | `table` | the speculations that are open, their outcomes, and who depends on each |
//! | `tails` | what speculative processes have written to pipes, for readers in the session |
//! | `events` | what has become of them, for whoever follows that |
//! | `files` | for which files output is held somewhere in the session |
//!
//! Two rules keep it correct (section 5.3). *What is put out does not depend on an open speculation*: a pipe, a file or a terminal
//! has nothing but what is committed, and what is not lies here, where nobody outside looks. *Who sees something that does depends on it, too*:
//! a process that takes what another has only said so far begins a speculation of its own, which has no other outcome
//! than that one. So there are chains and no cycles, and what is held is written in the order of cause and effect: a process does
//! with its own what it has to, and says so ([`Came`]), before those behind it go on.
//!
//! A simulation in this crate's tests runs processes that write, read and go back, as these parts have it, and holds what comes out
//! against a run of the same processes in which nothing is predicted.
#![no_std]

#[cfg(test)]
extern crate std;

mod held_files;
mod outcome_events;
mod pipe_tails;
mod table;
#[cfg(test)]
mod tests;

pub use held_files::HeldFiles;
pub use outcome_events::{Event, Events};
pub use pipe_tails::{Pipe, PipeTails, TailFront, TailRead, TailUnavailable};
pub use table::{
    ANSWER_MAX, Counts, DEPENDENTS, Id, NotOpen, Owner, Resolution, SLOTS, Status, Table,
};

/// What is needed of whoever uses this, and of the system: the process that calls.
pub trait Host {
    /// The calling thread.
    fn current_thread(&self) -> Owner;
    /// Whether that process is still there.
    fn is_alive(&self, owner: Owner) -> bool;
    /// Somebody else is to come to work: called again and again, by one who waits.
    fn pause(&self);
    /// The thread is to look at what has come of what it depends on, or waits for.
    fn poke(&self, whom: Owner);
}

/// All that the processes of a session share of their speculations. All-zero is valid.
#[repr(C)]
pub struct Session {
    /// What is open.
    pub table: Table,
    /// What was written to pipes.
    pub tails: PipeTails,
    /// For which files output is held.
    pub files: HeldFiles,
    /// What has become of what programs have predicted.
    pub events: Events,
}
