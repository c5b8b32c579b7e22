//! Calls that do not name a file, or that would have an effect.
//!
//! Effects are answered as if they had succeeded. What is private to this process (its memory, its
//! clocks) is real. Everything else ends the run.

use linux_raw_sys::general as k;
use runahead_abi::RunEnd;

use super::mapped_pages;
use super::runner::{CallAnswer, Stop};
use crate::plane::Call;
use crate::session;
use crate::sys::{self, nr};

/// Calls with an effect that are answered with 0. Those that change attributes are in
/// [`nr::ATTRIBUTE_CHANGES`].
const SUCCEEDING_CALLS: &[u64] = &[
    nr::FSYNC,
    nr::FDATASYNC,
    nr::SYNC,
    nr::SYNCFS,
    nr::SYNC_FILE_RANGE,
    nr::FTRUNCATE,
    nr::TRUNCATE,
    nr::FALLOCATE,
    nr::RENAME,
    nr::RENAMEAT,
    nr::RENAMEAT2,
    nr::MKDIR,
    nr::MKDIRAT,
    nr::RMDIR,
    nr::UNLINK,
    nr::UNLINKAT,
    nr::LINK,
    nr::LINKAT,
    nr::SYMLINK,
    nr::SYMLINKAT,
    nr::FLOCK,
    nr::NANOSLEEP,
    nr::CLOCK_NANOSLEEP,
    nr::RT_SIGACTION,
    nr::RT_SIGPROCMASK,
    nr::SIGALTSTACK,
    nr::SET_ROBUST_LIST,
    nr::RSEQ,
    nr::SETITIMER,
    nr::ALARM,
    nr::MSYNC,
    nr::UMASK,
    nr::SCHED_YIELD,
    nr::SETPGID,
];

/// Calls that concern only this process and are made as they stand; the sandbox may still refuse
/// them.
const NATIVE_CALLS: &[u64] = &[
    nr::BRK,
    nr::UNAME,
    nr::GETRLIMIT,
    nr::GETRUSAGE,
    nr::SYSINFO,
    nr::TIMES,
    nr::GETUID,
    nr::GETGID,
    nr::GETEUID,
    nr::GETEGID,
    nr::GETGROUPS,
    nr::GETRESUID,
    nr::GETRESGID,
    nr::GETTIMEOFDAY,
    nr::TIME,
    nr::CLOCK_GETTIME,
    nr::CLOCK_GETRES,
    nr::GETCPU,
    nr::SCHED_GETAFFINITY,
    nr::GETRANDOM,
    nr::GETCWD,
    nr::CAPGET,
];

/// Answers a call that names no file.
pub(super) fn answer(call: &Call, target_pid: u32) -> CallAnswer {
    let a = &call.args;
    match call.nr {
        n if SUCCEEDING_CALLS.contains(&n) || nr::ATTRIBUTE_CHANGES.contains(&n) => Ok(0),
        n if NATIVE_CALLS.contains(&n) => Ok(call.perform()),
        nr::WRITE | nr::PWRITE64 | nr::SENDTO => Ok(a[2] as i64),
        nr::WRITEV | nr::PWRITEV | nr::PWRITEV2 => Ok(vector_bytes(a[1], a[2])),
        nr::GETPID | nr::GETTID | nr::SET_TID_ADDRESS | nr::GETPGRP | nr::SETSID => {
            Ok(target_pid.into())
        }
        nr::GETPPID => Ok(session::get().map_or(1, |s| s.config.supervisor_pid.into())),
        // Neither a terminal nor another device.
        nr::IOCTL => Ok(sys::fail(sys::ENOTTY)),
        nr::GETXATTR | nr::LGETXATTR | nr::FGETXATTR => Ok(sys::fail(sys::ENODATA)),
        nr::LISTXATTR | nr::LLISTXATTR | nr::FLISTXATTR => Ok(0),
        nr::STATFS | nr::FSTATFS => Ok(sys::fail(sys::ENOSYS)),
        nr::MPROTECT | nr::MREMAP | nr::MADVISE | nr::MUNMAP => change_memory(call),
        nr::FUTEX => futex(a[1] as u32),
        nr::PRLIMIT64 if a[2] == 0 => Ok(call.perform()),
        nr::PRCTL | nr::RT_SIGPENDING => Ok(0),
        _ => Err(Stop(RunEnd::Call)),
    }
}

/// futex(2): a runner has one thread, so there is no thread to wake, and waiting would be for ever.
fn futex(operation: u32) -> CallAnswer {
    match operation & !(k::FUTEX_PRIVATE_FLAG | k::FUTEX_CLOCK_REALTIME) {
        k::FUTEX_WAKE => Ok(0),
        _ => Err(Stop(RunEnd::Call)),
    }
}

/// Changes the program's memory. That of the agent, and shared memory, must stay.
fn change_memory(call: &Call) -> CallAnswer {
    let [at, len, ..] = call.args;
    match session::get() {
        Some(session) if session.owns_any(at, len) => Err(Stop(RunEnd::Call)),
        _ if call.nr == nr::MUNMAP => {
            mapped_pages::forget(at, len);
            Ok(call.perform())
        }
        // Lazy memory becomes accessible as it is brought, and has no contents to drop.
        _ if mapped_pages::overlap(at, len) => {
            if call.nr == nr::MPROTECT && call.args[2] & u64::from(k::PROT_WRITE) != 0 {
                mapped_pages::allow_stores(at, len);
            }
            if call.nr == nr::MREMAP { Err(Stop(RunEnd::Call)) } else { Ok(0) }
        }
        _ => Ok(call.perform()),
    }
}

/// Bytes in an array of iovec; a bad address ends the runner.
pub(super) fn vector_bytes(at: u64, count: u64) -> i64 {
    (0..count.min(k::UIO_MAXIOV.into()))
        // SAFETY: reading the program's memory in a process that may fault.
        .map(|n| unsafe { ((at + n * 16 + 8) as *const u64).read_unaligned() } as i64)
        .fold(0, i64::wrapping_add)
}
