//! Waits in page faults: no call tells of them, and a program that goes to and fro in a mapped file makes none for long.
//!
//! Once the program has mapped a large file, or has much memory where that may be swapped out, each thread that makes a call has itself poked after some
//! of its own processor time, and looks how many of its page faults have waited for a device (getrusage(2)). If some
//! have, and no shadow foresees them, a sync is made there. (A look takes some microseconds, and there is one in 8 ms at most.)
//!
//! *Why by processor time.* The kernel looks at such a timer where a thread goes back to its own code (Linux 5.9,
//! `CONFIG_POSIX_CPU_TIMERS_TASK_WORK`): the signal interrupts no call, and no wait. A thread that waits uses little of a
//! processor, so that it is looked at after some tens of faults; one that does not wait is looked at ever less often. A
//! program that has neither has no timer.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::Target;
use super::call_outcome::Side;
use super::shadow_sync;
use crate::arch::{Context, ticks};
use crate::plane::thread::{Faults, Thread};
use crate::plane::{self, Call};
use crate::session::{self, Session};
use crate::sys::{self, nr};
use crate::thread_timer::Timer;

/// Processor time after which a thread that waits in faults is looked at.
const EVERY_NS: u64 = 1_000_000;
/// The same of one that does not, at most, where something mapped was not in memory, and where all seemed to be.
const COLD_NS: u64 = 8_000_000;
const WARM_NS: u64 = 32_000_000;
/// Bytes of its own from which on a process's memory is worth watching.
const SWAPPABLE: u64 = 16 << 20;
/// Faults since the last look that are worth one more: a file's first page is mostly followed by others of the same chunk.
const FEW: u64 = 2;
/// A shadow that finds something is left to work for at least this long, in microseconds.
const TURN_US: u64 = 200_000;

/// See the module's text.
pub(super) struct Watched {
    /// Faults are looked at.
    any: AtomicBool,
    /// Bytes of its own memory that the process has taken, and the end of its heap that it has asked for last.
    own: AtomicU64,
    heap_end: AtomicU64,
    /// The process has mapped a large file, and one that was not in memory.
    any_large: AtomicBool,
    any_cold: AtomicBool,
}

impl Watched {
    pub(super) const fn new() -> Self {
        Watched {
            any: AtomicBool::new(false),
            own: AtomicU64::new(0),
            heap_end: AtomicU64::new(0),
            any_large: AtomicBool::new(false),
            any_cold: AtomicBool::new(false),
        }
    }

    pub(super) fn start_in_child(&self) {
        // (It has what its parent had.)
        self.any.store(self.own.load(Relaxed) >= SWAPPABLE, Relaxed);
        self.any_large.store(false, Relaxed);
        self.any_cold.store(false, Relaxed);
        // (Timers are not inherited.)
        if let Some(thread) = plane::thread::current() {
            thread.faults.set(None);
        }
    }
}

impl Target {
    /// A large file was mapped, `is_cold`: that is not in memory.
    pub(super) fn expect_faults(&self, thread: &Thread, is_cold: bool) {
        self.watched.any.store(true, Relaxed);
        self.watched.any_cold.fetch_or(is_cold, Relaxed);
        let is_first = !self.watched.any_large.swap(true, Relaxed);
        if is_first && let Some(faults) = thread.faults.get() {
            thread.faults.set(Some(Faults { every_ns: EVERY_NS, ..faults }));
            let _ = Timer(faults.timer).set(EVERY_NS);
        }
        self.watch_faults(thread);
    }

    /// The process takes `len` bytes more of its own memory. Once it has so much that some of it may be swapped out its faults
    /// are looked at, if seldom.
    pub(super) fn has_grown(&self, session: &Session, len: u64) {
        if session.config.swaps != 0 {
            let own = self.watched.own.fetch_add(len, Relaxed).saturating_add(len);
            self.watched.any.fetch_or(own >= SWAPPABLE, Relaxed);
        }
    }

    /// The process asks for its heap to end at `end` (brk(2)).
    pub(super) fn sets_break(&self, session: &Session, end: u64) {
        let before = self.watched.heap_end.swap(end, Relaxed);
        if before != 0 {
            self.has_grown(session, end.saturating_sub(before));
        }
    }

    /// The faults of a thread that makes a call are looked at from now on, if that is worth while.
    pub(super) fn watch_faults(&self, thread: &Thread) {
        if !self.watched.any.load(Relaxed) || thread.faults.get().is_some() {
            return;
        }
        // (Of nothing mapped, only of swap.)
        let every_ns = if self.watched.any_large.load(Relaxed) { EVERY_NS } else { COLD_NS };
        let Ok(timer) = Timer::of_this_thread(k::CLOCK_THREAD_CPUTIME_ID) else { return };
        let faults = Faults { timer: timer.0, every_ns, ..now(timer) };
        if timer.set(faults.every_ns).is_ok() {
            thread.faults.set(Some(faults));
        }
    }

