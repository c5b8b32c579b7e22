//! A lock for what the threads of a process share, made for agents.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::sys::{self, nr};

/// A value that one thread at a time uses.
///
/// It knows nothing of priorities or fairness: what is done under it takes microseconds and never
/// waits. A fork copies it as it is, perhaps held by a thread that the child does not have; the
/// child breaks it ([`Lock::break_open`]).
pub struct Lock<T> {
    is_locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by the thread that has set `is_locked`.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Wraps an initial value.
    pub const fn new(value: T) -> Self {
        Lock { is_locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Uses the value, unless it is being used.
    pub fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.is_locked.swap(true, Acquire) {
            return None;
        }
        // SAFETY: held, by us alone.
        let result = work(unsafe { &mut *self.value.get() });
        self.is_locked.store(false, Release);
        Some(result)
    }

    /// Uses the value when no other thread does. Signals must be blocked: a handler that
    /// interrupted the holder and came here would wait for itself.
    pub fn with<R>(&self, mut work: impl FnMut(&mut T) -> R) -> R {
        loop {
            match self.try_with(&mut work) {
                Some(result) => return result,
                None => {
                    // SAFETY: sched_yield(2) takes no arguments.
                    let _ = unsafe { sys::raw(nr::SCHED_YIELD, [0; 6]) };
                }
            }
        }
    }

    /// Frees the lock in a forked child, where the holder does not exist. The value may be in the
    /// middle of the holder's change.
    pub fn break_open(&self) {
        self.is_locked.store(false, Relaxed);
    }
}
