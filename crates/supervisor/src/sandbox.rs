//! What the kernel denies a shadow: built here, where libraries are, installed by the agent.
//!
//! seccomp allows what a shadow needs to read and to keep its own memory, and refuses everything
//! else with EPERM; Landlock, which sees paths where seccomp sees numbers, refuses every open that
//! could write, create, remove or execute. Together they leave reading regular files, directories
//! and private memory.
//!
//! Invariant: no call below can change anything outside the process, whatever its arguments.

use std::collections::BTreeMap;

use landlock::{ABI, Access, AccessFs, AccessNet, BitFlags, Scope};
use nix::errno::Errno;
use nix::libc;
use runahead_abi::AgentConfig;
#[cfg(test)]
use runahead_abi::config::RUNNER_FILTER_MAX;
use runahead_abi::config::{FILTER_MAX, FORK_MARK, SHARED_END, SHARED_START};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// Why no sandbox can be put up here.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel has no Landlock, or it is switched off.
    #[error("Landlock is not available ({0}); it needs Linux 6.2 with `landlock` among its `lsm=`")]
    Landlock(Errno),
    /// A Landlock that cannot deny truncation.
    #[error("Landlock version {0} is too old; version 3 came with Linux 6.2")]
    OldLandlock(i32),
    /// A rule is wrong. A mistake of ours, caught by this crate's tests.
    #[error("the system call filter cannot be built: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// Longer than the place reserved for it.
    #[error("the system call filter is too long: {0} instructions")]
    TooLong(usize),
}

/// Calls that only read, or concern the caller's own memory, whatever their arguments.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_preadv2,
    libc::SYS_pread64,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_lseek,
    CACHESTAT,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_clock_getres,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_getgid,
    libc::SYS_geteuid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_getrlimit,
    libc::SYS_sched_getaffinity,
    // For one's own children only; to learn that they have ended.
    libc::SYS_wait4,
    libc::SYS_poll,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigreturn,
    libc::SYS_getcwd,
    libc::SYS_capget,
    libc::SYS_close_range,
    libc::SYS_chdir,
];

/// cachestat(2), which libc does not name on every target.
pub(crate) const CACHESTAT: libc::c_long = 451;
const ARCH_GET_FS: u64 = 0x1003;
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
const MAP_TYPE: u64 = 0xf;

/// Calls that are harmless with certain arguments: (call, argument, comparison, value).
fn conditional() -> Vec<(libc::c_long, u8, Op, u64)> {
    let mut rules = vec![
        (libc::SYS_mmap, 3, Op::MaskedEq(MAP_TYPE), libc::MAP_PRIVATE as u64),
        // No readahead by the shadow's own reads, on the descriptors that it has opened.
        (libc::SYS_fadvise64, 3, Op::Eq, libc::POSIX_FADV_RANDOM as u64),
        (libc::SYS_arch_prctl, 0, Op::Eq, ARCH_GET_FS),
        (libc::SYS_prctl, 0, Op::Eq, PR_SET_SYSCALL_USER_DISPATCH),
        // To run when nothing else wants to, and to end a runner that does; runners lose both.
        (libc::SYS_sched_setscheduler, 1, Op::Eq, libc::SCHED_IDLE as u64),
        (libc::SYS_sched_setscheduler, 1, Op::Eq, libc::SCHED_OTHER as u64),
        // To die with one's parent.
        (libc::SYS_prctl, 0, Op::Eq, libc::PR_SET_PDEATHSIG as u64),
        // Asking for a limit, not setting one.
        (libc::SYS_prlimit64, 2, Op::Eq, 0),
        // A plain process, known by a pidfd; runners lose this again, and what one can do with that.
        (libc::SYS_clone, 0, Op::Eq, libc::CLONE_PIDFD as u64),
        (libc::SYS_pidfd_send_signal, 1, Op::Eq, libc::SIGKILL as u64),
    ];
    let advice = [
        libc::MADV_NORMAL,
        libc::MADV_RANDOM,
        libc::MADV_SEQUENTIAL,
        libc::MADV_WILLNEED,
        libc::MADV_DONTNEED,
        libc::MADV_FREE,
        libc::MADV_HUGEPAGE,
        libc::MADV_NOHUGEPAGE,
    ];
    rules.extend(advice.map(|a| (libc::SYS_madvise, 2, Op::Eq, a as u64)));
    rules
}

/// On an argument: its number, a comparison, a value.
type Condition = (u8, Op, u64);

