//! Choice of the threads whose page faults are checked, and how often ([`super::page_faults`]).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_estimators::Ticks;

use crate::plane;
use crate::plane::thread::{Faults, Thread};
use crate::session::Session;
use crate::sys;
use crate::thread_timer::PokeTimer;
use crate::time_stamp::ticks;

/// Processor time between two checks of a thread that waits in faults.
const CHECK_NS: u64 = 1_000_000;
/// Longest processor time between two checks of a thread that does not wait: where a mapping was
/// not in memory, and where all seemed to be.
const COLD_CHECK_NS_MAX: u64 = 8_000_000;
const WARM_CHECK_NS_MAX: u64 = 32_000_000;
/// Bytes of a process's own memory from which its faults are checked.
const SWAPPABLE_BYTES: u64 = 16 << 20;

/// Page faults of a thread that have waited, and their total wait.
#[derive(Clone, Copy)]
pub(super) struct FaultWaits {
    pub count: u64,
    pub time: Ticks,
}

/// State of the fault checks of a process.
pub(super) struct FaultWatch {
    /// True if faults are checked.
    is_enabled: AtomicBool,
    /// Bytes of its own memory that the process has taken, and the last end of its heap that it
    /// asked for.
    own_bytes: AtomicU64,
    heap_end: AtomicU64,
    /// True once the process has mapped a large file, and one that was not in memory.
    has_large_mapping: AtomicBool,
    has_cold_mapping: AtomicBool,
}

impl FaultWatch {
    pub(super) const fn new() -> Self {
        FaultWatch {
            is_enabled: AtomicBool::new(false),
            own_bytes: AtomicU64::new(0),
            heap_end: AtomicU64::new(0),
            has_large_mapping: AtomicBool::new(false),
            has_cold_mapping: AtomicBool::new(false),
        }
    }

    /// Resets the state in a forked child.
    pub(super) fn start_in_child(&self) {
        // A child has the memory that its parent had.
        self.is_enabled.store(self.own_bytes.load(Relaxed) >= SWAPPABLE_BYTES, Relaxed);
        self.has_large_mapping.store(false, Relaxed);
        self.has_cold_mapping.store(false, Relaxed);
        // Timers are not inherited.
        if let Some(thread) = plane::thread::current() {
            thread.faults.set(None);
        }
    }

    /// Starts checking faults after a large file was mapped. `is_cold`: it was not in memory.
    pub(super) fn expect_faults(&self, thread: &Thread, is_cold: bool) {
        self.is_enabled.store(true, Relaxed);
        self.has_cold_mapping.fetch_or(is_cold, Relaxed);
        let is_first = !self.has_large_mapping.swap(true, Relaxed);
        if is_first && let Some(faults) = thread.faults.get() {
            thread.faults.set(Some(Faults { every_ns: CHECK_NS, ..faults }));
            let _ = PokeTimer(faults.timer).set(CHECK_NS);
        }
        self.watch_faults(thread);
    }

    /// Adds `len` bytes to the process's own memory. Faults are checked, if seldom, once there is
    /// so much that some of it may be swapped out.
    pub(super) fn note_growth(&self, session: &Session, len: u64) {
        if session.config.swaps != 0 {
            let own = self.own_bytes.fetch_add(len, Relaxed).saturating_add(len);
            self.is_enabled.fetch_or(own >= SWAPPABLE_BYTES, Relaxed);
        }
    }

    /// Notes that the process asks for its heap to end at `end` (brk(2)).
    pub(super) fn note_brk(&self, session: &Session, end: u64) {
        let before = self.heap_end.swap(end, Relaxed);
        if before != 0 {
            self.note_growth(session, end.saturating_sub(before));
        }
    }

    /// Starts checking the faults of a thread that makes a call, if that is worth while.
    pub(super) fn watch_faults(&self, thread: &Thread) {
        if !self.is_enabled.load(Relaxed) || thread.faults.get().is_some() {
            return;
        }
        // Without a large mapping only swapped memory can be waited for.
        let every_ns =
            if self.has_large_mapping.load(Relaxed) { CHECK_NS } else { COLD_CHECK_NS_MAX };
        let Ok(timer) = PokeTimer::of_this_thread(k::CLOCK_THREAD_CPUTIME_ID) else { return };
        let faults = Faults { timer: timer.0, every_ns, ..faults_now(timer) };
        if timer.set(faults.every_ns).is_ok() {
            thread.faults.set(Some(faults));
        }
    }

    /// Processor time until the next check of a thread, of whose faults `new` have waited since the
    /// check `before`, in nanoseconds.
    pub(super) fn next_interval(&self, session: &Session, before: &Faults, new: u64) -> u64 {
        match new {
            0 if self.has_cold_mapping.load(Relaxed) || session.config.swaps != 0 => {
                (before.every_ns * 2).min(COLD_CHECK_NS_MAX)
            }
            0 => (before.every_ns * 2).min(WARM_CHECK_NS_MAX),
            _ => CHECK_NS,
        }
    }

    /// Notes that the process has mapped a large file that was not in memory.
    pub(super) fn note_cold_mapping(&self) {
        self.has_cold_mapping.store(true, Relaxed);
    }
}

/// Waiting faults of the calling thread so far, and the time, for a thread with that timer.
pub(super) fn faults_now(timer: PokeTimer) -> Faults {
    let at = (ticks().0, sys::thread_ns());
    Faults { timer: timer.0, every_ns: 0, seen: sys::major_faults(), at }
}
