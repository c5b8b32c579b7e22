//! Has a thread poked after a while, where nobody else can be relied upon to do so. One timer for the process.
//!
//! It pokes once, and who is poked has it do so again where that is wanted: a second signal that came before our handler's first
//! instruction had been executed, as on a busy machine with a page to be fetched, would lie upon the first, and a third upon that, until
//! the stack is full.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;

use crate::sys;
use crate::thread_timer::Timer;

/// The number of the timer, plus one.
static TIMER: AtomicU32 = AtomicU32::new(0);

/// The calling thread is poked in so many nanoseconds. (Another that was to be is not any more: it may have ended.)
pub fn start(in_ns: u64) -> sys::Result<()> {
    stop();
    let timer = Timer::of_this_thread(k::CLOCK_MONOTONIC)?;
    timer.set(in_ns)?;
    TIMER.store(timer.0 + 1, Relaxed);
    Ok(())
}

/// Nobody is poked any more.
pub fn stop() {
    if let Some(timer) = TIMER.swap(0, Relaxed).checked_sub(1) {
        Timer(timer).delete();
    }
}

/// In a forked child, which has no timers.
#[cfg(feature = "fault-injection")]
pub fn in_child() {
    TIMER.store(0, Relaxed);
}
