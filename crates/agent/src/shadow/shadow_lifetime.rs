//! Lifetime of a shadow: how it starts, is scheduled and ends.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::Release};

use linux_raw_sys::general as k;
use runahead_abi::{RunEnd, Shared};

use crate::sys::{self, nr};

static IS_SHADOW: AtomicBool = AtomicBool::new(false);

/// True in templates and runners.
pub fn is_shadow() -> bool {
    IS_SHADOW.load(Relaxed)
}

/// Marks this process as a shadow.
pub(super) fn mark_shadow() {
    IS_SHADOW.store(true, Relaxed);
}

/// Gives up all that a template holds and announces its end.
pub(super) fn announce_gone(shared: &Shared) {
    sys::hold_nothing();
    shared.control.gone.fetch_add(1, Release);
    sys::futex_wake(&shared.control.gone);
}

/// Publishes why a run ended, and ends this process.
pub(super) fn end_run(shared: &Shared, run: u32, why: RunEnd) -> ! {
    // First, as the target may wait for the announcement.
    sys::hold_nothing();
    shared.run(run).end.store(why as u32, Release);
    sys::futex_wake(&shared.control.run_request);
    crate::hint_sender::ring_bell(shared);
    sys::exit(0)
}

/// Ties the life of this process to that of its parent. A fork does not inherit this.
pub(super) fn die_with_parent(parent: u32) -> sys::Result<()> {
    // SAFETY: concerns this process only.
    unsafe { sys::prctl(linux_raw_sys::prctl::PR_SET_PDEATHSIG, [k::SIGKILL.into(), 0, 0, 0])? };
    // The parent may have died before.
    match sys::getppid() == parent {
        true => Ok(()),
        false => Err(sys::Errno(sys::ESRCH)),
    }
}

/// Schedules this process only when a processor is idle. Failing costs fairness, not safety.
pub(super) fn run_when_idle() {
    let _ = set_scheduler(0, k::SCHED_IDLE);
}

/// sched_setscheduler(2), to a policy without priorities.
pub(super) fn set_scheduler(pid: u32, policy: u32) -> sys::Result<u64> {
    let priority = 0i32;
    let args = [pid.into(), policy.into(), &raw const priority as u64, 0, 0, 0];
    // SAFETY: reads four bytes of ours.
    sys::check(unsafe { sys::raw(nr::SCHED_SETSCHEDULER, args) })
}
