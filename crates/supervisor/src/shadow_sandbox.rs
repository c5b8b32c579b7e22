//! Sandbox of shadows: the filters are built here, where libraries can be used, and installed by
//! the agent.
//!
//! seccomp allows calls by which a shadow reads and keeps its own memory, and refuses all others
//! with EPERM. Landlock, which sees paths where seccomp sees numbers, refuses every open that could
//! write, create, remove or execute. Together they permit reading regular files and directories,
//! and using private memory.
//!
//! Before Linux 6.2 Landlock cannot refuse an open that truncates (landlock(7), version 3), and
//! seccomp does not see the flags of openat2(2), which lie in memory. There the filter allows
//! openat2 only with an `open_how` from the agent's read-only page ([`OPENINGS_START`]), and no
//! call that would change that page.
//!
//! Invariant: no call below can change anything outside the process, whatever its arguments.

use std::collections::BTreeMap;

use landlock::{ABI, Access, AccessFs, AccessNet, BitFlags, Scope};
use nix::libc;
use runahead_abi::AgentConfig;
#[cfg(test)]
use runahead_abi::agent_config::RUNNER_FILTER_MAX;
use runahead_abi::agent_config::{
    FILTER_MAX, FORK_MARK, OPENING_BYTES, OPENINGS_END, OPENINGS_START, SHARED_END, SHARED_START,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// Reason that the sandbox cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel has no Landlock, or it is switched off.
    #[error(
        "Landlock is not available ({0}); it needs Linux 5.13 with `landlock` among its `lsm=`"
    )]
    Landlock(std::io::Error),
    /// A rule is invalid: a bug, which this crate's tests catch.
    #[error("the system call filter cannot be built: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// The filter is longer than [`FILTER_MAX`].
    #[error("the system call filter is too long: {0} instructions")]
    TooLong(usize),
}

/// Calls that only read, or concern only the caller's memory, whatever their arguments.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_preadv2,
    libc::SYS_pread64,
    libc::SYS_close,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_lseek,
    CACHESTAT,
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
    // Reports ends of own children only.
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
/// Advice of madvise(2), Linux 6.13; libc does not name it on every target.
const MADV_GUARD_INSTALL: libc::c_int = 102;
const MADV_GUARD_REMOVE: libc::c_int = 103;
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
const MAP_TYPE: u64 = 0xf;

/// Calls that are harmless with certain arguments: (call, argument, comparison, value).
fn conditional_rules() -> Vec<(libc::c_long, u8, Op, u64)> {
    let mut rules = vec![
        // The shadow's own reads must cause no readahead, on descriptors that it has opened.
        (libc::SYS_fadvise64, 3, Op::Eq, libc::POSIX_FADV_RANDOM as u64),
        (libc::SYS_arch_prctl, 0, Op::Eq, ARCH_GET_FS),
        (libc::SYS_prctl, 0, Op::Eq, PR_SET_SYSCALL_USER_DISPATCH),
        // For idle priority, and back to end a runner that has it; the runner filter refuses both.
        (libc::SYS_sched_setscheduler, 1, Op::Eq, libc::SCHED_IDLE as u64),
        (libc::SYS_sched_setscheduler, 1, Op::Eq, libc::SCHED_OTHER as u64),
        // To die with the parent.
        (libc::SYS_prctl, 0, Op::Eq, libc::PR_SET_PDEATHSIG as u64),
        // Reads a limit and sets none.
        (libc::SYS_prlimit64, 2, Op::Eq, 0),
        // A plain process with a pidfd; the runner filter refuses this, and signals through the
        // pidfd.
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
        // For the agent, where process_vm_readv(2) is refused.
        libc::MADV_POPULATE_READ,
        libc::MADV_POPULATE_WRITE,
        // For memory that is fetched on demand.
        MADV_GUARD_INSTALL,
        MADV_GUARD_REMOVE,
    ];
    rules.extend(advice.map(|a| (libc::SYS_madvise, 2, Op::Eq, a as u64)));
    rules
}

/// Condition on an argument: its number, a comparison, a value.
type Condition = (u8, Op, u64);

/// Calls that are harmless if all conditions hold: (call, conditions).
fn combined_rules() -> Vec<(libc::c_long, Vec<Condition>)> {
    // Waiting and waking is allowed in the agent's own memory only. Private memory is not enough: a
    // page of a file that is mapped read-only is the same page for every process that maps it. To
    // wake a waiter there, or to queue before it, would be an effect.
    let futex = |operation: libc::c_int| {
        let ours = [(0, Op::Ge, SHARED_START), (0, Op::Lt, SHARED_END)];
        let rule = ours.into_iter().chain([(1, Op::Eq, operation as u64)]).collect();
        (libc::SYS_futex, rule)
    };
    // A further filter only adds restrictions, but one that logs writes to the kernel's log: the
    // runner filter refuses this.
    let filter = vec![(0, Op::Eq, SECCOMP_SET_MODE_FILTER), (1, Op::Eq, 0)];
    // A plain process that the agent itself makes.
    let fork = vec![(0, Op::Eq, 0), (4, Op::Eq, FORK_MARK)];
    vec![
        futex(libc::FUTEX_WAIT),
        futex(libc::FUTEX_WAKE),
        (libc::SYS_seccomp, filter),
        (libc::SYS_clone, fork),
    ]
}

