//! From a fork of the target to a process that makes runners.
//!
//! In this order: it takes the program's signal handlers away, leaves the target's session, gives up every descriptor but read-only copies
//! of files and directories, tells the target so (a pipe's reader must not wait for us), gives up
//! shared memory, ties its life to the supervisor's, and sandboxes itself. Then it forks a runner
//! for each run that is asked for and never executes the program's code itself.
//!
//! Invariant: a failure anywhere ends the process before a runner exists.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use linux_raw_sys::general as k;
use runahead_abi::{RunEnd, Shared};

use super::{files, memory, runner, sandbox};
use crate::plane;
use crate::session::Session;
use crate::sys::{self, nr};
use crate::target::sync::Side;

/// In the new process: becomes a template. Returns only in runners.
pub(crate) fn enter(session: &'static Session, sync: u32, run: u32) -> Side {
    let shared = session.shared;
    if prepare(session, sync).is_err() {
        shared.run(run).run.store(run, Relaxed);
        end(shared, run, RunEnd::Unsafe);
    }
    let mut run = run;
    loop {
        // SAFETY: as fork(2); CLONE_PARENT makes the runner the supervisor's child, as we are.
        let pid =
            sys::check(unsafe { sys::raw(nr::CLONE, [k::CLONE_PARENT.into(), 0, 0, 0, 0, 0]) });
        match pid {
            Ok(0) => {
                if runner::begin(session, sync, run).is_err() {
                    end(shared, run, RunEnd::Unsafe);
                }
                return Side::Shadow;
            }
            Ok(_) => {}
            Err(_) => sys::exit(1),
        }
        run = next_run(shared, sync, run);
    }
}

/// Waits until another run of this sync is asked for.
fn next_run(shared: &Shared, sync: u32, run: u32) -> u32 {
    let control = &shared.control;
    loop {
        let wanted = control.run_request.load(Acquire);
        if control.sync.load(Relaxed) != sync {
            sys::hold_nothing();
            control.gone.store(sync, Release);
            sys::futex_wake(&control.gone);
            sys::exit(0);
        }
        if wanted != run && control.run_sync.load(Relaxed) == sync {
            return wanted;
        }
        let _ = sys::futex_wait(&control.run_request, wanted, None);
    }
}

/// Says why a run ended, and ends this process.
pub(super) fn end(shared: &Shared, run: u32, why: RunEnd) -> ! {
    // Before it is said: the target may wait for it.
    sys::hold_nothing();
    shared.run(run).end.store(why as u32, Release);
    crate::hints::ring_bell(shared);
    sys::exit(0)
}

fn prepare(session: &'static Session, sync: u32) -> sys::Result<()> {
    let control = &session.shared.control;
    plane::set_alive(false);
    quiet_signals()?;
    // SAFETY: leaving the session concerns this process only, as everything below.
    sys::check(unsafe { sys::raw(nr::SETSID, [0; 6]) })?;
    files::give_up()?;
    control.handshake.store(sync, Release);
    sys::futex_wake(&control.handshake);

    die_with_supervisor(session)?;
    memory::give_up_shared(core::ptr::from_ref(session.shared) as u64)?;
    run_when_idle();
    // SAFETY: as above.
    unsafe { sys::prctl(linux_raw_sys::prctl::PR_SET_NO_NEW_PRIVS, [1, 0, 0, 0])? };
    sandbox::restrict(&session.config)
}

/// Ties the life of this process to the supervisor's. A fork does not inherit it.
pub(super) fn die_with_supervisor(session: &Session) -> sys::Result<()> {
    // SAFETY: concerns this process only.
    unsafe { sys::prctl(linux_raw_sys::prctl::PR_SET_PDEATHSIG, [k::SIGKILL.into(), 0, 0, 0])? };
    // It may have died before.
    match sys::getppid() == session.config.supervisor_pid {
        true => Ok(()),
        false => Err(sys::Errno(sys::ESRCH)),
    }
}

/// The program's handlers are not for what happens here: faults end the process without a core,
/// everything else waits.
fn quiet_signals() -> sys::Result<()> {
    const FAULTS: [u32; 6] = [k::SIGSEGV, k::SIGBUS, k::SIGILL, k::SIGFPE, k::SIGTRAP, k::SIGABRT];
    let default = [0u64; 4];
    let mut blocked = !(1u64 << (k::SIGSYS - 1));
    for signal in FAULTS {
        blocked &= !(1 << (signal - 1));
        let args = [signal.into(), default.as_ptr() as u64, 0, 8, 0, 0];
        // SAFETY: sets a default action from a live struct.
        sys::check(unsafe { sys::raw(nr::RT_SIGACTION, args) })?;
    }
    let args = [k::SIG_SETMASK.into(), &raw const blocked as u64, 0, 8, 0, 0];
    // SAFETY: reads eight bytes of ours.
    sys::check(unsafe { sys::raw(nr::RT_SIGPROCMASK, args) })?;
    let no_core = [0u64; 2];
    let args = [0, k::RLIMIT_CORE.into(), no_core.as_ptr() as u64, 0, 0, 0];
    // SAFETY: reads sixteen bytes of ours.
    sys::check(unsafe { sys::raw(nr::PRLIMIT64, args) })?;
    Ok(())
}

/// SCHED_IDLE, which any process may choose. Not being able to costs fairness, not safety.
fn run_when_idle() {
    let priority = 0i32;
    let args = [0, k::SCHED_IDLE.into(), &raw const priority as u64, 0, 0, 0];
    // SAFETY: sched_setscheduler(2) reads four bytes of ours.
    let _ = sys::check(unsafe { sys::raw(nr::FSETATTR_SCHED, args) });
}