    /// The thread has used some of its processor, and is in the program's code.
    pub(super) fn look_at_faults(&self, frame: &Context) {
        let (Some(session), Some(thread)) = (session::get(), plane::thread::current()) else {
            return;
        };
        let Some(before) = thread.faults.get() else { return };
        let timer = Timer(before.timer);
        let mut faults = now(timer);
        let new = faults.seen.saturating_sub(before.seen);
        faults.every_ns = match new {
            0 if self.watched.any_cold.load(Relaxed) || session.config.swaps != 0 => {
                (before.every_ns * 2).min(COLD_NS)
            }
            0 => (before.every_ns * 2).min(WARM_NS),
            _ => EVERY_NS,
        };
        let waits = shadow_sync::Faults { count: new, ticks: waited(session, &before, &faults) };
        if new > 0 {
            self.note_faults(session, waits);
        }
        let call = Call { nr: nr::GETPID, args: [0; 6], stack: frame.stack_pointer(), thread };
        let (far, waits) = match is_far_ahead(session) {
            // (Of one wait.)
            Some(wait) if new == 0 => (true, shadow_sync::Faults { count: 1, ticks: wait }),
            far => (far.is_some(), waits),
        };
        if far || new >= FEW && !self.is_ahead(session, new) {
            self.watched.any_cold.store(true, Relaxed);
            self.join(session);
            tell_cold(session);
            if self.sync_anew(session, &call, waits) == Side::Shadow {
                // It gets no signals, those that were held for its target neither.
                thread.forget_held();
                return;
            }
        }
        thread.faults.set(Some(faults));
        let _ = timer.set(faults.every_ns);
    }

    /// The process is about to end: what this thread has waited since it was looked at is counted.
    pub(super) fn count_last_faults(&self, session: &'static Session, thread: &Thread) {
        let Some(before) = thread.faults.get() else { return };
        let faults = now(Timer(before.timer));
        let count = faults.seen.saturating_sub(before.seen);
        if count > 0 {
            let ticks = waited(session, &before, &faults);
            self.note_faults(session, shadow_sync::Faults { count, ticks });
        }
    }

    fn note_faults(
        &self,
        session: &'static Session,
        shadow_sync::Faults { count, ticks }: shadow_sync::Faults,
    ) {
        self.waited.fetch_add(ticks, Relaxed);
        if session.is_joined() {
            let control = &session.shared().control;
            control.stalls_unforeseen.fetch_add(count, Relaxed);
            control.stalled_faults.fetch_add(count, Relaxed);
            control.stall_ticks_unforeseen.fetch_add(ticks, Relaxed);
        }
    }

    /// A shadow foresees most of what comes, or may before long, although so many faults have waited.
    fn is_ahead(&self, session: &'static Session, faults: u64) -> bool {
        let turn = TURN_US * session.config.ticks_per_us;
        session.is_joined()
            && self.syncs.try_with(|syncs| syncs.foresees(session, faults, turn)) != Some(false)
    }
}

/// The process is far from where its shadow began, and had better have a new one: what a wait takes, in ticks.
fn is_far_ahead(session: &Session) -> Option<u64> {
    let joined = session.is_joined().then(|| &session.shared().control)?;
    (joined.want_sync.load(Relaxed) != 0)
        .then(|| u64::from(joined.service_us.load(Relaxed)) * session.config.ticks_per_us)
}

/// The supervisor is to look at what this process uses of mapped files.
pub(super) fn tell_cold(session: &'static Session) {
    if session.is_joined() {
        session.shared().control.mapped_cold.store(1, Relaxed);
    }
}

/// The thread was met at work of ours.
pub(super) fn look_later() {
    if let Some(faults) = plane::thread::current().and_then(|thread| thread.faults.get()) {
        let _ = Timer(faults.timer).set(faults.every_ns);
    }
}

/// The calling thread is about to end; its timer would outlive it.
pub(super) fn thread_ends() {
    if let Some(faults) = plane::thread::current().and_then(|thread| thread.faults.take()) {
        Timer(faults.timer).delete();
    }
}

fn now(timer: Timer) -> Faults {
    let at = (ticks(), sys::thread_ns());
    Faults { timer: timer.0, every_ns: 0, seen: sys::major_faults(), at }
}

/// How long the thread has waited between two looks, in ticks: all the time that it used no processor.
fn waited(session: &Session, before: &Faults, now: &Faults) -> u64 {
    let used_us = now.at.1.saturating_sub(before.at.1) / 1_000;
    now.at.0.wrapping_sub(before.at.0).saturating_sub(used_us * session.config.ticks_per_us)
}
