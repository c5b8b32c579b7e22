//! Timer that pokes a thread after a delay, for cases in which no other process can be relied upon
//! to do so. One timer for the process.
//!
//! It fires once, and the poked thread starts it again if needed. A periodic timer could overflow
//! the stack. On a busy machine, a second signal can arrive before the first instruction of our
//! handler has run, because its page is still being fetched. Its frame would lie on top of the
//! first, and a third on top of that.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;

use crate::sys;
use crate::thread_timer::PokeTimer;

/// Kernel id of the timer plus one; 0 if there is none.
static TIMER: AtomicU32 = AtomicU32::new(0);

/// Pokes the calling thread in `in_ns` nanoseconds. Replaces an earlier timer, whose thread may
/// have ended.
pub fn start(in_ns: u64) -> sys::Result<()> {
    stop();
    let timer = PokeTimer::of_this_thread(k::CLOCK_MONOTONIC)?;
    timer.set(in_ns)?;
    TIMER.store(timer.0 + 1, Relaxed);
    Ok(())
}

/// Cancels the timer.
pub fn stop() {
    if let Some(timer) = TIMER.swap(0, Relaxed).checked_sub(1) {
        PokeTimer(timer).delete();
    }
}

/// Clears the timer in a forked child, which inherits none.
#[cfg(feature = "fault-injection")]
pub fn in_child() {
    TIMER.store(0, Relaxed);
}
