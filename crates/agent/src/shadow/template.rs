//! The template: turns a fork of the target into a process that makes runners.
//!
//! In this order it takes the program's signal handlers away, leaves the target's process group,
//! and gives up every descriptor but read-only copies of files and directories. It then tells the
//! target so (a pipe's reader must not wait for a shadow), gives up shared memory, and sandboxes
//! itself. Then it forks a runner for each run that is asked for, one at a time, and never executes
//! the program's code itself.
//!
//! The template has no parent that waits for it. It ends when the target or the supervisor has
//! ended, and the kernel ends its runner with it. It is scheduled as the target is, and hardly ever
//! runs; runners run when a processor is idle.
//!
//! Invariant: a failure anywhere ends the process before a runner exists.

use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use linux_raw_sys::general as k;
use runahead_abi::{RunEnd, Shared};

use super::shadow_lifetime::{self, announce_gone, end_run};
use super::{
    open_allowlist, planted_violations, policy, runner_faults, sandbox, shadow_descriptors,
    target_mirror, unshared_memory,
};
use crate::plane;
use crate::session::Session;
use crate::sys::{self, Fd, nr};

/// Interval in which an idle template checks who is alive, in microseconds.
const IDLE_CHECK_US: u64 = 100_000;
/// First interval in which a template with a runner checks who is alive, in microseconds.
const RUN_CHECK_US: u64 = 1_000;
/// Longest such interval, in microseconds.
const RUN_CHECK_US_MAX: u64 = 4_000;

/// State of a template.
struct Template {
    shared: &'static Shared,
    sync: u32,
    /// pidfds of the processes that the template serves (`open_watched`).
    watched: WatchedProcesses,
}

type WatchedProcesses = [Fd; 3];

/// A process that runs the program's code.
struct RunnerProcess {
    pid: u32,
    pidfd: Fd,
}

/// Makes this new process, whose program has its stack pointer at `stack`, a template. Returns only
/// in runners.
pub(crate) fn become_template(session: &'static Session, sync: u32, run: u32, stack: u64) {
    shadow_lifetime::mark_shadow();
    let shared = session.shared();
    let others = match prepare(session, sync, stack) {
        Ok(others) => others,
        Err(errno) => {
            shared.run(run).run.store(run, Relaxed);
            announce_gone(shared);
            end_run(shared, run, failed_start(errno));
        }
    };
    let template = Template { shared, sync, watched: others };
    let pid = sys::getpid();
    let mut run = run;
    loop {
        match sys::fork_with_pidfd() {
            Ok(None) => {
                for fd in others {
                    let _ = sys::close(fd);
                }
                if let Err(errno) = policy::begin_run(session, sync, run, pid) {
                    end_run(shared, run, failed_start(errno));
                }
                return;
            }
            Ok(Some((pid, pidfd))) => template.watch_runner(run, &RunnerProcess { pid, pidfd }),
            Err(_) => template.end_template(),
        }
        run = template.next_run(run);
    }
}

/// Reason why a run did not start: it could not be confined, or the processes that it serves have
/// ended.
fn failed_start(errno: sys::Errno) -> RunEnd {
    if errno == sys::Errno(sys::ESRCH) { RunEnd::Superseded } else { RunEnd::Unsafe }
}

impl Template {
    /// Waits until the run has ended. Ends it, and this process, once it is not wanted any more.
    fn watch_runner(&self, run: u32, child: &RunnerProcess) {
        let control = &self.shared.control;
        let mut patience = RUN_CHECK_US;
        loop {
            let ends = self.has_reported_end(run) || control.run_request.load(Relaxed) != run;
            if sys::is_readable_within(child.pidfd, if ends { 1 } else { 0 }) {
                break;
            }
            let seen = control.run_request.load(Acquire);
            let wanted = self.is_wanted();
            if !wanted || seen != run {
                // Dying takes a processor too.
                let _ = shadow_lifetime::set_scheduler(child.pid, k::SCHED_NORMAL);
                let _ = sys::kill_by_pidfd(child.pidfd);
            }
            if !wanted {
                self.collect(run, child);
                self.end_template();
            }
            // A process that supersedes this one, or has ended, wakes this wait. A crash of the
            // runner is found when the wait is over.
            if !ends {
                let _ = sys::futex_wait(&control.run_request, seen, Some(patience));
                patience = (patience * 2).min(RUN_CHECK_US_MAX);
            }
        }
        self.collect(run, child);
    }

    /// True if the runner has published how it ended, and is about to end.
    fn has_reported_end(&self, run: u32) -> bool {
        let status = self.shared.run(run);
        let end = RunEnd::from_raw(status.end.load(Acquire));
        status.run.load(Relaxed) == run && !matches!(end, RunEnd::Running | RunEnd::Paused)
    }

    /// Collects a runner, and publishes its end if the runner has not.
    fn collect(&self, run: u32, child: &RunnerProcess) {
        let cpu = sys::collect(child.pid).unwrap_or(0);
        let _ = sys::close(child.pidfd);
        self.shared.control.shadow_cpu_us.fetch_add(cpu, Relaxed);
        let status = self.shared.run(run);
        if status.run.load(Relaxed) == run && !self.has_reported_end(run) {
            status.end.store(RunEnd::Fault as u32, Release);
        }
        crate::hint_sender::ring_bell(self.shared);
    }

