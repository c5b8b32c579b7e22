//! What an agent asks the supervisor for, over a socket of its own for each request.
//!
//! The socket is `SOCK_SEQPACKET`: one byte says what is wanted, and the session's token who asks
//! (`AgentConfig::token`), one byte comes back, with a
//! descriptor beside it when the answer is yes. Who asks is the kernel's to say (`SO_PEERCRED`).

/// The first stall of a process: it wants memory to share with the supervisor. The answer's
/// descriptor is a file that holds a [`crate::Shared`].
pub const JOIN: u8 = b'J';
/// The process is about to exec and wants the agent in its new image. After a yes it is traced;
/// the descriptor is the file described in [`crate::config`], and is to survive exec, under the
/// number that the agent sends back (four bytes).
pub const EXEC: u8 = b'E';

/// Something is about to be unmounted: every shadow of the session is to let go of what it holds. The
/// answer's descriptor means nothing.
pub const LET_GO: u8 = b'L';

/// Done.
pub const YES: u8 = b'y';
/// Not done; go on without.
pub const NO: u8 = b'n';

/// The signal by which a process that is traced says that its exec has failed. By default it is
/// ignored; the tracer keeps it to itself.
pub const EXEC_FAILED: u32 = 23;
/// What `sigqueue` sends along with it.
pub const EXEC_FAILED_VALUE: u64 = 0x7261_6865_7865_6366;
