//! How long a shadow lives, and how it ends.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::Release};

use linux_raw_sys::general as k;
use runahead_abi::{RunEnd, Shared};

use crate::sys::{self, nr};

/// This process is a shadow.
static IS_SHADOW: AtomicBool = AtomicBool::new(false);

/// True in templates and runners.
pub(super) fn is_shadow() -> bool {
    IS_SHADOW.load(Relaxed)
}

/// From now on this process is a shadow.
pub(super) fn mark_shadow() {
    IS_SHADOW.store(true, Relaxed);
}

/// A template that is about to end gives up what it holds, and says so.
pub(super) fn announce_gone(shared: &Shared) {
    sys::hold_nothing();
    shared.control.gone.fetch_add(1, Release);
    sys::futex_wake(&shared.control.gone);
}

/// Says why a run ended, and ends this process.
pub(super) fn end_run(shared: &Shared, run: u32, why: RunEnd) -> ! {
    // Before it is said: the target may wait for it.
    sys::hold_nothing();
    shared.run(run).end.store(why as u32, Release);
    sys::futex_wake(&shared.control.run_request);
    crate::hint_sender::ring_bell(shared);
    sys::exit(0)
}

/// Ties the life of this process to that of its parent. A fork does not inherit it.
pub(super) fn die_with_parent(parent: u32) -> sys::Result<()> {
    // SAFETY: concerns this process only.
    unsafe { sys::prctl(linux_raw_sys::prctl::PR_SET_PDEATHSIG, [k::SIGKILL.into(), 0, 0, 0])? };
    // It may have died before.
    match sys::getppid() == parent {
        true => Ok(()),
        false => Err(sys::Errno(sys::ESRCH)),
    }
}

/// Has this process run when nothing else wants to. Not being able to costs fairness, not safety.
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