    /// Waits until another run of this sync is asked for.
    fn next_run(&self, run: u32) -> u32 {
        let control = &self.shared.control;
        loop {
            let wanted = control.run_request.load(Acquire);
            if !self.is_wanted() {
                self.end_template();
            }
            if wanted != run && control.run_sync.load(Relaxed) == self.sync {
                return wanted;
            }
            let _ = sys::futex_wait(&control.run_request, wanted, Some(IDLE_CHECK_US));
        }
    }

    /// True if this sync is the newest and the processes that it serves are alive.
    fn is_wanted(&self) -> bool {
        self.shared.control.sync.load(Relaxed) == self.sync
            && !self.watched.iter().any(|&fd| sys::is_readable_within(fd, 0))
    }

    fn end_template(&self) -> ! {
        self.shared.control.shadow_cpu_us.fetch_add(sys::cpu_us(), Relaxed);
        announce_gone(self.shared);
        sys::exit(0)
    }
}

/// Prepares this process. Returns the processes to watch.
fn prepare(session: &'static Session, sync: u32, stack: u64) -> sys::Result<WatchedProcesses> {
    let control = &session.shared().control;
    plane::patch::enable(false);
    prepare_signals()?;
    prefer_oom_kill();
    if planted_violations::without_sandbox(session) {
        control.handshake.store(sync, Release);
        sys::futex_wake(&control.handshake);
        return open_watched(session);
    }
    leave_group()?;
    shadow_descriptors::give_up_inherited()?;
    control.handshake.store(sync, Release);
    sys::futex_wake(&control.handshake);

    let others = open_watched(session)?;
    target_mirror::make_uninherited_lazy()?;
    unshared_memory::give_up_shared(core::ptr::from_ref(session.shared()) as u64, stack)?;
    runner_faults::bring_touched(session.shared());
    open_allowlist::prepare(&session.config)?;
    // SAFETY: concerns this process only.
    unsafe { sys::prctl(linux_raw_sys::prctl::PR_SET_NO_NEW_PRIVS, [1, 0, 0, 0])? };
    sandbox::restrict(&session.config)?;
    Ok(others)
}

/// Opens pidfds of the supervisor, its I/O process if there is one, and the target.
fn open_watched(session: &Session) -> sys::Result<WatchedProcesses> {
    let supervisor = session.config.supervisor_pid;
    let io_process = session.io_process_pid().unwrap_or(supervisor);
    let all = [supervisor, io_process, session.target_pid()];
    let mut opened = [0; 3];
    for (fd, pid) in opened.iter_mut().zip(all) {
        *fd = sys::pidfd_open(pid)?;
    }
    Ok(opened)
}

/// Takes the program's signal handlers away: faults come to the agent, and everything else is
/// blocked.
fn prepare_signals() -> sys::Result<()> {
    let mut blocked = !(1u64 << (k::SIGSYS - 1));
    for signal in runner_faults::FAULT_SIGNALS {
        blocked &= !(1 << (signal - 1));
    }
    runner_faults::install_handlers()?;
    let args = [k::SIG_SETMASK.into(), &raw const blocked as u64, 0, 8, 0, 0];
    // SAFETY: reads eight bytes of ours.
    sys::check(unsafe { sys::raw(nr::RT_SIGPROCMASK, args) })?;
    let no_core = [0u64; 2];
    let args = [0, k::RLIMIT_CORE.into(), no_core.as_ptr() as u64, 0, 0, 0];
    // SAFETY: reads sixteen bytes of ours.
    sys::check(unsafe { sys::raw(nr::PRLIMIT64, args) })?;
    Ok(())
}

/// Leaves the process group of the target, whose signals are not for the shadow.
///
/// It stays in the target's session. A new session would be an autogroup of its own (sched(7)),
/// which shares processors evenly with all others, even if only idle-class processes run in it. Its
/// weight could be set, but then a template would be slow to give up what it holds when the machine
/// is busy.
fn leave_group() -> sys::Result<()> {
    // SAFETY: concerns this process only.
    sys::check(unsafe { sys::raw(nr::SETPGID, [0; 6]) }).map(|_| ())
}

/// Makes the kernel kill this process and its runners, and not the program, where memory is short.
fn prefer_oom_kill() {
    const WORST: &[u8] = b"1000";
    write_file(c"/proc/self/oom_score_adj", WORST);
}

/// Writes a setting of this process; a failure has no other consequence.
fn write_file(path: &core::ffi::CStr, value: &[u8]) {
    let path = path.as_ptr() as u64;
    if let Ok(fd) = sys::openat2(k::AT_FDCWD, path, k::O_WRONLY | k::O_CLOEXEC, 0, 0) {
        let args = [fd as u64, value.as_ptr() as u64, value.len() as u64, 0, 0, 0];
        // SAFETY: writes bytes of ours to a file that concerns this process only.
        let _ = sys::check(unsafe { sys::raw(nr::WRITE, args) });
        let _ = sys::close(fd);
    }
}
