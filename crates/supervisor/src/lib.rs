//! The host of a session: a command and its descendants, and the account of it all. (What becomes of their hints:
//! [`runahead_admission`].)
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | how it is to run |
//! | [`session`] | starts the command with the agent in it, and waits for it |
//! | `engine` | what it has beside the command: the agent's file, the control socket, the threads |
//! | [`beside`] | the process in which all is done that may wait for storage |
//! | `wait` | how the command ends |
//! | [`signals`] | our own wait while a command runs |
//! | `passing` | passes them on to it |
//! | [`programs`] | programs that are about to start, which are brought in |
//! | [`descriptors`] | are given up once it runs |
//! | [`socket`] | where programs ask: to join, and to be followed over exec |
//! | `image` | what a file is that a process is about to execute |
//! | [`common`] | what they share |
//! | [`members`] | the processes that have joined, from their first stall to their end |
//! | [`sandbox`] | prepares what the kernel will deny a shadow |
//! | [`confine`] | what the kernel denies a command whose changes are held apart |
//! | [`tasks`] | how many processes and threads there may be |
//! | [`limits`] | under which programs are better left alone |
//! | [`unwatched`] | which programs need not be followed |
//! | [`history`] | the memory of earlier runs |
//! | [`stats`] | says what happened |

pub mod beside;
pub mod common;
pub mod confine;
pub mod descriptors;
mod engine;
pub mod history;
mod image;
mod kept;
pub mod limits;
pub mod members;
mod mounts;
pub mod options;
mod passing;
pub mod programs;
pub mod sandbox;
pub mod session;
pub mod signals;
pub mod socket;
pub mod stats;
mod swaps;
pub mod tasks;
mod turning;
pub mod unwatched;
mod wait;

pub use options::{Faults, HeldApart, Keep, Options};
pub use runahead_admission::Without;
pub use runahead_inject::Ended;
pub use session::{SessionError, run};
pub use stats::Stats;
