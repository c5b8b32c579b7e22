//! Admission of hints: what the prefetcher gets of what the processes of a session ask for, and whether they have shadows.
//!
//! | module | what it does |
//! |---|---|
//! | [`session_admission`] | what the processes have in common |
//! | [`dispatcher`] | takes a process's hints to the prefetcher, and decides when its shadow runs again |
//! | `progress` | what came of a process's hints |
//! | `throttle` | keeps what shadows take within bounds |
//! | `uses` | what of it was used of mapped files |
//! | `ahead` | what was hinted and not used yet |
//! | [`refault`] | stalls that were added |
//! | [`session_totals`] | what prefetching takes and gives, in all processes |
//! | [`memory_budget`] | how much memory prefetched data may take |
//! | [`single_spindle`] | storage on which nothing is gained |
//! | [`ablation`] | what can be switched off, to measure what it is worth |

pub mod ablation;
pub mod dispatcher;
mod hint_progress;
pub mod memory_budget;
mod outstanding_hints;
mod page_usage;
pub mod refault;
pub mod session_admission;
pub mod session_load;
pub mod session_totals;
pub mod single_spindle;
mod throttle;

pub use ablation::Without;
pub use dispatcher::Dispatcher;
pub use session_admission::Common;
