//! A session: a command and its descendants, their shadows, the prefetcher, and the account of it all.
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
//! | [`dispatcher`] | takes a process's hints to the prefetcher, and decides when its shadow runs again |
//! | `progress` | what came of a process's hints |
//! | [`waits`] | on which devices somebody has waited of late |
//! | [`wake`] | how dispatcher, agents and shadows wake each other |
//! | [`sandbox`] | prepares what the kernel will deny a shadow |
//! | [`rights`] | whether a process may have us read for it |
//! | [`tasks`] | how many processes and threads there may be |
//! | [`limits`] | under which programs are better left alone |
//! | [`throttle`] | keeps what shadows take within bounds |
//! | `ahead` | what was hinted and not used yet |
//! | [`sole`] | storage on which nothing is gained |
//! | [`without`] | what can be switched off, to measure what it is worth |
//! | [`ghost`] | stalls that were added |
//! | [`ledger`] | what prefetching takes and gives, in all processes |
//! | [`budget`] | how much memory prefetched data may take |
//! | [`unwatched`] | which programs need not be followed |
//! | [`history`] | the memory of earlier runs |
//! | [`degraded`] | what had to be done without |
//! | `proc` | what the kernel says in files of text |
//! | [`stats`] | says what happened |

mod ahead;
pub mod beside;
pub mod budget;
mod clock;
pub mod common;
pub mod degraded;
pub mod descriptors;
pub mod dispatcher;
mod engine;
pub mod ghost;
pub mod history;
mod image;
pub mod ledger;
pub mod limits;
pub mod members;
pub mod memory;
mod mounts;
pub mod options;
mod passing;
mod proc;
pub mod programs;
mod progress;
pub mod rights;
pub mod sandbox;
pub mod session;
pub mod signals;
pub mod socket;
pub mod sole;
pub mod stats;
pub mod tasks;
pub mod throttle;
pub mod unwatched;
mod wait;
pub mod waits;
pub mod wake;
pub mod without;

pub use options::{Faults, Keep, Options};
pub use runahead_inject::Ended;
pub use session::{SessionError, run};
pub use stats::Stats;
pub use without::Without;
