//! Protocol of predictions: a system call that the kernel always refuses.
//!
//! The call is `fadvise64(MAGIC, what, a, b, c, 0)`. No descriptor is negative, so the kernel
//! answers EBADF before it looks at anything else. Under runahead the agent gets the program's
//! calls before the kernel does, and knows the number.
//!
//! | what | a | b | c | answer |
//! |---|---|---|---|---|
//! | `BEGIN` | where to write the id | PID that will settle it, or 0 | 0 | 0; after a rollback 1 |
//! | `COMMIT` | an id | 0 | 0 | 0 |
//! | `FAIL` | an id | address of what is right instead | bytes of that | 0 |
//! | `ANSWER` | an id | where to write what `FAIL` said | bytes there | bytes written |
//! | `SET_POLICY` | a descriptor | a [`Policy`] | 0 | the one before |
//! | `OPEN` | where to write ids | how many fit | 0 | how many are open in this process |
//! | `BARRIER` | 0 | 0 | 0 | 0, once nothing is open in this process |
//! | `EVENTS` | address of a position | where to write events | how many fit | events written |
//!
//! `BEGIN` returns 0 when the program speculates. If the prediction was wrong, the call returns a
//! second time, with 1.
//! `EVENTS` advances the position; [`NOW`] stands for that of the next event. Each event is an id
//! and an [`Event`].
//!
//! Errors are negative errnos. EBADF: no agent listens. ESRCH: no such speculation is open. Any
//! other says why the process cannot speculate now; it continues without.

/// Value in place of a descriptor; the upper half of its register does not count.
pub const MAGIC: i32 = 0x9d15_5bec_u32 as i32;

/// Version of the protocol, in the upper half of the second argument.
const VERSION: u64 = 1 << 32;
/// The process goes on as if a prediction had come true.
pub const BEGIN: u64 = VERSION | 1;
/// A prediction was right.
pub const COMMIT: u64 = VERSION | 2;
/// A prediction was wrong.
pub const FAIL: u64 = VERSION | 3;
/// Asks for the right answer of a failed prediction.
pub const ANSWER: u64 = VERSION | 4;
/// Sets the policy of a descriptor's output.
pub const SET_POLICY: u64 = VERSION | 5;
/// Asks for the speculations that this process depends on.
pub const OPEN: u64 = VERSION | 6;
/// Waits until this process depends on no speculation.
pub const BARRIER: u64 = VERSION | 7;

/// Asks for the session's events.
pub const EVENTS: u64 = VERSION | 8;

/// Position behind all events so far.
pub const NOW: u64 = u64::MAX;

/// Outcome of a speculation (Wester 2011, section 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Event {
    /// A process goes on with it.
    Begun = 0,
    /// It was right.
    Committed = 1,
    /// It was wrong.
    Failed = 2,
}

/// Treatment of a speculative process's output (Wester 2011, section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Policy {
    /// [`Policy::Expand`] for pipes, [`Policy::Defer`] for all else.
    #[default]
    Default = 0,
    /// It is held until all that it depends on is committed.
    Defer = 1,
    /// The writer waits.
    Block = 2,
    /// It goes out at once, and stays where the prediction was wrong: for what does no harm, like a
    /// question.
    Allow = 3,
    /// It is held, but other processes of the session can read it, and then depend on what it
    /// depends on. (Pipes; all else is as with [`Policy::Defer`].)
    Expand = 4,
}

impl Policy {
    /// The policy of that number.
    pub const fn of_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Policy::Default),
            1 => Some(Policy::Defer),
            2 => Some(Policy::Block),
            3 => Some(Policy::Allow),
            4 => Some(Policy::Expand),
            _ => None,
        }
    }
}
