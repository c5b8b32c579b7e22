//! The sync: makes a shadow of the target as it is now, inside a stall.
//!
//! Of the decision whether a wait is worth a fork, this file has the timing: spacing between syncs,
//! a rerun in place of a fork, and turns among threads. [`stall_probing`](super::stall_probing)
//! decides what a stall is, [`stall_handling`](super::stall_handling) calls [`Target::sync`], and
//! [`sync_budget`](super::sync_budget) weighs cost against gain.
//!
//! Only this file and `shadow::template` know how a shadow gets its memory: today by a fork at
//! every sync (docs/decisions/0001). The rest of the agent knows only [`SyncSide`].

use core::sync::atomic::Ordering::Relaxed;

use runahead_abi::RunEnd;
use runahead_abi::agent_config::without;
use runahead_estimators::{Micros, Ticks};

use super::call_outcome::SyncSide;
use super::fault_watch::FaultWaits;
use super::run_requests::{request_run, supersede};
use super::sync_history::{SyncHistory, has_room};
use super::target_state::Target;
use crate::arch;
use crate::control_client;
use crate::hint_sender::ring_bell;
use crate::plane::thread::Thread;
use crate::plane::{self, Call, signal_block};
use crate::session::Session;
use crate::shadow::template;
use crate::sys;
use crate::time_stamp::ticks;
use crate::uninherited_memory;

/// Longest wait for a template to give up the target's descriptors. It takes some tens of
/// microseconds; a template that takes longer has been killed or starved, and is superseded.
const HANDSHAKE: Micros = Micros(5_000);
/// Longest wait for shadows to end when the target ends. Once they get a processor, they take some
/// tenths of a millisecond.
const OUTLIVE: Micros = Micros(100_000);
/// Shortest time that a thread's shadow is left to work before another thread's replaces it.
const TURN: Micros = Micros(20_000);
/// Most accesses since the last sync at which its shadow is asked for another run rather than
/// replaced.
const RERUN_ACCESSES_MAX: u64 = 16;

impl Target {
    /// Stops making shadows, here and in children: the program marks memory as secret or as not to
    /// be swapped out, and a shadow's copy would be ordinary memory.
    pub(super) fn forbid_shadows(&self, session: &'static Session) {
        if !self.shadows_forbidden.swap(true, Relaxed) {
            self.end_shadows(session);
        }
    }

    /// Checks at every fourth use of a hint whether the shadow still pays. While it lives, each
    /// page that the program stores to is copied.
    pub(super) fn review_shadow(&self, session: &'static Session) {
        const EVERY: u64 = 4;
        let control = &session.shared().control;
        if !control.hints_used.load(Relaxed).is_multiple_of(EVERY) {
            return;
        }
        let pays = self.syncs.try_with(|syncs| {
            !syncs.has_shadow || {
                let seen = syncs.observe(session);
                syncs.budget.update(&seen) && has_room(session, seen.minor_faults)
            }
        });
        if pays == Some(false) {
            self.end_shadow(session);
        }
    }

    /// Ends the shadow, if there is one.
    pub(super) fn end_shadow(&self, session: &'static Session) -> bool {
        let alive =
            self.syncs.try_with(|syncs| core::mem::take(&mut syncs.has_shadow)) == Some(true);
        if alive {
            supersede(&session.shared().control);
        }
        alive
    }

    /// Ends all shadows and waits, for a bounded time, until they hold nothing: they would be in
    /// the way of the call at hand.
    pub(super) fn end_shadows(&self, session: &'static Session) {
        let control = &session.shared().control;
        self.end_shadow(session);
        let give_up_at = ticks() + HANDSHAKE.to_ticks(session.tick_rate());
        loop {
            let seen = control.gone.load(Relaxed);
            let left = control.shadows_left();
            if left > 0 && ticks() < give_up_at {
                let _ = sys::futex_wait(&control.gone, seen, Some(200));
                continue;
            }
            // Shadows that do not end in time are not waited for again. A negative count: one of
            // those ended late.
            if left != 0 {
                control.given_up.fetch_add(left as u32, Relaxed);
            }
            return;
        }
    }