/// The first Landlock that denies truncation (Linux 6.2).
const DENIES_TRUNCATION: i32 = 3;

/// Rules by which a shadow opens files and keeps its memory: (call, conditions). With `openings`,
/// open_how structures lie from [`OPENINGS_START`] to [`OPENINGS_END`] only, and no mapping that
/// begins below that end is made, unmapped, protected or moved.
fn open_and_map_rules(openings: bool) -> Vec<(libc::c_long, Vec<Condition>)> {
    const FIXED: u64 = libc::MAP_FIXED as u64;
    let private = |mask| (3, Op::MaskedEq(mask), libc::MAP_PRIVATE as u64);
    if !openings {
        let free = [libc::SYS_openat2, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect];
        let free = free.map(|call| (call, Vec::new()));
        return free.into_iter().chain([(libc::SYS_mmap, vec![private(MAP_TYPE)])]).collect();
    }
    let (start, end) = (OPENINGS_START, OPENINGS_END);
    let above = |argument| (argument, Op::Ge, end);
    let stays = (3, Op::MaskedEq(libc::MREMAP_FIXED as u64), 0);
    let in_the_page = vec![
        (2, Op::Ge, start),
        (2, Op::Lt, end),
        (2, Op::MaskedEq(OPENING_BYTES - 1), 0),
        (3, Op::Eq, size_of::<libc::open_how>() as u64),
    ];
    vec![
        (libc::SYS_openat2, in_the_page),
        (libc::SYS_munmap, vec![above(0)]),
        (libc::SYS_mprotect, vec![above(0)]),
        (libc::SYS_mremap, vec![above(0), stays]),
        (libc::SYS_mremap, vec![above(0), above(4)]),
        // Without MAP_FIXED the kernel picks a free address.
        (libc::SYS_mmap, vec![private(MAP_TYPE | FIXED)]),
        (libc::SYS_mmap, vec![private(MAP_TYPE), above(0)]),
    ]
}

fn compile_filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, SandboxError> {
    let filter = SeccompFilter::new(rules, otherwise, listed, TargetArch::x86_64)?;
    Ok(filter.try_into()?)
}

/// Builds the filter of templates.
fn template_filter(openings: bool) -> Result<BpfProgram, SandboxError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    for (call, argument, op, value) in conditional_rules() {
        let condition = SeccompCondition::new(argument, Len::Qword, op, value)?;
        rules.entry(call).or_default().push(SeccompRule::new(vec![condition])?);
    }
    for (call, conditions) in combined_rules().into_iter().chain(open_and_map_rules(openings)) {
        let rules = rules.entry(call).or_default();
        if conditions.is_empty() {
            continue;
        }
        let conditions = conditions
            .into_iter()
            .map(|(argument, op, value)| SeccompCondition::new(argument, Len::Qword, op, value));
        let rule = SeccompRule::new(conditions.collect::<Result<_, _>>()?)?;
        rules.push(rule);
    }
    compile_filter(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// Builds the filter that runners add on top.
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
    compile_filter(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))
}

/// The highest Landlock version of this kernel.
pub(crate) fn landlock_version() -> Result<i32, SandboxError> {
    const CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: returns a number; no memory is passed.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, CREATE_RULESET_VERSION)
    };
    match version {
        v if v < 0 => Err(SandboxError::Landlock(std::io::Error::last_os_error())),
        v => Ok(v as i32),
    }
}

