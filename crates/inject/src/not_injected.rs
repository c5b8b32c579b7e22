//! Reasons to run a program without the agent.

use nix::errno::Errno;

/// Reason that a program runs without the agent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotInjected {
    /// This machine lacks something.
    #[error("{0}")]
    Unavailable(String),
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
    /// Something failed on the way in.
    #[error("the agent could not be put into it: {0}")]
    Trace(String),
    /// The agent is in but could not start.
    #[error("the agent could not start in it ({0}); is this kernel older than 5.11?")]
    Agent(Errno),
}
