//! The processes that are shadows: ended when superseded, collected, and accounted for.
//!
//! They are our own children (the agent makes them with `CLONE_PARENT`). Numbers of processes come
//! from shared memory, which a shadow can write, so one is signalled only if the kernel says that
//! it is a child of ours and not the command.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nix::libc;
use nix::unistd::Pid;
use runahead_abi::{RunEnd, Shared};

/// User and system time of collected shadows.
#[derive(Debug, Default, Clone, Copy)]
pub struct Collected {
    /// Processes collected.
    pub processes: u64,
    /// Their processor time.
    pub cpu: Duration,
}

/// What waiting for a child gave.
pub enum Waited {
    /// The command ended with this wait status.
    Command(i32),
    /// A shadow was collected.
    Shadow,
    /// None has ended (only without waiting).
    Nobody,
    /// There are no children.
    NoChildren,
}

/// Waits for a child (or looks, with `WNOHANG`), and accounts for it if it was a shadow.
pub fn wait(command: Pid, shared: &Shared, sum: &mut Collected, options: i32) -> Waited {
    let mut status = 0;
    // SAFETY: rusage is numbers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: two live variables of ours.
        let pid = unsafe { libc::wait4(-1, &mut status, options, &mut usage) };
        match pid {
            0 => return Waited::Nobody,
            -1 if nix::errno::Errno::last() == nix::errno::Errno::EINTR => continue,
            -1 => return Waited::NoChildren,
            pid if pid == command.as_raw() => return Waited::Command(status),
            pid => {
                let time = |t: libc::timeval| {
                    Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
                };
                sum.processes += 1;
                sum.cpu += time(usage.ru_utime) + time(usage.ru_stime);
                note_end(shared, pid as u32);
                return Waited::Shadow;
            }
        }
    }
}

/// A runner that was killed (by a fault, most likely) has not said that it ended.
fn note_end(shared: &Shared, pid: u32) {
    for status in shared.runs.iter().filter(|s| s.pid.load(Relaxed) == pid) {
        let end = RunEnd::from_raw(status.end.load(Relaxed));
        if matches!(end, RunEnd::Running | RunEnd::Paused) {
            status.end.store(RunEnd::Fault as u32, Relaxed);
        }
        status.pid.store(0, Relaxed);
    }
}

/// Kills `pid` if it is a shadow of ours.
fn kill(pid: u32, command: Pid) {
    let pid = pid as i32;
    if pid <= 1 || pid == command.as_raw() {
        return;
    }
    // SAFETY: siginfo is plain data, for which zero is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: looks whether `pid` is a child, without collecting it; then signals that child,
    // whose number cannot be reused before this process collects it.
    unsafe {
        if libc::waitid(libc::P_PID, pid as u32, &mut info, flags) == 0 {
            libc::kill(pid, libc::SIGKILL);
        }
    }
}

/// Ends the runners of runs before `run` that have not ended themselves.
pub fn kill_runs_before(shared: &Shared, run: u32, command: Pid) {
    for status in &shared.runs {
        let (its, pid) = (status.run.load(Relaxed), status.pid.load(Relaxed));
        if pid != 0 && its.wrapping_sub(run) as i32 <= -1 {
            kill(pid, command);
        }
    }
}

/// Ends and collects every shadow.
pub fn end_all(shared: &Shared, command: Pid, sum: &mut Collected) {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        kill(shared.control.template_pid.load(Relaxed), command);
        kill_runs_before(shared, shared.control.run_request.load(Relaxed).wrapping_add(1), command);
        match wait(command, shared, sum, libc::WNOHANG) {
            Waited::NoChildren => return,
            Waited::Nobody if Instant::now() > deadline => return,
            Waited::Nobody => std::thread::sleep(Duration::from_micros(200)),
            Waited::Command(_) | Waited::Shadow => {}
        }
    }
}
