//! Locks of tails, and cleanup of what dead processes have left in them.

use core::sync::atomic::{AtomicU64, Ordering::*};

use super::{PipeTails, Tail};
use crate::{Host, Owner};

pub(super) fn is_alive(process: u32, host: &impl Host) -> bool {
    host.is_alive(Owner { process, thread: 0 })
}

/// A tail that the calling process has locked.
pub(super) struct LockedTail<'a> {
    pub(super) tail: &'a Tail,
    /// The pipe that it belongs to.
    pipe: &'a AtomicU64,
    all: &'a PipeTails,
}

/// Locks the tail at `place`. None: another process, which may be stopped, has held it for too
/// long.
pub(super) fn lock_tail<'a>(
    all: &'a PipeTails,
    place: usize,
    host: &impl Host,
) -> Option<LockedTail<'a>> {
    /// Number of attempts, and the number after which the lock's owner is checked for death.
    const TRIES: u32 = 20_000;
    const ASKED_EVERY: u32 = 1000;
    let (tail, of) = (&all.tails[place], &all.pipes[place]);
    let process = host.current_thread().process;
    for n in 1..=TRIES {
        match tail.locked.compare_exchange(0, process, SeqCst, Relaxed) {
            Ok(_) => return Some(LockedTail { tail, pipe: of, all }),
            Err(other) if n % ASKED_EVERY == 0 && !is_alive(other, host) => {
                let _ = tail.locked.compare_exchange(other, 0, SeqCst, Relaxed);
            }
            Err(_) => host.pause(),
        }
    }
    None
}

impl LockedTail<'_> {
    /// Drops the data of a dead writer, and the claim of a dead reader. The check for death costs
    /// more than all else here, so only new readers and writers call this.
    pub(super) fn drop_dead_owners(&self, host: &impl Host) {
        let (writer, end) = (self.tail.writer.load(Relaxed), self.tail.end.load(Relaxed));
        let reader = self.tail.reader.load(Relaxed);
        if reader != 0 && reader != host.current_thread().process && !is_alive(reader, host) {
            self.tail.reader.store(0, Relaxed);
        }
        if !self.tail.is_empty()
            && writer != host.current_thread().process
            && !is_alive(writer, host)
        {
            self.tail.next.store(end, Relaxed);
            self.tail.first.store(end, SeqCst);
        }
    }
}

impl Drop for LockedTail<'_> {
    fn drop(&mut self) {
        let tail = self.tail;
        if tail.is_empty() && tail.reader.load(Relaxed) == 0 && self.pipe.swap(0, SeqCst) != 0 {
            self.all.used.fetch_sub(1, SeqCst);
        }
        tail.locked.store(0, SeqCst);
    }
}
