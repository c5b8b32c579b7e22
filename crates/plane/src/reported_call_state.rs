//! State that a thread keeps of a reported call ([`crate::call_restart`]). A rollback of the thread
//! to a point before the call restores it.

/// Progress of a thread's call that is under way, or that it is to make again.
#[derive(Clone, Copy)]
pub struct CallProgress {
    /// Identifies the call.
    pub identity: CallIdentity,
    /// Time at which its relative timeout is over, in nanoseconds (`sys::now`); None: it has none.
    pub deadline_ns: Option<u64>,
    /// True if it waited, and a stop has interrupted it.
    pub is_interrupted: bool,
    /// True if it has not begun yet: the policy has the thread wait in front of it.
    pub is_held_back: bool,
    /// Bytes that it had written when stops interrupted it.
    pub bytes_written: u64,
}

/// Site and arguments of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CallIdentity {
    /// Address of the instruction.
    pub site: u64,
    /// The stack pointer there.
    pub stack: u64,
    /// Number of the call.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}
