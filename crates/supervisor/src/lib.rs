//! Host of a session: runs a command and its descendants, and accounts for them. Admission of their
//! hints is in [`runahead_admission`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`session_options`] | options of a session |
//! | [`session`] | start of the command with the agent in it, and the wait for its end |
//! | `session_services` | the agent's file, the control socket and the threads of a session |
//! | [`io_process`] | the process that does all that may wait for storage |
//! | `command_exit` | the end of the command |
//! | [`signal_blocking`] | blocking of our own signals while the command runs |
//! | `signal_forwarding` | forwarding of those signals to the command |
//! | [`program_prefetch`] | prefetch of programs that are about to start |
//! | [`inherited_descriptors`] | descriptors that are given up once the command runs |
//! | `descriptor_store` | descriptors that processes have given the supervisor to keep |
//! | [`control_socket`] | requests of processes: to join, and to be followed over exec |
//! | `exec_file` | the file that a process is about to execute |
//! | [`session_context`] | state that these modules share |
//! | [`joined_processes`] | joined processes, from their first stall to their end |
//! | [`shadow_sandbox`] | the sandbox of a shadow |
//! | [`try_sandbox`] | the sandbox of a try's command |
//! | [`task_limits`] | the limit of processes and threads |
//! | [`rlimits`] | resource limits under which a program is left alone |
//! | `swap_devices` | devices to which memory is swapped out |
//! | [`follow_policy`] | programs that need not be followed |
//! | [`session_stats`] | statistics of a session |

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
pub use session_options::{Faults, KeptDescriptors, Options, TryIsolation};
pub use session_stats::Stats;
