//! Has a thread poked ([`POKE`]) after a while, where nobody else can be relied upon to do so. One timer for the process.
//!
//! It pokes once, and who is poked has it do so again where that is wanted: a second signal that came before our handler's first
//! instruction had been executed, as on a busy machine with a page to be fetched, would lie upon the first, and a third upon that, until
//! the stack is full.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;

use crate::plane::policy::POKE;
use crate::sys::{self, nr};

/// timer_create(2), plus one.
static TIMER: AtomicU32 = AtomicU32::new(0);

/// The calling thread is poked in so many nanoseconds. (Another that was to be is not any more: it may have ended.)
pub fn start(in_ns: u64) -> sys::Result<()> {
    const THREAD_ID: u64 = 4;
    stop();
    let mut event = [0u64; 8];
    event[0] = POKE;
    event[1] = u64::from(k::SIGSYS) | THREAD_ID << 32;
    event[2] = sys::gettid().into();
    let mut timer = 0u32;
    let args = [k::CLOCK_MONOTONIC.into(), event.as_ptr() as u64, &raw mut timer as u64, 0, 0, 0];
    // SAFETY: reads a sigevent and writes a timer's number.
    sys::check(unsafe { sys::raw(nr::TIMER_CREATE, args) })?;
    let times = [0, 0, 0, in_ns];
    // SAFETY: reads an itimerspec.
    sys::check(unsafe {
        sys::raw(nr::TIMER_SETTIME, [timer.into(), 0, times.as_ptr() as u64, 0, 0, 0])
    })?;
    TIMER.store(timer + 1, Relaxed);
    Ok(())
}

/// Nobody is poked any more.
pub fn stop() {
    if let Some(timer) = TIMER.swap(0, Relaxed).checked_sub(1) {
        // SAFETY: a timer of ours.
        let _ = unsafe { sys::raw(nr::TIMER_DELETE, [timer.into(), 0, 0, 0, 0, 0]) };
    }
}

/// In a forked child, which has no timers.
pub fn in_child() {
    TIMER.store(0, Relaxed);
}
