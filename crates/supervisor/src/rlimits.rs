//! Resource limits that are too low for the agent or for a session.
//!
//! The agent and its shadows count against the program's own limits. That does not matter where a
//! limit is generous. Where a limit is meant to be hit, the program would hit it sooner than
//! without the agent.

use nix::libc;
use rustix::process::{Pid, getuid};

/// Address space in bytes below which a program runs natively; the agent takes some 35 MiB.
const ADDRESS_SPACE: u64 = 1 << 30;
/// Number of a user's processes below which a program runs natively; a session takes up to some
/// hundred processes and threads.
const PROCESSES: u64 = 1 << 10;

/// Limit that is too low for the agent or for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitTooLow {
    /// RLIMIT_AS of the process.
    #[error("its address space is limited to {} MiB, of which the agent would take a part", bytes >> 20)]
    AddressSpace {
        /// Limit in bytes.
        bytes: u64,
    },
    /// RLIMIT_DATA of the process.
    #[error("its data segment is limited to {} MiB, of which the agent would take a part", bytes >> 20)]
    DataSegment {
        /// Limit in bytes.
        bytes: u64,
    },
    /// RLIMIT_NPROC of the user.
    #[error("its user is limited to {processes} processes, of which shadows would take a part")]
    UserProcesses {
        /// Limit of processes and threads.
        processes: u64,
    },
    /// `pids.max` of the control group.
    #[error(
        "its control group has room for {free} more processes and threads, of which shadows would take a part"
    )]
    ControlGroup {
        /// Number of processes and threads that may still be started.
        free: u64,
    },
}

/// Returns the limit for which `process` (`None`: this one) must run without the agent.
pub fn reason_to_run_natively(process: Option<Pid>) -> Option<LimitTooLow> {
    let pid = Pid::as_raw(process);
    let below = |resource, enough| limit(pid, resource).filter(|&soft| soft < enough);
    if let Some(bytes) = below(libc::RLIMIT_AS, ADDRESS_SPACE) {
        return Some(LimitTooLow::AddressSpace { bytes });
    }
    // The kernel does not enforce 0: no program could start.
    if let Some(bytes) = below(libc::RLIMIT_DATA, ADDRESS_SPACE).filter(|&bytes| bytes > 0) {
        return Some(LimitTooLow::DataSegment { bytes });
    }
    reason_no_session(process)
}

/// Returns the limit of processes for which `process` (`None`: this one) can have no session. Even
/// the supervisor may be one process too many then.
pub fn reason_no_session(process: Option<Pid>) -> Option<LimitTooLow> {
    let pid = Pid::as_raw(process);
    let processes = process_limit(pid).filter(|&soft| soft < PROCESSES)?;
    Some(LimitTooLow::UserProcesses { processes })
}

/// Limit of processes and threads of the user of `pid`; 0 is this process.
pub(crate) fn process_limit(pid: i32) -> Option<u64> {
    let bound = process_limit_applies();
    limit(pid, libc::RLIMIT_NPROC).filter(|&soft| bound && soft != libc::RLIM_INFINITY)
}

/// True if the kernel enforces the limit, which exempts root. It also exempts processes with
/// certain capabilities; these are not considered, and run natively without need.
fn process_limit_applies() -> bool {
    !getuid().is_root()
}

/// Type of a resource's number in this C library.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

fn limit(pid: i32, resource: Resource) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: sets no limit, and writes the old one to `limit`.
    let told = unsafe { libc::prlimit(pid, resource, std::ptr::null(), &mut limit) };
    (told == 0).then_some(limit.rlim_cur)
}
