//! Admission: decides which hints of a session's processes reach the prefetcher, and which
//! processes have shadows.
//!
//! | module | what it does |
//! |---|---|
//! | [`session_admission`] | state that the dispatchers of a session share |
//! | [`process`] | a process that has joined, as its supervisor sees it |
//! | [`dispatcher`] | takes a process's hints to the prefetcher, decides when its shadow reruns |
//! | `hint_progress` | counts of one process's hints: sent, done, used |
//! | `throttle` | bounds on what the shadows of one process take |
//! | `page_usage` | which prefetched pages of mapped files and swap were used |
//! | `outstanding_hints` | bytes hinted and not yet used |
//! | [`session_load`] | how many threads of the session wait at a time |
//! | [`session_totals`] | sums over all processes |
//! | [`memory_budget`] | how much memory prefetched data may take |
//! | [`single_spindle`] | storage that serves one request at a time |
//! | [`slow_devices`] | devices on which a process has waited lately |
//! | [`mount_table`] | file systems in memory, local and remote |
//! | [`rotational`] | rotational disks |
//! | [`degradation_counts`] | facilities that a session had to do without |
//! | [`ablation`] | mechanisms that can be switched off to be measured |

pub mod ablation;
pub mod degradation_counts;
pub mod dispatcher;
mod hint_progress;
pub mod memory_budget;
pub mod mount_table;
mod outstanding_hints;
mod page_usage;
pub mod process;
pub mod rotational;
pub mod session_admission;
pub mod session_load;
pub mod session_totals;
pub mod single_spindle;
pub mod slow_devices;
mod throttle;

pub use ablation::Without;
pub use dispatcher::Dispatcher;
pub use session_admission::SessionAdmission;
