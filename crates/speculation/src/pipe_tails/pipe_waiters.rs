//! Threads that wait for data in a pipe.

use core::sync::atomic::Ordering::*;

use super::{Pipe, PipeTails, Waiter};
use crate::host_interface::{Host, Owner, POKING, poke_thread_in, remove_thread_from};

impl PipeTails {
    /// Registers the calling thread, which is about to wait for data in the pipe, for a poke when
    /// data appears in the tail. The thread then checks once more. Returns false if too many wait.
    pub fn add_waiter(&self, pipe: Pipe, host: &impl Host) -> bool {
        let thread = host.current_thread().to_word();
        let takes = |waiter: &Waiter, from: u64| {
            let is_ours = waiter.thread.compare_exchange(from, thread, SeqCst, Relaxed).is_ok();
            if is_ours {
                waiter.pipe.store(pipe.0, SeqCst);
            }
            is_ours
        };
        let is_noted = self.waiters.iter().any(|waiter| takes(waiter, 0));
        // Threads that were killed while they waited have left their entries, and are still
        // counted.
        if !is_noted {
            return self.waiters.iter().any(|waiter| {
                let other = waiter.thread.load(SeqCst);
                let is_left = !host.is_alive(Owner::of_word(other & !POKING));
                other != 0 && is_left && takes(waiter, other)
            });
        }
        self.waiting.fetch_add(1, SeqCst);
        true
    }

    /// Removes the calling thread's registrations. Returns their number.
    pub fn remove_waiter(&self, host: &impl Host) -> u32 {
        let thread = host.current_thread().to_word();
        let mut times = 0;
        for waiter in &self.waiters {
            if waiter.thread.load(SeqCst) & !POKING == thread {
                waiter.pipe.store(0, SeqCst);
                remove_thread_from(&waiter.thread, thread, host);
                self.waiting.fetch_sub(1, SeqCst);
                times += 1;
            }
        }
        times
    }

    /// True if any thread is registered.
    #[cfg(test)]
    pub(crate) fn has_waiters(&self) -> bool {
        let mut threads = self.waiters.iter().map(|waiter| waiter.thread.load(SeqCst));
        self.waiting.load(SeqCst) > 0 || threads.any(|thread| thread != 0)
    }

    pub(super) fn wake_waiters(&self, pipe: Pipe, host: &impl Host) {
        if self.waiting.load(SeqCst) > 0 {
            // Each registration pokes once: the thread checks, and registers again.
            let is_its =
                |waiter: &&Waiter| waiter.pipe.compare_exchange(pipe.0, 0, SeqCst, Relaxed).is_ok();
            self.waiters
                .iter()
                .filter(is_its)
                .for_each(|waiter| poke_thread_in(&waiter.thread, host));
        }
    }
}
