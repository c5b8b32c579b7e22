//! History of a session: records this run, and fetches what an earlier one has read.
//!
//! | module | what it does |
//! |---|---|
//! | [`history_plan`] | what the user asked for, and what is there |
//! | `session_history` | records what processes report, and checks it against the replayed run |
//! | `followed_run` | the run that is replayed, and what the logs of processes call its accesses |
//! | `replay_listener` | wakes the replay, and counts what it does |
//! | [`replay`] | hands a recorded run to the prefetcher, bounded in how far it is ahead |
//! | `unchanged_files` | what lies where, and whether it is what it was |
//! | [`replay_account`] | what came of it |
//!
//! With either, agents tell each thing that their process reads, once (`abi::config::tell`), by the
//! ring that hints take. The dispatchers bring it here, to be recorded and to say where in the
//! recorded run this one is.
//!
//! Invariant: what is told here makes nothing be read. It goes into a file that names what the user
//! reads, and when that is replayed that happens with the rights of *that* session. So no
//! rights are compared here, and what a process told before it ended is kept.

pub mod history_plan;
pub mod replay;
pub mod replay_account;
mod replay_listener;
mod replayed_run;
mod session_history;
#[cfg(test)]
mod tests;
mod unchanged_files;

pub use history_plan::{HistoryOptions, Learning, Plan};
pub use replay_account::HistoryStats;
pub use session_history::{History, ReporterGuard};
