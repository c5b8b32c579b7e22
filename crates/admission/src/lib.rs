//! Admission of hints: what the prefetcher gets of what the processes of a session ask for, and whether they have shadows.
//!
//! | module | what it does |
//! |---|---|
//! | [`common`] | what the processes have in common |
//! | [`dispatcher`] | takes a process's hints to the prefetcher, and decides when its shadow runs again |
//! | `progress` | what came of a process's hints |
//! | `throttle` | keeps what shadows take within bounds |
//! | `uses` | what of it was used of mapped files |
//! | `ahead` | what was hinted and not used yet |
//! | [`ghost`] | stalls that were added |
//! | [`ledger`] | what prefetching takes and gives, in all processes |
//! | [`budget`] | how much memory prefetched data may take |
//! | [`sole`] | storage on which nothing is gained |
//! | [`without`] | what can be switched off, to measure what it is worth |

mod ahead;
pub mod budget;
pub mod common;
pub mod crowd;
pub mod dispatcher;
pub mod ghost;
pub mod ledger;
mod progress;
pub mod sole;
mod throttle;
mod uses;
pub mod without;

pub use common::Common;
pub use dispatcher::Dispatcher;
pub use without::Without;
