//! Runs a session: a command and its descendants with the agent in them.
//!
//! Hints of the processes are handled by [`runahead_admission`].
//!
//! | module | what it does |
//! |---|---|
//! | [`session`] | starts the command with the agent in it, and waits for it |
//! | [`session_options`] | options of a session |
//! | [`session_context`] | services and limits that all processes of a session share |
//! | `session_services` | starts and stops the control socket, the I/O process and the threads |
//! | [`session_stats`] | statistics of a session |
//! | [`io_process`] | the process that does everything that may wait for storage |
//! | `agent_unavailable` | reasons for which no agent can be prepared |
//! | `command_exit` | waits for the command's end |
//! | [`remaining_processes`] | waits for processes that the command has left |
//! | [`signal_blocking`] | blocks the supervisor's own signals while a command runs |
//! | `signal_forwarding` | forwards signals to the command |
//! | [`inherited_descriptors`] | closes inherited descriptors once the command runs |
//! | [`control_socket`] | serves requests of the processes: to join, to follow an exec |
//! | `descriptor_store` | keeps descriptors for processes |
//! | `exec_file` | kind of the file that a process is about to execute |
//! | [`follow_policy`] | programs that are not followed for a while |
//! | [`program_prefetch`] | prefetches programs that are about to start |
//! | [`joined_processes`] | processes that have joined, from their first stall to their end |
//! | [`shadow_sandbox`] | builds the sandbox of shadows |
//! | `traced_processes` | has processes give interception up before others trace them |
//! | `thread_names` | opens names of threads for processes of a try |
//! | [`try_sandbox`], `try_ioctls`, `network_refusal` | confine the command of a try |
//! | [`task_limits`] | limits processes and threads of a session |
//! | [`rlimits`] | resource limits that are too low for the agent |
//! | `swap_devices` | devices that the machine swaps to |

mod agent_unavailable;
mod command_exit;
pub mod control_socket;
mod descriptor_store;
mod exec_file;
pub mod follow_policy;
pub mod inherited_descriptors;
pub mod io_process;
pub mod joined_processes;
mod network_refusal;
pub mod program_prefetch;
pub mod remaining_processes;
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
mod thread_names;
mod traced_processes;
mod try_ioctls;
pub mod try_sandbox;

pub use runahead_admission::Without;
pub use runahead_inject::Ended;
pub use session::{SessionError, run};
pub use session_options::{Faults, KeptDescriptors, Options, TryIsolation};
pub use session_stats::Stats;
