//! A session: a command and its descendants, their shadows, the prefetcher, and the account of it all.
//!
//! | module | what it does |
//! |---|---|
//! | [`session`] | starts the command with the agent in it, and waits for it |
//! | `engine` | what it has beside the command: the agent's file, the desk, the threads |
//! | [`beside`] | the process in which all is done that may wait for storage |
//! | `wait` | how the command ends |
//! | [`programs`] | programs that are about to start, which are brought in |
//! | [`descriptors`] | are given up once it runs |
//! | [`desk`] | where programs ask: to join, and to be followed over exec |
//! | `image` | what a file is that a process is about to execute |
//! | [`members`] | the processes that have joined, from their first stall to their end |
//! | [`dispatcher`] | takes a process's hints to the prefetcher, and decides when its shadow runs again |
//! | `progress` | what came of a process's hints |
//! | [`waits`] | on which devices somebody has waited of late |
//! | [`wake`] | how dispatcher, agents and shadows wake each other |
//! | [`sandbox`] | prepares what the kernel will deny a shadow |
//! | [`rights`] | whether a process may have us read for it |
//! | [`tasks`] | how many processes and threads there may be |
//! | [`limits`] | under which programs are better left alone |
//! | [`keeper`] | keeps what shadows take within bounds |
//! | `ahead` | what was hinted and not used yet |
//! | [`sole`] | storage on which nothing is gained |
//! | [`without`] | what can be switched off, to measure what it is worth |
//! | [`ghost`] | stalls that were added |
//! | [`budget`] | how much memory prefetched data may take |
//! | [`unwatched`] | which programs need not be followed |
//! | [`history`] | the memory of earlier runs |
//! | [`losses`] | what had to be done without |
//! | [`stats`] | says what happened |

mod ahead;
pub mod beside;
pub mod budget;
mod clock;
pub mod descriptors;
pub mod desk;
pub mod dispatcher;
mod engine;
pub mod ghost;
pub mod history;
mod image;
pub mod keeper;
pub mod limits;
pub mod losses;
pub mod members;
pub mod memory;
mod mounts;
pub mod programs;
mod progress;
pub mod rights;
pub mod sandbox;
pub mod session;
pub mod signals;
pub mod sole;
pub mod stats;
pub mod tasks;
pub mod unwatched;
mod wait;
pub mod waits;
pub mod wake;
pub mod without;

pub use runahead_inject::Ended;
pub use session::{Faults, Keep, Options, SessionError, run};
pub use stats::Stats;
pub use without::Without;
