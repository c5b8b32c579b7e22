//! Reasons to run a program without the agent.

use std::error::Error;
use std::sync::Arc;

use nix::errno::Errno;

/// Reason that a program runs without the agent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotInjected {
    /// The caller cannot prepare the agent on this machine: its own reason.
    #[error(transparent)]
    Unavailable(Arc<dyn Error + Send + Sync>),
    /// Tracing would take its privileges away.
    #[error("it is set-user-ID, set-group-ID or has file capabilities")]
    Privileged,
    /// It may be a script, of an interpreter with privileges.
    #[error("its file may be executed, but not read")]
    Unreadable,
    /// No agent for its instruction set.
    #[error("it is not an x86-64 program")]
    Architecture,
    /// The kernel does not let us trace it.
    #[error("tracing it is not permitted here ({0})")]
    NotPermitted(Errno),
    /// A step of tracing failed.
    #[error("the agent could not be put into it: {what} failed: {errno}")]
    Trace {
        /// Step that failed.
        what: &'static str,
        /// Error of the kernel.
        errno: Errno,
    },
    /// The agent is in but could not start.
    #[error("the agent could not start in it ({0}); is this kernel older than 5.11?")]
    Agent(Errno),
}