    /// Ends all shadows and waits, for a bounded time, until none executes the program's file.
    /// Another process may want to write the file as soon as this one ends, and the kernel frees a
    /// process's memory after its holdings.
    pub(super) fn outlive_shadows(&self, session: &'static Session) {
        self.end_shadows(session);
        let control = &session.shared().control;
        let give_up_at = ticks() + OUTLIVE.to_ticks(session.tick_rate());
        for pid in core::iter::once(&control.template_pid).chain(&control.older_pids) {
            let pid = pid.load(Relaxed);
            let left = give_up_at.saturating_sub(ticks()).to_micros(session.tick_rate()).0 / 1_000;
            if pid != 0
                && let Ok(process) = sys::pidfd_open(pid)
            {
                let _ = sys::is_readable_within(process, left as i32);
                let _ = sys::close(process);
            }
        }
    }

    /// Makes a shadow of the thread that makes `call`, if it is worth while now.
    pub(super) fn sync(&self, session: &'static Session, call: &Call) -> SyncSide {
        self.sync_after_faults(session, call, FaultWaits { count: 0, time: Ticks(0) })
    }

    /// Makes a shadow like [`Target::sync`], but outside of any call and far from the last sync:
    /// `faults` have waited since.
    pub(super) fn sync_after_faults(
        &self,
        session: &'static Session,
        call: &Call,
        faults: FaultWaits,
    ) -> SyncSide {
        let thread = call.thread;
        if !session.is_joined()
            || self.shadows_forbidden.load(Relaxed)
            || self.is_busy_with_another(session, thread)
        {
            return SyncSide::Target;
        }
        // No handler of the program may run in the new process, which is still in the program's
        // process group, nor interrupt a sync. Signals wait: in the target until the sync is over,
        // in the shadow for good.
        let mask = signal_block::begin();
        let side = self.syncs.try_with(|syncs| {
            // Checked under the lock: the thread that sets it takes the lock afterwards.
            if self.waits_for_clones.load(Relaxed) {
                return Some(SyncSide::Target);
            }
            let control = &session.shared().control;
            if !has_room(session, sys::minor_faults()) {
                // The process has grown since the supervisor looked, which may not have had a
                // processor. Once it counts again, faults of files are told apart.
                if core::mem::take(&mut syncs.has_shadow) {
                    supersede(control);
                }
                ring_bell(session.shared());
                return Some(SyncSide::Target);
            }
            syncs.fault_wait = faults.time.mean_of(faults.count).unwrap_or(Ticks(0));
            if faults.count == 0 && syncs.has_shadow && request_rerun(session, syncs) {
                return Some(SyncSide::Target);
            }
            if !syncs.is_due(session, &self.child_stalls, faults.count.max(1)) {
                return Some(SyncSide::Target);
            }
            if self.flush_on_close.is_any_open() {
                return Some(SyncSide::Target);
            }
            self.shadowed_thread.store(core::ptr::from_ref(thread).cast_mut(), Relaxed);
            let start = ticks();
            self.child_stalls.note_children();
            self.dontfork.allow_forks();
            let shared = core::ptr::from_ref(session.shared()) as u64;
            control_client::keep_from_children(shared, false);
            let pages = control.pages_at(sys::minor_faults());
            let keeps_out = uninherited_memory::is_worth_excluding(session, pages)
                && uninherited_memory::exclude_from_fork(session, call.stack);
            let side = fork_shadow(session, call);
            if side == Some(SyncSide::Shadow) {
                return side;
            }
            control_client::keep_from_children(shared, true);
            if keeps_out {
                uninherited_memory::include_again();
                control.syncs_mirrored.fetch_add(1, Relaxed);
            }
            self.dontfork.forbid_forks();
            syncs.is_disabled = side.is_none();
            syncs.has_shadow = true;
            syncs.has_rerun = false;
            syncs.last_end = ticks();
            syncs.last_cost = syncs.last_end.wrapping_sub(start);
            control.syncs.fetch_add(1, Relaxed);
            control.sync_ticks.fetch_add(syncs.last_cost.0, Relaxed);
            let seen = syncs.observe(session);
            syncs.budget.note_sync(&seen, syncs.last_cost);
            side
        });
        if side.flatten() == Some(SyncSide::Shadow) {
            return SyncSide::Shadow;
        }
        signal_block::end(mask);
        SyncSide::Target
    }

