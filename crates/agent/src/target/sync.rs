//! Making a shadow of the target as it is now, inside a stall.
//!
//! How a shadow gets its memory is this file's and `shadow::template`'s secret: today a fork at
//! every sync (docs/decisions/0001). The rest of the agent knows only [`Side`].

use core::sync::atomic::Ordering::{Relaxed, Release};

use linux_raw_sys::general::CLONE_PARENT;
use runahead_abi::{Control, RunEnd};

use crate::arch::ticks;
use crate::session::Session;
use crate::shadow::template;
use crate::sys::{self, nr};

/// Longest wait for a template to give up the target's descriptors, in microseconds. It takes some
/// tens; a template that takes longer has been killed or starved, and is superseded.
const HANDSHAKE_US: u64 = 5_000;
/// A sync is allowed when this many times its cost has passed since the last one.
const SPACING: u64 = 4;
/// After this many syncs in a row without a used hint, ever fewer stalls are worth one.
const PATIENCE: u32 = 8;

/// Which process returns from a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The target, which goes on to wait for its data.
    Target,
    /// A runner of the shadow, sandboxed, at the same point.
    Shadow,
}

/// Decides which stalls are worth a sync, and remembers how the last ones went.
pub struct Syncs {
    last_end: u64,
    last_cost: u64,
    useless: u32,
    used_before: u64,
    skip: u32,
    /// The supervisor is gone, or shadows cannot be made.
    off: bool,
    /// A shadow was made and not told to end since.
    alive: bool,
}

impl Syncs {
    pub(super) const fn new() -> Self {
        Syncs {
            last_end: 0,
            last_cost: 0,
            useless: 0,
            used_before: 0,
            skip: 0,
            off: false,
            alive: false,
        }
    }

    /// Ends the shadow there is, if there is one.
    pub(super) fn let_go(&mut self, control: &Control) {
        if core::mem::take(&mut self.alive) {
            supersede(control);
        }
    }

    /// The same, and waits (bounded) until it holds nothing any more: the call at hand would find
    /// it in the way.
    pub(super) fn let_go_of_all(&mut self, session: &Session) {
        let control = &session.shared.control;
        let (sync, run) = (control.sync.load(Relaxed), control.run_request.load(Relaxed));
        if !self.alive {
            return;
        }
        self.let_go(control);
        let give_up_at = ticks() + HANDSHAKE_US * session.config.ticks_per_us;
        let runs = || RunEnd::from_raw(session.shared.run(run).end.load(Relaxed));
        loop {
            let seen = control.gone.load(Relaxed);
            let idle = !matches!(runs(), RunEnd::Running | RunEnd::Paused);
            if (seen == sync && idle) || ticks() > give_up_at {
                return;
            }
            let _ = sys::futex_wait(&control.gone, seen, Some(200));
        }
    }

    /// Makes a shadow, if it is worth while now.
    pub(super) fn at_stall(&mut self, session: &'static Session) -> Side {
        let control = &session.shared.control;
        if self.off || ticks().wrapping_sub(self.last_end) < SPACING * self.last_cost {
            return Side::Target;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Side::Target;
        }
        let used = control.hints_used.load(Relaxed);
        self.useless = if used > self.used_before { 0 } else { self.useless + 1 };
        self.used_before = used;
        if self.useless > PATIENCE {
            self.skip = 1 << (self.useless - PATIENCE).min(8);
        }
        if sys::getppid() != session.config.supervisor_pid {
            self.off = true;
            return Side::Target;
        }
        // No handler of the program's may run in the new process, which still is of its group, nor
        // leave a sync half made: signals wait, in the target until it is over, in the shadow for
        // good.
        let mask = sys::set_mask(!0);
        let start = ticks();
        let side = fork(session);
        if side == Some(Side::Shadow) {
            return Side::Shadow;
        }
        self.off = side.is_none();
        self.alive = true;
        self.last_end = ticks();
        self.last_cost = self.last_end - start;
        control.syncs.fetch_add(1, Relaxed);
        control.sync_ticks.fetch_add(self.last_cost, Relaxed);
        sys::set_mask(mask);
        Side::Target
    }
}

/// Makes every shadow that exists end itself; the number of the sync that takes over.
pub(super) fn supersede(control: &Control) -> u32 {
    let sync = control.sync.load(Relaxed).wrapping_add(1);
    control.sync.store(sync, Relaxed);
    control.run_sync.store(sync, Relaxed);
    control.run_request.fetch_add(1, Release);
    sys::futex_wake(&control.run_request);
    sync
}

fn fork(session: &'static Session) -> Option<Side> {
    let control = &session.shared.control;
    control.accesses_at_sync.store(control.accesses.load(Relaxed), Relaxed);
    control.want_sync.store(0, Relaxed);
    let sync = supersede(control);
    let run = control.run_request.load(Relaxed);
    // The new process is our parent's child: nobody's that the target could wait for.
    // SAFETY: as fork(2), from the agent's text; the child runs on its copy of this stack.
    let pid = sys::check(unsafe { sys::raw(nr::CLONE, [CLONE_PARENT.into(), 0, 0, 0, 0, 0]) });
    if pid == Ok(0) {
        return Some(template::enter(session, sync, run));
    }
    handshake(session, sync, pid.ok()?);
    Some(Side::Target)
}

/// Waits until the new shadow has given up what it inherited.
fn handshake(session: &Session, sync: u32, pid: u64) {
    let control = &session.shared.control;
    control.template_pid.store(pid as u32, Relaxed);
    let give_up_at = ticks() + HANDSHAKE_US * session.config.ticks_per_us;
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
