//! The host of a session: a command and its descendants, and the account of it all. (What becomes
//! of their hints: [`runahead_admission`].)
//!
//! | module | what it does |
//! |---|---|
//! | [`session_options`] | how it is to run |
//! | [`session`] | starts the command with the agent in it, and waits for it |
//! | `engine` | what it has beside the command: the agent's file, the control socket, the threads |
//! | [`io_process`] | the process in which all is done that may wait for storage |
//! | `wait` | how the command ends |
//! | [`signal_blocking`] | our own wait while a command runs |
//! | `passing` | passes them on to it |
//! | [`program_prefetch`] | programs that are about to start, which are brought in |
//! | [`inherited_descriptors`] | are given up once it runs |
//! | [`control_socket`] | where programs ask: to join, and to be followed over exec |
//! | `image` | what a file is that a process is about to execute |
//! | [`session_context`] | what they share |
//! | [`joined_processes`] | the processes that have joined, from their first stall to their end |
//! | [`shadow_sandbox`] | prepares what the kernel will deny a shadow |
//! | [`try_sandbox`] | what the kernel denies a command whose changes are held apart |
//! | [`task_limits`] | how many processes and threads there may be |
//! | [`rlimits`] | under which programs are better left alone |
//! | [`follow_policy`] | which programs need not be followed |
//! | [`session_stats`] | says what happened |

mod command_exit;
pub mod control_socket;
mod descriptor_store;
mod exec_file;
pub mod follow_policy;
pub mod inherited_descriptors;
pub mod io_process;
pub mod joined_processes;

pub mod program_prefetch;
pub mod rlimits;

pub mod session;
pub mod session_context;
pub mod session_options;
mod session_services;
pub mod session_stats;
pub mod shadow_sandbox;
pub mod signal_blocking;
mod signal_forwarding;
mod swap_devices;
pub mod task_limits;
pub mod try_sandbox;

pub use runahead_admission::Without;
pub use runahead_inject::Ended;
pub use session::{SessionError, run};
pub use session_options::{Faults, HeldApart, Keep, Options};
pub use session_stats::Stats;
