//! Interface to the calling process and the system, and words that name threads to poke.

use core::sync::atomic::{AtomicU64, Ordering::*};

/// A thread that can be poked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Its process id.
    pub process: u32,
    /// Its thread id.
    pub thread: u32,
}

impl Owner {
    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.process) << 32 | u64::from(self.thread)
    }

    pub(crate) fn of_word(word: u64) -> Self {
        Owner { process: (word >> 32) as u32, thread: word as u32 }
    }
}

/// Interface to the calling process and the system.
pub trait Host {
    /// Returns the calling thread.
    fn current_thread(&self) -> Owner;
    /// True if that process has not ended.
    fn is_alive(&self, owner: Owner) -> bool;
    /// Yields the processor; called repeatedly while waiting for another process.
    fn pause(&self);
    /// Makes the thread check the resolutions of what it depends on, or the pipe that it waits for.
    fn poke(&self, whom: Owner);
}

/// Bit of a thread word: a process is poking that thread.
pub(crate) const POKING: u64 = 1 << 31;

/// Pokes the thread that a word names, if any. A process that removes the name waits for the end of
/// the poke, so that none arrives later.
pub(crate) fn poke_thread_in(word: &AtomicU64, host: &impl Host) {
    let thread = word.load(SeqCst);
    let is_telling = thread & POKING != 0;
    if thread == 0
        || is_telling
        || word.compare_exchange(thread, thread | POKING, SeqCst, Relaxed).is_err()
    {
        return;
    }
    host.poke(Owner::of_word(thread));
    let _ = word.compare_exchange(thread | POKING, thread, SeqCst, Relaxed);
}

/// Removes a thread's name from a word, if it is there.
pub(crate) fn remove_thread_from(word: &AtomicU64, thread: u64, host: &impl Host) {
    /// Yields to wait for a process that is poking this thread: some tenths of a second. It may be
    /// waiting for a processor, or may have been killed.
    const PATIENCE: u32 = 1_000_000;
    for _ in 0..PATIENCE {
        match word.compare_exchange(thread, 0, SeqCst, Relaxed) {
            Err(now) if now == thread | POKING => host.pause(),
            _ => return,
        }
    }
    let _ = word.compare_exchange(thread | POKING, 0, SeqCst, Relaxed);
}