    /// True if the shadow of another thread is at work, and was made recently.
    fn is_busy_with_another(&self, session: &'static Session, thread: &Thread) -> bool {
        let shadowed = self.shadowed_thread.load(Relaxed);
        if shadowed.is_null() || core::ptr::eq(shadowed, thread) {
            return false;
        }
        let shared = session.shared();
        let run = shared.run(shared.control.run_request.load(Relaxed));
        let ended = !matches!(RunEnd::from_raw(run.end.load(Relaxed)), RunEnd::Running);
        let recent = self.syncs.try_with(|syncs| {
            ticks().wrapping_sub(syncs.last_end) < TURN.to_ticks(session.tick_rate())
        });
        !ended && recent != Some(false)
    }
}

/// Asks the existing shadow for another run from where it was made, if that is near and was not
/// tried yet. The data that the target waited for there has arrived and changes its course. It
/// costs the target a tenth of a sync.
fn request_rerun(session: &Session, syncs: &mut SyncHistory) -> bool {
    if session.is_without(without::AGAIN) {
        return false;
    }
    let control = &session.shared().control;
    let moved = control.accesses.load(Relaxed) - control.accesses_at_sync.load(Relaxed);
    if core::mem::replace(&mut syncs.has_rerun, true) || moved > RERUN_ACCESSES_MAX {
        return false;
    }
    let run = session.shared().run(control.run_request.load(Relaxed));
    let end = RunEnd::from_raw(run.end.load(Relaxed));
    if end == RunEnd::Unsafe {
        return false;
    }
    if !matches!(end, RunEnd::Running | RunEnd::Paused) {
        request_run(control, control.sync.load(Relaxed));
    }
    true
}

fn fork_shadow(session: &'static Session, call: &Call) -> Option<SyncSide> {
    let control = &session.shared().control;
    control.accesses_at_sync.store(control.accesses.load(Relaxed), Relaxed);
    control.want_sync.store(0, Relaxed);
    let sync = supersede(control);
    let run = control.run_request.load(Relaxed);
    plane::note_forking(call.thread);
    control.made.fetch_add(1, Relaxed);
    // SAFETY: from the agent's text, with all signals blocked; the child runs on its copy of this
    // stack.
    match sys::check(unsafe { arch::orphan() }) {
        Ok(0) => {
            template::become_template(session, sync, run, call.stack);
            Some(SyncSide::Shadow)
        }
        Ok(pid) => {
            await_handshake(session, sync, pid);
            Some(SyncSide::Target)
        }
        Err(_) => {
            control.made.fetch_sub(1, Relaxed);
            None
        }
    }
}

/// Waits until the new shadow has given up what it inherited.
fn await_handshake(session: &Session, sync: u32, pid: u64) {
    let control = &session.shared().control;
    let older = control.template_pid.swap(pid as u32, Relaxed);
    let place = control.made.load(Relaxed) as usize % control.older_pids.len();
    control.older_pids[place].store(older, Relaxed);
    let give_up_at = ticks() + HANDSHAKE.to_ticks(session.tick_rate());
    loop {
        let seen = control.handshake.load(Relaxed);
        if seen == sync {
            return;
        }
        if ticks() > give_up_at {
            supersede(control);
            return;
        }
        let _ = sys::futex_wait(&control.handshake, seen, Some(1_000));
    }
}
