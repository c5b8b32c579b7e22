//! Timers that poke a thread ([`POKE`]), made by timer_create(2). An exec ends them, with their
//! queued signals; a forked child has none.

use linux_raw_sys::general as k;

use crate::plane::sent_signals::POKE;
use crate::sys::{self, nr};

/// A timer of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PokeTimer(pub u32);

impl PokeTimer {
    /// Makes a timer that pokes the calling thread, by `clock` (clock_gettime(2)).
    pub fn of_this_thread(clock: u32) -> sys::Result<Self> {
        const THREAD_ID: u64 = 4;
        let mut event = [0u64; 8];
        event[0] = POKE;
        event[1] = u64::from(k::SIGSYS) | THREAD_ID << 32;
        event[2] = sys::gettid().into();
        let mut timer = 0u32;
        let args = [clock.into(), event.as_ptr() as u64, &raw mut timer as u64, 0, 0, 0];
        // SAFETY: reads a sigevent and writes a timer's number.
        sys::check(unsafe { sys::raw(nr::TIMER_CREATE, args) })?;
        Ok(PokeTimer(timer))
    }

    /// Sets the timer to poke once, in `in_ns` nanoseconds.
    pub fn set(self, in_ns: u64) -> sys::Result<()> {
        const NS: u64 = 1_000_000_000;
        let times = [0, 0, in_ns / NS, in_ns % NS];
        let args = [self.0.into(), 0, times.as_ptr() as u64, 0, 0, 0];
        // SAFETY: reads an itimerspec.
        sys::check(unsafe { sys::raw(nr::TIMER_SETTIME, args) }).map(|_| ())
    }

    /// Deletes the timer.
    pub fn delete(self) {
        // SAFETY: a timer of ours.
        let _ = unsafe { sys::raw(nr::TIMER_DELETE, [self.0.into(), 0, 0, 0, 0, 0]) };
    }
}
