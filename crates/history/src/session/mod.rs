//! History of a session: records this run, and prefetches what an earlier run has read.
//!
//! | module | what it does |
//! |---|---|
//! | [`history_plan`] | plan of recording and replay, from the user's options |
//! | `session_history` | records what processes report, and checks it against the replayed run |
//! | `run_logger` | logs what is recorded, while the command runs |
//! | `replayed_run` | the run that is replayed, and the keys of its accesses in hint logs |
//! | `replay_listener` | wakes the replay, and counts what it does |
//! | [`replay`] | hands a recorded run to the prefetcher, bounded in how far it is ahead |
//! | `unchanged_files` | file systems without stored files; files that have not changed |
//! | `mutex_locking` | mutexes that stay usable after a panic |
//! | [`replay_account`] | results, for the statistics |
//!
//! For both, agents report each access of their process once (`abi::agent_config::tell`), through
//! the ring of hints. The dispatchers pass the reports on to [`History`], which records them and
//! finds the position in the recorded run.
//!
//! Invariant: a report causes no read. It goes into a file, and when that is replayed, reads have
//! the rights of *that* session. So no rights are compared here, and reports that a process made
//! before it ended are kept.

pub mod history_plan;
mod mutex_locking;
pub mod replay;
pub mod replay_account;
mod replay_listener;
mod replayed_run;
mod run_logger;
mod session_history;
#[cfg(test)]
mod tests;
mod unchanged_files;

pub use history_plan::{HistoryOptions, Learning, Plan};
pub use replay_account::HistoryStats;
pub use session_history::{History, ReporterGuard};