/// Fills in the sandbox's part of `config`, for at most version `most` of Landlock.
pub fn fill_config(config: &mut AgentConfig, most: Option<i32>) -> Result<(), SandboxError> {
    let version = landlock_version()?.min(most.unwrap_or(i32::MAX));
    let openings = version < DENIES_TRUNCATION;
    let abi = match version {
        1 => ABI::V1,
        2 => ABI::V2,
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
    config.openings = openings.into();
    config.filter_len = copy_filter(&template_filter(openings)?, &mut config.filter)?;
    config.runner_filter_len = copy_filter(&runner_filter()?, &mut config.runner_filter)?;
    Ok(())
}

/// Copies a program to `place` in the kernel's layout. Returns its number of instructions.
fn copy_filter(program: &BpfProgram, place: &mut [u64]) -> Result<u32, SandboxError> {
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn filters_can_be_built_and_fit() {
        for openings in [false, true] {
            let template = template_filter(openings).expect("valid rules");
            assert!(template.len() <= FILTER_MAX, "{}", template.len());
        }
        let runner = runner_filter().expect("valid rules");
        assert!(runner.len() <= RUNNER_FILTER_MAX, "{}", runner.len());
    }

    /// Verdict of `program` for a call, as the kernel would reach it (a classic BPF machine over
    /// `struct seccomp_data`, seccomp(2)).
    fn allows(program: &BpfProgram, call: libc::c_long, args: [u64; 6]) -> bool {
        const LOAD: u16 = 0x20;
        const AND: u16 = 0x54;
        const RETURN: u16 = 0x06;
        const ALWAYS: u16 = 0x05;
        let mut data = vec![0u8; 16];
        data[..4].copy_from_slice(&(call as u32).to_le_bytes());
        data[4..8].copy_from_slice(&0xc000_003e_u32.to_le_bytes());
        args.iter().for_each(|arg| data.extend(arg.to_le_bytes()));
        let (mut at, mut a) = (0, 0u32);
        loop {
            let i = &program[at];
            at += 1;
            let jumps = match i.code {
                LOAD => {
                    let word = data[i.k as usize..].first_chunk().expect("within the data");
                    a = u32::from_le_bytes(*word);
                    continue;
                }
                AND => {
                    a &= i.k;
                    continue;
                }
                RETURN => return i.k == libc::SECCOMP_RET_ALLOW,
                ALWAYS => {
                    at += i.k as usize;
                    continue;
                }
                0x15 => a == i.k,
                0x25 => a > i.k,
                0x35 => a >= i.k,
                0x45 => a & i.k != 0,
                other => panic!("an instruction that is not known here: {other:#x}"),
            };
            at += usize::from(if jumps { i.jt } else { i.jf });
        }
    }

    /// Addresses at and around the page of openings, and anywhere.
    fn address() -> impl Strategy<Value = u64> {
        let (start, end) = (OPENINGS_START, OPENINGS_END);
        let near = (0..4 * (end - start) / 8).prop_map(move |n| start - (end - start) + 8 * n);
        let pages = (0..0x20u64).prop_map(|page| page << 12);
        prop_oneof![near, pages, any::<u64>()]
    }

    proptest! {
        /// No call that the filter allows changes the page of `open_how` structures.
        #[test]
        fn no_allowed_call_changes_the_open_allowlist(
            at in address(),
            to in address(),
            len in prop_oneof![0..0x4_0000u64, any::<u64>()],
            flags in prop_oneof![0..0x100u64, any::<u64>()],
        ) {
            let filter = template_filter(true).expect("valid rules");
            let (start, end) = (OPENINGS_START, OPENINGS_END);
            let meets = |at: u64| at < end && at.saturating_add(len.max(1)) > start;
            let fixed = flags & libc::MAP_FIXED as u64 != 0;
            let moves = flags & libc::MREMAP_FIXED as u64 != 0;
            let changes = [
                (libc::SYS_munmap, [at, len, 0, 0, 0, 0], meets(at)),
                (libc::SYS_mprotect, [at, len, flags, 0, 0, 0], meets(at)),
                (libc::SYS_mmap, [at, len, 3, flags, 0, 0], fixed && meets(at)),
                (libc::SYS_mremap, [at, len, len, flags, to, 0], meets(at) || moves && meets(to)),
            ];
            for (call, args, is_change) in changes {
                prop_assert!(!is_change || !allows(&filter, call, args), "{} {:x?}", call, args);
            }
            let size = size_of::<libc::open_how>() as u64;
            let within = (start..end).contains(&at) && at % OPENING_BYTES == 0;
            for size in [size, len] {
                let opens = allows(&filter, libc::SYS_openat2, [0, to, at, size, 0, 0]);
                prop_assert_eq!(opens, within && size == size_of::<libc::open_how>() as u64);
            }
            // Ordinary memory is not restricted.
            let (far, private) = (at | 1 << 40, libc::MAP_PRIVATE as u64 | flags & libc::MAP_FIXED as u64);
            prop_assert!(allows(&filter, libc::SYS_munmap, [far, len, 0, 0, 0, 0]));
            prop_assert!(allows(&filter, libc::SYS_mmap, [far, len, 3, private, 0, 0]));
        }
    }

    #[test]
    fn calls_with_effects_are_not_allowed() {
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
        let conditional = conditional_rules();
        for call in effects {
            assert!(!ALLOWED.contains(&call), "call {call}");
            assert!(conditional.iter().all(|(c, ..)| *c != call), "call {call}");
        }
    }
}
