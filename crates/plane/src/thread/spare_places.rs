//! Places for threads to come, and from threads that have ended.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use super::thread_state::{GUARD_BYTES, Thread};
use crate::address_space;
use crate::arch::{RUNAHEAD_RETURNED, RUNAHEAD_SPARE, SMALL_STACK_BYTES, SPARES, STACK_BYTES};
use crate::sys;

/// Bytes of a thread's stack for signals: many frames may lie there for a moment.
const SIGNAL_STACK_BYTES: u64 = 256 << 10;

impl Thread {
    /// Maps a place with a stack of `stack` bytes, for a thread to come.
    fn map(stack: usize) -> sys::Result<&'static Thread> {
        let at = address_space::map_stack(stack as u64)?;
        let place = (at + stack as u64 - size_of::<Thread>() as u64) & !15;
        let top = (place - SIGNAL_STACK_BYTES) & !(GUARD_BYTES - 1);
        // SAFETY: memory that has just been mapped, of which nothing is used.
        unsafe { sys::protect(top, GUARD_BYTES, 0) }?;
        let thread = Thread::new(top, [at, stack as u64]);
        // SAFETY: the end of a fresh mapping, aligned, with room for one; it is unmapped only when
        // its thread has ended.
        unsafe {
            (place as *mut Thread).write(thread);
            Ok(&*(place as *const Thread))
        }
    }

    /// Maps the place of the program's first thread.
    pub(crate) fn map_first() -> sys::Result<&'static Thread> {
        Self::map(STACK_BYTES)
    }

    /// Makes this place a spare one: it was not needed, or its thread has left.
    pub(crate) fn give_back(&self) {
        let own = core::ptr::from_ref(self).cast_mut();
        let none = core::ptr::null_mut();
        let free = |s: &AtomicPtr<Thread>| s.compare_exchange(none, own, Release, Relaxed).is_ok();
        if !RUNAHEAD_SPARE.iter().any(free) {
            let [at, len] = self.mapped.get();
            // SAFETY: the place is in no table, and no thread is on its stack: its own thread took
            // it from the table, and is on the program's stack.
            unsafe { address_space::give_back(at, len) };
        }
    }
}

fn spares() -> usize {
    RUNAHEAD_SPARE.iter().filter(|spare| !spare.load(Relaxed).is_null()).count()
}

/// Ensures that there is a place for a thread that the plane does not know of.
pub(crate) fn prepare_spare() {
    take_returned();
    if spares() <= EXPECTED.load(Relaxed) as usize
        && let Ok(thread) = Thread::map(SMALL_STACK_BYTES)
    {
        thread.give_back();
    }
}

/// Has the places that threads left at their end be spare ones.
fn take_returned() {
    for place in &RUNAHEAD_RETURNED {
        if place.load(Relaxed).is_null() {
            continue;
        }
        // SAFETY: left there by its thread, which did not come back; taken by one.
        if let Some(thread) = unsafe { place.swap(core::ptr::null_mut(), Acquire).as_ref() } {
            thread.give_back();
        }
    }
}

/// Threads that are being made and have not taken their places yet.
static EXPECTED: AtomicU32 = AtomicU32::new(0);

/// A thread is about to be made: sees that there are as many places as threads that are on their
/// way. One without a place would run natively, and so could give the process a signal handler with
/// SIGSYS in its mask, in which the kernel kills the others. False if there is no place to be had.
pub(crate) fn expect_thread() -> bool {
    const PATIENCE_US: u64 = 20_000;
    const STEP_US: u64 = 100;
    let mut all = EXPECTED.fetch_add(1, SeqCst) as usize + 1;
    for _ in 0..PATIENCE_US / STEP_US {
        if all <= SPARES {
            break;
        }
        sys::sleep_us(STEP_US);
        all = EXPECTED.load(SeqCst) as usize;
    }
    take_returned();
    while spares() < all {
        let place = if all <= SPARES { Thread::map(SMALL_STACK_BYTES).ok() } else { None };
        let Some(place) = place else {
            expected_came();
            return false;
        };
        place.give_back();
    }
    true
}

/// Resets the expected threads in a forked child.
pub(super) fn expect_none() {
    EXPECTED.store(0, Relaxed);
}

/// Notes that an expected thread has its place, or does not come.
pub(crate) fn expected_came() {
    let _ = EXPECTED.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
}

/// Takes all spare places away, so that no thread moves in.
pub(crate) fn take_spares() {
    RUNAHEAD_SPARE.iter().for_each(|spare| spare.store(core::ptr::null_mut(), Relaxed));
}
