//! What a thread keeps of a call that is reported ([`crate::interrupted`]). Where it is taken back to before that, so is this.

use crate::thread::{self, Thread};

/// A call of a thread's that is under way, or that it is to make again.
#[derive(Clone, Copy)]
pub struct Begun {
    /// Which one it is.
    pub place: Place,
    /// When its relative timeout is over, in nanoseconds.
    pub ends: Option<u64>,
    /// It waited, and a stop has interrupted it.
    pub is_cut_short: bool,
    /// Bytes that it had written by then.
    pub done: u64,
}

/// What the thread of that number keeps: the calling one, or one that is [stopped](crate::stop).
pub fn of(number: u32) -> Option<Begun> {
    let mut begun = None;
    with(number, |thread| begun = thread.begun.get());
    begun
}

/// It keeps this. As for [`of`].
pub fn put(number: u32, begun: Option<Begun>) {
    with(number, |thread| thread.begun.set(begun));
}

fn with(number: u32, mut work: impl FnMut(&Thread)) {
    match thread::current() {
        Some(own) if own.number() == number => work(own),
        _ => thread::others(|thread| {
            if thread.number() == number {
                work(thread);
            }
        }),
    }
}

/// Where and with what it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Address of the instruction.
    pub site: u64,
    /// The stack pointer there.
    pub stack: u64,
    /// Of the call.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}
