//! Waits in page faults: no call shows them, and a program that accesses a mapped file at random
//! makes no call for long.
//!
//! Once the program has mapped a large file, or has much memory that may be swapped out, each
//! thread that makes a call starts a timer on its own processor time. When the timer fires, the
//! thread checks how many of its page faults have waited for a device (getrusage(2)). If some have,
//! and no shadow foresees them, a sync is made there. A check takes some microseconds; without
//! waits there is at most one in 8 ms.
//!
//! *Why by processor time.* The kernel delivers such a timer when a thread returns to its own code
//! (Linux 5.9, `CONFIG_POSIX_CPU_TIMERS_TASK_WORK`), so the signal interrupts no call and no wait.
//! A thread that waits uses little processor time, and is checked after some tens of faults. A
//! thread that does not wait is checked ever less often. A program that has neither kind of memory
//! has no timer.

use core::sync::atomic::Ordering::Relaxed;

use runahead_estimators::{Micros, Ticks};

use super::call_outcome::SyncSide;
use super::fault_watch::{FaultWaits, faults_now};
use super::target_state::Target;
use crate::arch::Context;
use crate::plane::thread::{Faults, Thread};
use crate::plane::{self, Call};
use crate::session::{self, Session};
use crate::sys::nr;
use crate::thread_timer::PokeTimer;

/// Faults since the last check that justify a sync: the first page of a file is mostly followed by
/// others of the same chunk.
const FAULTS_MIN: u64 = 2;
/// Shortest time that a shadow with results is left to work.
const TURN: Micros = Micros(200_000);

impl Target {
    /// Checks the thread's faults. It has used some processor time, and is in the program's code.
    pub(super) fn check_faults(&self, frame: &Context) {
        let (Some(session), Some(thread)) = (session::get(), plane::thread::current()) else {
            return;
        };
        let Some(before) = thread.faults.get() else { return };
        let timer = PokeTimer(before.timer);
        let mut faults = faults_now(timer);
        let new = faults.seen.saturating_sub(before.seen);
        faults.every_ns = self.fault_watch.next_interval(session, &before, new);
        let waits = FaultWaits { count: new, time: waited_between(session, &before, &faults) };
        if new > 0 {
            self.note_faults(session, waits);
        }
        let call = Call { nr: nr::GETPID, args: [0; 6], stack: frame.stack_pointer(), thread };
        let (far, waits) = match wait_if_far_ahead(session) {
            // Account for a single wait.
            Some(wait) if new == 0 => (true, FaultWaits { count: 1, time: wait }),
            far => (far.is_some(), waits),
        };
        if far || new >= FAULTS_MIN && !self.is_shadow_ahead(session, new) {
            self.fault_watch.note_cold_mapping();
            self.join(session);
            report_cold_mapping(session);
            if self.sync_after_faults(session, &call, waits) == SyncSide::Shadow {
                // A shadow gets no signals, not even those that were held for its target.
                thread.drop_held_signals();
                return;
            }
        }
        thread.faults.set(Some(faults));
        let _ = timer.set(faults.every_ns);
    }

    /// Counts what this thread has waited since its last check, before the process ends.
    pub(super) fn count_last_faults(&self, session: &'static Session, thread: &Thread) {
        let Some(before) = thread.faults.get() else { return };
        let faults = faults_now(PokeTimer(before.timer));
        let count = faults.seen.saturating_sub(before.seen);
        if count > 0 {
            let time = waited_between(session, &before, &faults);
            self.note_faults(session, FaultWaits { count, time });
        }
    }

    fn note_faults(&self, session: &'static Session, FaultWaits { count, time }: FaultWaits) {
        self.waited_ticks.fetch_add(time.0, Relaxed);
        if session.is_joined() {
            let control = &session.shared().control;
            control.stalls_unforeseen.fetch_add(count, Relaxed);
            control.stalled_faults.fetch_add(count, Relaxed);
            control.stall_ticks_unforeseen.fetch_add(time.0, Relaxed);
        }
    }

    /// True if a shadow foresees most of what comes, or may before long, although faults have
    /// waited.
    fn is_shadow_ahead(&self, session: &'static Session, faults: u64) -> bool {
        let turn = TURN.to_ticks(session.tick_rate());
        session.is_joined()
            && self.syncs.try_with(|syncs| syncs.shadow_foresees(session, faults, turn))
                != Some(false)
    }
}

/// Time of one wait if the process is far from where its shadow began, and should get a new one.
fn wait_if_far_ahead(session: &Session) -> Option<Ticks> {
    let joined = session.is_joined().then(|| &session.shared().control)?;
    (joined.want_sync.load(Relaxed) != 0)
        .then(|| Micros(joined.service_us.load(Relaxed).into()).to_ticks(session.tick_rate()))
}

/// Asks the supervisor to look at this process's use of mapped files.
pub(super) fn report_cold_mapping(session: &'static Session) {
    if session.is_joined() {
        session.shared().control.mapped_cold.store(1, Relaxed);
    }
}

/// Starts the timer again after a poke that met the thread inside the agent.
pub(super) fn rearm_timer() {
    if let Some(faults) = plane::thread::current().and_then(|thread| thread.faults.get()) {
        let _ = PokeTimer(faults.timer).set(faults.every_ns);
    }
}

/// Deletes the timer of the calling thread, which is about to end; the timer would outlive it.
pub(super) fn thread_ends() {
    if let Some(faults) = plane::thread::current().and_then(|thread| thread.faults.take()) {
        PokeTimer(faults.timer).delete();
    }
}

/// Time that the thread has waited between two checks: all time in which it used no processor.
fn waited_between(session: &Session, before: &Faults, now: &Faults) -> Ticks {
    let used = Micros(now.at.1.saturating_sub(before.at.1) / 1_000);
    let passed = Ticks(now.at.0).wrapping_sub(Ticks(before.at.0));
    passed.saturating_sub(used.to_ticks(session.tick_rate()))
}
