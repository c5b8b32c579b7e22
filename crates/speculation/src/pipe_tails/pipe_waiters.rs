//! Threads that wait for something to be read.

use core::sync::atomic::Ordering::*;

use super::{Pipe, PipeTails, Waiter};
use crate::table::{POKING, poke_thread_in, remove_thread_from};
use crate::{Host, Owner};

impl PipeTails {
    /// The calling thread is about to wait for something in the pipe, and is to be poked when there is something here. (It
    /// looks once more.) False: too many do.
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
        // (Those who were killed while they waited have left their places, and are still counted.)
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

    /// It does not wait any more. How often it had said so.
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

    /// Whether somebody has said that it waits.
    #[cfg(test)]
    pub(crate) fn has_waiters(&self) -> bool {
        let mut threads = self.waiters.iter().map(|waiter| waiter.thread.load(SeqCst));
        self.waiting.load(SeqCst) > 0 || threads.any(|thread| thread != 0)
    }

    pub(super) fn wake_waiters(&self, pipe: Pipe, host: &impl Host) {
        if self.waiting.load(SeqCst) > 0 {
            // (Once: it looks, and says anew that it waits.)
            let is_its =
                |waiter: &&Waiter| waiter.pipe.compare_exchange(pipe.0, 0, SeqCst, Relaxed).is_ok();
            self.waiters
                .iter()
                .filter(is_its)
                .for_each(|waiter| poke_thread_in(&waiter.thread, host));
        }
    }
}
