//! Reasons for which no agent can be prepared for a command.

use std::sync::Arc;

use runahead_abi::OPT_OUT;
use runahead_inject::NotInjected;
use rustix::io::Errno;

use crate::rlimits::LimitTooLow;
use crate::shadow_sandbox::SandboxError;

/// Reason for which no agent can be prepared for a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentUnavailable {
    /// The user wants none.
    #[error("{OPT_OUT} is in its environment")]
    OptedOut,
    /// This process runs in a try, whose agent it has.
    #[error("it is a command of a try, whose agent is in it")]
    InsideTry,
    /// A limit of this process is too low.
    #[error(transparent)]
    Limit(LimitTooLow),
    /// The agent's file cannot be made.
    #[error("memory to share with programs cannot be had ({0})")]
    SharedMemory(Errno),
    /// The agent's file cannot be written.
    #[error("memory to share with programs cannot be filled ({0})")]
    FileContents(std::io::Error),
    /// The control socket cannot be opened.
    #[error("a socket for the programs to ask at cannot be had ({0})")]
    ControlSocket(Errno),
    /// The session's token cannot be made.
    #[error("there are no random numbers here ({0})")]
    Token(Errno),
    /// The sandbox of shadows cannot be built.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The I/O process cannot be started.
    #[error("no process can be had beside it to read ahead in ({0})")]
    IoProcess(Errno),
}

impl From<AgentUnavailable> for NotInjected {
    fn from(why: AgentUnavailable) -> Self {
        NotInjected::Unavailable(Arc::new(why))
    }
}