/// Harmless if all of these hold: (call, conditions).
fn combined() -> Vec<(libc::c_long, Vec<Condition>)> {
    // Waiting and waking in the memory that is ours. Memory that is private is not enough: a page
    // of a file that is mapped to be read is the same page for whoever shares it, and to wake him,
    // or to take his turn by waiting, would be an effect.
    let futex = |operation: libc::c_int| {
        let ours = [(0, Op::Ge, SHARED_START), (0, Op::Lt, SHARED_END)];
        let rule = ours.into_iter().chain([(1, Op::Eq, operation as u64)]).collect();
        (libc::SYS_futex, rule)
    };
    // Filters only add up, but one that logs would write to the kernel's log: runners lose this.
    let filter = vec![(0, Op::Eq, SECCOMP_SET_MODE_FILTER), (1, Op::Eq, 0)];
    // A plain process, made by the agent itself.
    let fork = vec![(0, Op::Eq, 0), (4, Op::Eq, FORK_MARK)];
    vec![
        futex(libc::FUTEX_WAIT),
        futex(libc::FUTEX_WAKE),
        (libc::SYS_seccomp, filter),
        (libc::SYS_clone, fork),
    ]
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, SandboxError> {
    let filter = SeccompFilter::new(rules, otherwise, listed, TargetArch::x86_64)?;
    Ok(filter.try_into()?)
}

/// The filter of templates.
fn template_filter() -> Result<BpfProgram, SandboxError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    for (call, argument, op, value) in conditional() {
        let condition = SeccompCondition::new(argument, Len::Qword, op, value)?;
        rules.entry(call).or_default().push(SeccompRule::new(vec![condition])?);
    }
    for (call, conditions) in combined() {
        let conditions = conditions
            .into_iter()
            .map(|(argument, op, value)| SeccompCondition::new(argument, Len::Qword, op, value));
        let rule = SeccompRule::new(conditions.collect::<Result<_, _>>()?)?;
        rules.entry(call).or_default().push(rule);
    }
    program(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// What runners put on top.
fn runner_filter() -> Result<BpfProgram, SandboxError> {
    let refused = [
        libc::SYS_seccomp,
        libc::SYS_pidfd_send_signal,
        libc::SYS_sched_setscheduler,
        libc::SYS_poll,
    ];
    let mut rules: BTreeMap<_, _> = refused.into_iter().map(|call| (call, Vec::new())).collect();
    let other = |argument, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, Len::Qword, Op::Ne, value)?])
    };
    rules.insert(libc::SYS_clone, vec![other(0, 0)?, other(4, FORK_MARK)?]);
    program(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))
}

/// The highest Landlock version of this kernel.
fn landlock_version() -> Result<i32, SandboxError> {
    const CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: asks for a number; no memory is passed.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, CREATE_RULESET_VERSION)
    };
    match version {
        v if v < 0 => Err(SandboxError::Landlock(Errno::last())),
        v if v < 3 => Err(SandboxError::OldLandlock(v as i32)),
        v => Ok(v as i32),
    }
}

/// Fills in the sandbox's part of `config`.
pub fn prepare(config: &mut AgentConfig) -> Result<(), SandboxError> {
    let version = landlock_version()?;
    let abi = match version {
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        _ => ABI::V6,
    };
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let denied: BitFlags<AccessFs> = AccessFs::from_all(abi) & !reading;
    config.landlock_fs = denied.bits();
    config.landlock_net = if version >= 4 { BitFlags::<AccessNet>::all().bits() } else { 0 };
    config.landlock_scoped = if version >= 6 { BitFlags::<Scope>::all().bits() } else { 0 };
    config.landlock_size = 8 * (1 + u64::from(version >= 4) + u64::from(version >= 6));
    config.filter_len = copy(&template_filter()?, &mut config.filter)?;
    config.runner_filter_len = copy(&runner_filter()?, &mut config.runner_filter)?;
    Ok(())
}

/// Copies a program into its place, in the kernel's layout; its number of instructions.
fn copy(program: &BpfProgram, place: &mut [u64]) -> Result<u32, SandboxError> {
    if program.len() > place.len() || program.len() > FILTER_MAX {
        return Err(SandboxError::TooLong(program.len()));
    }
    for (slot, i) in place.iter_mut().zip(program) {
        // struct sock_filter: code, jump if true, jump if false, value (linux/filter.h).
        let [c0, c1] = i.code.to_le_bytes();
        let [k0, k1, k2, k3] = i.k.to_le_bytes();
        *slot = u64::from_le_bytes([c0, c1, i.jt, i.jf, k0, k1, k2, k3]);
    }
    Ok(program.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_can_be_built_and_fit() {
        let template = template_filter().expect("valid rules");
        let runner = runner_filter().expect("valid rules");
        assert!(template.len() <= FILTER_MAX, "{}", template.len());
        assert!(runner.len() <= RUNNER_FILTER_MAX, "{}", runner.len());
    }

    #[test]
    fn nothing_that_has_an_effect_is_allowed() {
        let effects = [
            libc::SYS_write,
            libc::SYS_writev,
            libc::SYS_pwrite64,
            libc::SYS_pwritev2,
            libc::SYS_open,
            libc::SYS_openat,
            libc::SYS_connect,
            libc::SYS_socket,
            libc::SYS_sendto,
            libc::SYS_kill,
            libc::SYS_tgkill,
            libc::SYS_unlink,
            libc::SYS_unlinkat,
            libc::SYS_rename,
            libc::SYS_ftruncate,
            libc::SYS_execve,
            libc::SYS_ioctl,
            libc::SYS_fcntl,
            libc::SYS_ptrace,
            libc::SYS_process_vm_writev,
            libc::SYS_io_uring_setup,
            libc::SYS_clone3,
            libc::SYS_fork,
            libc::SYS_vfork,
            libc::SYS_shmat,
            libc::SYS_mount,
            libc::SYS_read,
            libc::SYS_rt_sigqueueinfo,
        ];
        let conditional = conditional();
        for call in effects {
            assert!(!ALLOWED.contains(&call), "call {call}");
            assert!(conditional.iter().all(|(c, ..)| *c != call), "call {call}");
        }
    }
}
