//! Requests of an agent to the supervisor, over a new socket for each request.
//!
//! The socket is `SOCK_SEQPACKET`. A request is one byte that names it and the session's token
//! (`AgentConfig::token`). Before an exec the eight bytes of a
//! [`runahead_estimators::follow_filter::ProgramKey`] follow. The answer is one byte, with a
//! descriptor beside it when it is yes. The kernel names the client (`SO_PEERCRED`).
//!
//! Before an exec more than one request may go over one socket ([`EXEC`]).

/// The first stall of a process: it wants memory to share with the supervisor. The answer's
/// descriptor is a file that holds a [`crate::Shared`].
pub const JOIN: u8 = b'J';
/// The process is about to exec and wants the agent in its new image. Beside the request comes a
/// place of the file that it executes (`O_PATH`): the supervisor looks into it, since a process
/// that closed a descriptor for reading would lose its locks on the file (fcntl(2)). After a yes it
/// is traced; the descriptor is the file described in [`crate::agent_config`], and is to survive
/// exec, under the number that the agent sends back (four bytes, and behind them what the new
/// image's agent is to be told: `overlay::inner`). Otherwise the answer may be [`COLD`] or
/// [`SCRIPT`].
pub const EXEC: u8 = b'E';
/// [`EXEC`] made again of a file that was [`COLD`]: to wait for it.
pub const EXEC_WAITS: u8 = b'W';
/// Flag of [`EXEC`] and [`EXEC_WAITS`]: the new program must not execute an instruction without the
/// agent. Otherwise the process ends, also if the supervisor does. The agent sends back a
/// [`Bequest`].
pub const STRICTLY: u8 = 0x80;

/// Message that a process which must not go on without the agent sends before its exec, behind the
/// number of the agent's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bequest {
    /// A word for the agent of the new program.
    pub word: u64,
    /// The signals that the new program begins with as blocked; until then all are.
    pub mask: u64,
}

impl Bequest {
    /// Bytes of one that is sent.
    pub const BYTES: usize = 16;

    /// Bytes of the message.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.word.to_le_bytes());
        bytes[8..].copy_from_slice(&self.mask.to_le_bytes());
        bytes
    }

    /// Parses a message; None: the bytes are another message.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (word, mask) = bytes.split_first_chunk()?;
        let mask = mask.try_into().ok()?;
        Some(Bequest { word: u64::from_le_bytes(*word), mask: u64::from_le_bytes(mask) })
    }
}

/// A file system is about to be unmounted: every shadow of the session must release what it holds.
/// The answer's descriptor means nothing.
pub const LET_GO: u8 = b'L';
/// Time that the supervisor waits after [`LET_GO`] before it answers, in milliseconds: a client has
/// to wait longer.
pub const LET_GO_MS: u32 = 2_000;

/// The process is about to change the rules under which it runs (its user, its root) and has no
/// shadows from here on. There is no answer.
pub const RULES: u8 = b'R';

/// Others are to open nothing any more: the process takes a lease, which that would break, or
/// answers for opens itself. There is nothing read ahead and no shadow in the session from then on.
/// The answer's descriptor means nothing.
pub const STOP: u8 = b'S';

/// The process speculates. The answer's descriptor is a file that holds all that the session shares
/// of its speculations (`runahead_speculation::Session`).
pub const SPECULATES: u8 = b'P';
/// The process has a descriptor for userfaultfd(2), which comes beside the request: the supervisor
/// is to keep it, in place of one that it may have of that process, until the process ends. The
/// answer's descriptor means nothing.
pub const KEEP: u8 = b'K';
/// The process wants the descriptor that it gave with [`KEEP`].
pub const LEND: u8 = b'B';
/// The supervisor is to close it. The answer's descriptor means nothing.
pub const FORGET: u8 = b'F';

/// The process wants to write to the name of one of its threads, of which an `O_PATH` descriptor
/// comes beside the request (`/proc/PID/task/TID/comm`, or `/proc/PID/comm`). Landlock denies it
/// that in a try. The answer's descriptor is open for reading and writing.
pub const THREAD_NAME: u8 = b'N';

/// The process is about to trace another, whose number stands behind the request in eight bytes.
/// That one gives interception up first, if it is of the session. The answer's descriptor means
/// nothing.
pub const TRACES: u8 = b'T';
/// Time that the supervisor waits after [`TRACES`] before it answers, in milliseconds.
pub const TRACES_MS: u32 = 200;
/// The process has given interception up, as it was asked. There is no answer.
pub const GAVE_UP: u8 = b'G';
/// Value of the queued SIGSYS that asks a process to give interception up.
pub const GIVE_UP_VALUE: u64 = 0x7261_6864_6c65_6176;

/// Answer: done.
pub const YES: u8 = b'y';
/// Answer: not done; the process is to go on without.
pub const NO: u8 = b'n';
/// The file's start is not in memory. To be asked again with [`EXEC_WAITS`].
pub const COLD: u8 = b'c';
/// The file is a script. Behind this byte comes the name of its interpreter, for which to ask next.
pub const SCRIPT: u8 = b's';

/// Bytes of an answer at most: as much of a file as the kernel looks at for `#!`
/// (`BINPRM_BUF_SIZE`).
pub const ANSWER_BYTES: usize = 256;

/// The signal by which a process that is traced says that its exec has failed. By default it is
/// ignored; the tracer keeps it to itself.
pub const EXEC_FAILED: u32 = 23;
/// Value that `sigqueue` sends with the signal.
pub const EXEC_FAILED_VALUE: u64 = 0x7261_6865_7865_6366;
