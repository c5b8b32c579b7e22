//! Limits of resources under which a program had better be left alone.
//!
//! What the agent and its shadows take counts against the program's own limits. That is nothing
//! where a limit is generous. Where it is there to be met, the program would meet it sooner than
//! without us.

use nix::libc;
use rustix::process::{Pid, getuid};

/// Address space: the agent takes some 35 MiB.
const ADDRESS_SPACE: u64 = 1 << 30;
/// Processes of one user: a session takes up to some hundred threads and processes.
const PROCESSES: u64 = 1 << 10;

/// Why `process` (`None`: this one) is to run without the agent, if it is.
pub fn reason_to_run_natively(process: Option<Pid>) -> Option<String> {
    let pid = Pid::as_raw(process);
    let below = |resource, enough| limit(pid, resource).filter(|&soft| soft < enough);
    let mebibytes = |what: &str, bytes: u64| {
        format!(
            "its {what} is limited to {} MiB, of which the agent would take a part",
            bytes >> 20
        )
    };
    if let Some(bytes) = below(libc::RLIMIT_AS, ADDRESS_SPACE) {
        return Some(mebibytes("address space", bytes));
    }
    // 0 is not enforced: no program could start.
    if let Some(bytes) = below(libc::RLIMIT_DATA, ADDRESS_SPACE).filter(|&bytes| bytes > 0) {
        return Some(mebibytes("data segment", bytes));
    }
    reason_no_session(process)
}

/// Why `process` (or this one) cannot have a session, if its limit of processes is why: then even
/// ours may be one too many.
pub fn reason_no_session(process: Option<Pid>) -> Option<String> {
    let pid = Pid::as_raw(process);
    let number = process_limit(pid).filter(|&soft| soft < PROCESSES)?;
    Some(format!("its user is limited to {number} processes, of which shadows would take a part"))
}

/// Limit of processes and threads of the user of `pid`; 0 is this process.
pub(crate) fn process_limit(pid: i32) -> Option<u64> {
    let bound = process_limit_applies();
    limit(pid, libc::RLIMIT_NPROC).filter(|&soft| bound && soft != libc::RLIM_INFINITY)
}

/// The kernel exempts the first user. (And those with certain capabilities, who are left out here:
/// they would run natively without need.)
fn process_limit_applies() -> bool {
    !getuid().is_root()
}

/// The soft limit.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

fn limit(pid: i32, resource: Resource) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: no new limit, and a structure for the old one that lives.
    let told = unsafe { libc::prlimit(pid, resource, std::ptr::null(), &mut limit) };
    (told == 0).then_some(limit.rlim_cur)
}
