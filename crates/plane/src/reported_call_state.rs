//! State that a thread keeps of a reported call ([`crate::call_restart`]). A rollback of the thread
//! to a point before the call restores it.

/// A call of a thread's that is under way, or that it is to make again.
#[derive(Clone, Copy)]
pub struct Begun {
    /// Identifies the call.
    pub place: Place,
    /// When its relative timeout is over, in nanoseconds.
    pub ends: Option<u64>,
    /// It waited, and a stop has interrupted it.
    pub is_cut_short: bool,
    /// Bytes that it had written by then.
    pub done: u64,
}

/// Site and arguments of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Address of the instruction.
    pub site: u64,
    /// The stack pointer there.
    pub stack: u64,
    /// Number of the call.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}
