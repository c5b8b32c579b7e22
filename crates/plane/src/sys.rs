//! The system calls that the agent makes itself, typed.
//!
//! Each function is one call; failures are the kernel's errno. Nothing here blocks longer than the
//! call it wraps, and nothing allocates.

pub use linux_raw_sys::errno::*;
use linux_raw_sys::general as k;

use crate::address_range::AddressRange;
use crate::arch::syscall;

/// An errno of the kernel, positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub u32);

/// Result of a call.
pub type Result<T> = core::result::Result<T, Errno>;

/// Turns the kernel's convention into a result.
pub fn check(ret: i64) -> Result<u64> {
    if (-4095..0).contains(&ret) { Err(Errno(-ret as u32)) } else { Ok(ret as u64) }
}

/// The kernel's own for a call that is to be made again (linux/errno.h): no program sees it.
pub const ERESTARTNOINTR: u32 = 513;
/// [`ERESTARTNOINTR`] as a result.
pub const RESTART: i64 = fail(ERESTARTNOINTR);

/// The kernel's convention for `error`.
pub const fn fail(errno: u32) -> i64 {
    -(errno as i64)
}

/// Numbers of system calls under their names.
pub mod nr {
    macro_rules! numbers {
        ($($name:ident = $raw:ident),* $(,)?) => { $(
            #[allow(missing_docs)]
            pub const $name: u64 = linux_raw_sys::general::$raw as u64;
        )* };
    }
    numbers! {
        READ = __NR_read, WRITE = __NR_write, OPEN = __NR_open, CLOSE = __NR_close, STAT = __NR_stat,
        FSTAT = __NR_fstat, LSTAT = __NR_lstat, POLL = __NR_poll, LSEEK = __NR_lseek, MMAP = __NR_mmap,
        MPROTECT = __NR_mprotect, MUNMAP = __NR_munmap, BRK = __NR_brk,
        RT_SIGACTION = __NR_rt_sigaction, RT_SIGPROCMASK = __NR_rt_sigprocmask,
        RT_SIGRETURN = __NR_rt_sigreturn, IOCTL = __NR_ioctl, PREAD64 = __NR_pread64,
        PWRITE64 = __NR_pwrite64, READV = __NR_readv, WRITEV = __NR_writev, ACCESS = __NR_access,
        SCHED_YIELD = __NR_sched_yield, MREMAP = __NR_mremap, MSYNC = __NR_msync,
        MINCORE = __NR_mincore, MADVISE = __NR_madvise, DUP = __NR_dup, DUP2 = __NR_dup2,
        NANOSLEEP = __NR_nanosleep, GETPID = __NR_getpid, SENDFILE = __NR_sendfile,
        SENDTO = __NR_sendto, RECVFROM = __NR_recvfrom, GETSOCKOPT = __NR_getsockopt, GETPEERNAME = __NR_getpeername, SENDMSG = __NR_sendmsg, SENDMMSG = __NR_sendmmsg, CLONE = __NR_clone, FORK = __NR_fork,
        VFORK = __NR_vfork, EXECVE = __NR_execve, EXECVEAT = __NR_execveat, EXIT = __NR_exit, KILL = __NR_kill,
        UNAME = __NR_uname, FCNTL = __NR_fcntl, FLOCK = __NR_flock, FSYNC = __NR_fsync,
        FDATASYNC = __NR_fdatasync, FANOTIFY_INIT = __NR_fanotify_init, TRUNCATE = __NR_truncate, FTRUNCATE = __NR_ftruncate,
        GETDENTS = __NR_getdents, GETCWD = __NR_getcwd, CHDIR = __NR_chdir, FCHDIR = __NR_fchdir,
        RENAME = __NR_rename, MKDIR = __NR_mkdir, RMDIR = __NR_rmdir, CREAT = __NR_creat,
        LINK = __NR_link, UNLINK = __NR_unlink, SYMLINK = __NR_symlink, READLINK = __NR_readlink,
        CHMOD = __NR_chmod, FCHMOD = __NR_fchmod, CHOWN = __NR_chown, FCHOWN = __NR_fchown,
        LCHOWN = __NR_lchown, UMASK = __NR_umask, GETTIMEOFDAY = __NR_gettimeofday,
        GETRLIMIT = __NR_getrlimit, GETRUSAGE = __NR_getrusage, SYSINFO = __NR_sysinfo,
        TIMES = __NR_times, GETUID = __NR_getuid, GETGID = __NR_getgid, SETUID = __NR_setuid,
        SETGID = __NR_setgid, GETEUID = __NR_geteuid, GETEGID = __NR_getegid,
        GETPPID = __NR_getppid, GETPGRP = __NR_getpgrp, SETSID = __NR_setsid,
        SETREUID = __NR_setreuid, SETREGID = __NR_setregid, GETGROUPS = __NR_getgroups,
        SETGROUPS = __NR_setgroups, SETRESUID = __NR_setresuid, GETRESUID = __NR_getresuid,
        SETRESGID = __NR_setresgid, GETRESGID = __NR_getresgid, SETFSUID = __NR_setfsuid,
        SETFSGID = __NR_setfsgid, CAPSET = __NR_capset, CAPGET = __NR_capget,
        GETPGID = __NR_getpgid, GETSID = __NR_getsid, RT_SIGPENDING = __NR_rt_sigpending,
        RT_SIGSUSPEND = __NR_rt_sigsuspend, SIGALTSTACK = __NR_sigaltstack, UTIME = __NR_utime,
        STATFS = __NR_statfs, FSTATFS = __NR_fstatfs, PIVOT_ROOT = __NR_pivot_root,
        PRCTL = __NR_prctl, ARCH_PRCTL = __NR_arch_prctl, SYNC = __NR_sync, CHROOT = __NR_chroot,
        MOUNT = __NR_mount, UMOUNT2 = __NR_umount2, GETTID = __NR_gettid,
        READAHEAD = __NR_readahead, SETXATTR = __NR_setxattr, LSETXATTR = __NR_lsetxattr,
        FSETXATTR = __NR_fsetxattr, GETXATTR = __NR_getxattr, LGETXATTR = __NR_lgetxattr,
        FGETXATTR = __NR_fgetxattr, LISTXATTR = __NR_listxattr, LLISTXATTR = __NR_llistxattr,
        FLISTXATTR = __NR_flistxattr, TIME = __NR_time, FUTEX = __NR_futex,
        SCHED_GETAFFINITY = __NR_sched_getaffinity, GETDENTS64 = __NR_getdents64,
        SET_TID_ADDRESS = __NR_set_tid_address, FADVISE64 = __NR_fadvise64,
        CLOCK_GETTIME = __NR_clock_gettime, CLOCK_GETRES = __NR_clock_getres,
        CLOCK_NANOSLEEP = __NR_clock_nanosleep, EXIT_GROUP = __NR_exit_group,
        UTIMES = __NR_utimes, OPENAT = __NR_openat, MKDIRAT = __NR_mkdirat,
        FCHOWNAT = __NR_fchownat, FUTIMESAT = __NR_futimesat, NEWFSTATAT = __NR_newfstatat,
        UNLINKAT = __NR_unlinkat, RENAMEAT = __NR_renameat, LINKAT = __NR_linkat,
        SYMLINKAT = __NR_symlinkat, READLINKAT = __NR_readlinkat, FCHMODAT = __NR_fchmodat,
        FACCESSAT = __NR_faccessat, PSELECT6 = __NR_pselect6, PPOLL = __NR_ppoll,
        UNSHARE = __NR_unshare, SET_ROBUST_LIST = __NR_set_robust_list, SPLICE = __NR_splice,
        SYNC_FILE_RANGE = __NR_sync_file_range, UTIMENSAT = __NR_utimensat,
        EPOLL_PWAIT = __NR_epoll_pwait, FALLOCATE = __NR_fallocate, DUP3 = __NR_dup3,
        PREADV = __NR_preadv, PWRITEV = __NR_pwritev, PRLIMIT64 = __NR_prlimit64,
        SYNCFS = __NR_syncfs, SETNS = __NR_setns, GETCPU = __NR_getcpu,
        SCHED_SETATTR = __NR_sched_setattr, RENAMEAT2 = __NR_renameat2, SECCOMP = __NR_seccomp,
        GETRANDOM = __NR_getrandom, COPY_FILE_RANGE = __NR_copy_file_range,
        PREADV2 = __NR_preadv2, PWRITEV2 = __NR_pwritev2, STATX = __NR_statx, RSEQ = __NR_rseq,
        CLONE3 = __NR_clone3, CLOSE_RANGE = __NR_close_range, OPENAT2 = __NR_openat2,
        FACCESSAT2 = __NR_faccessat2, EPOLL_PWAIT2 = __NR_epoll_pwait2,
        LANDLOCK_CREATE_RULESET = __NR_landlock_create_ruleset,
        LANDLOCK_ADD_RULE = __NR_landlock_add_rule,
        LANDLOCK_RESTRICT_SELF = __NR_landlock_restrict_self, FCHMODAT2 = __NR_fchmodat2,
        MLOCK = __NR_mlock, MLOCK2 = __NR_mlock2, MLOCKALL = __NR_mlockall,
        MEMFD_SECRET = __NR_memfd_secret,
        CACHESTAT = __NR_cachestat, SHMAT = __NR_shmat, SHMCTL = __NR_shmctl, SHMGET = __NR_shmget,
        SCHED_SETSCHEDULER = __NR_sched_setscheduler,
        SHMDT = __NR_shmdt, PKEY_ALLOC = __NR_pkey_alloc, PKEY_MPROTECT = __NR_pkey_mprotect, USERFAULTFD = __NR_userfaultfd,
        TIMER_CREATE = __NR_timer_create, TIMER_SETTIME = __NR_timer_settime, TIMER_DELETE = __NR_timer_delete,
        SETITIMER = __NR_setitimer, ALARM = __NR_alarm, MEMBARRIER = __NR_membarrier,
        RT_TGSIGQUEUEINFO = __NR_rt_tgsigqueueinfo, WAIT4 = __NR_wait4, WAITID = __NR_waitid,
        PTRACE = __NR_ptrace, RT_SIGQUEUEINFO = __NR_rt_sigqueueinfo,
        PIDFD_OPEN = __NR_pidfd_open, PIDFD_SEND_SIGNAL = __NR_pidfd_send_signal,
        PROCESS_VM_READV = __NR_process_vm_readv, PROCESS_VM_WRITEV = __NR_process_vm_writev, SOCKET = __NR_socket, CONNECT = __NR_connect, RECVMSG = __NR_recvmsg,
        PIPE = __NR_pipe, PIPE2 = __NR_pipe2, TGKILL = __NR_tgkill, SETPGID = __NR_setpgid,
        MKNOD = __NR_mknod, MKNODAT = __NR_mknodat, REMOVEXATTR = __NR_removexattr, LREMOVEXATTR = __NR_lremovexattr, FREMOVEXATTR = __NR_fremovexattr, INOTIFY_ADD_WATCH = __NR_inotify_add_watch, BIND = __NR_bind,
        RT_SIGTIMEDWAIT = __NR_rt_sigtimedwait, SETRLIMIT = __NR_setrlimit, SELECT = __NR_select,
        PAUSE = __NR_pause, EPOLL_WAIT = __NR_epoll_wait, SEMOP = __NR_semop, SEMTIMEDOP = __NR_semtimedop,
        SEMCTL = __NR_semctl, MSGCTL = __NR_msgctl,
        ADJTIMEX = __NR_adjtimex, CLOCK_ADJTIME = __NR_clock_adjtime, MSGSND = __NR_msgsnd, MSGRCV = __NR_msgrcv, ACCEPT = __NR_accept, ACCEPT4 = __NR_accept4, IO_GETEVENTS = __NR_io_getevents,
    }

    /// Calls that change the attributes of a file.
    pub const ATTRIBUTE_CHANGES: [u64; 15] = [
        CHMOD, FCHMOD, FCHMODAT, FCHMODAT2, CHOWN, FCHOWN, LCHOWN, FCHOWNAT, UTIME, UTIMES,
        FUTIMESAT, UTIMENSAT, SETXATTR, LSETXATTR, FSETXATTR,
    ];
}

/// Bytes of a page on x86-64.
pub const PAGE: u64 = 4096;

/// A descriptor number as programs pass it.
pub type Fd = i32;
/// The working directory, in place of a descriptor.
pub const AT_FDCWD: Fd = k::AT_FDCWD;

/// Any call, by number.
///
/// # Safety
/// As unsafe as the call.
#[inline]
pub unsafe fn raw(nr: u64, args: [u64; 6]) -> i64 {
    // SAFETY: passed on to the caller.
    unsafe { syscall(nr, args) }
}

/// Calls whose arguments are numbers or point to memory that is valid for the call's duration.
macro_rules! call {
    ($nr:expr $(, $arg:expr)*) => {{
        let given = [$($arg as u64),*];
        let mut args = [0u64; 6];
        args[..given.len()].copy_from_slice(&given);
        // SAFETY: every pointer handed in is to a live object of the size that the call expects;
        // each function below builds it from a reference, or takes the promise from its caller.
        check(unsafe { syscall($nr, args) })
    }};
}

// Behind the macro, which it uses.
mod process_ids;
mod program_memory;

pub use process_ids::{getpid, getppid, gettid, groups, queue_to_self, users};
pub use program_memory::{
    GATHER_MAX, IoVec, PlainData, copy_bytes, copy_in, copy_out, copy_string, gather, has_threads,
    scatter,
};
pub(crate) use program_memory::{note_threads, remember_process};

/// close(2).
pub fn close(fd: Fd) -> Result<u64> {
    call!(nr::CLOSE, fd)
}

/// Has the kernel read no more of `fd` than is asked for (posix_fadvise(2)). It is advice.
pub fn read_at_random(fd: Fd) {
    let _ = call!(nr::FADVISE64, fd, 0, 0, k::POSIX_FADV_RANDOM);
}

/// Starts reading a range of `fd`, and waits for no more than a place in the device's queue
/// (posix_fadvise(2)).
pub fn will_need(fd: Fd, offset: u64, len: u64) -> Result<u64> {
    call!(nr::FADVISE64, fd, offset, len, k::POSIX_FADV_WILLNEED)
}

/// openat2(2); `path` is the address of a NUL-terminated string, which the kernel checks.
pub fn openat2(dir: Fd, path: u64, flags: u32, mode: u32, resolve: u32) -> Result<Fd> {
    openat2_as(
        dir,
        path,
        &k::open_how { flags: flags.into(), mode: mode.into(), resolve: resolve.into() },
    )
}

/// openat2(2), in the way that is written at `how`.
pub fn openat2_as(dir: Fd, path: u64, how: &k::open_how) -> Result<Fd> {
    call!(nr::OPENAT2, dir, path, core::ptr::from_ref(how), size_of::<k::open_how>())
        .map(|fd| fd as Fd)
}

/// statx(2) of an open descriptor, from what is in memory.
pub fn statx_fd(fd: Fd, mask: u32) -> Result<k::statx> {
    // SAFETY: statx is integers, for which zero is valid.
    let mut out: k::statx = unsafe { core::mem::zeroed() };
    let flags = k::AT_EMPTY_PATH | k::AT_STATX_DONT_SYNC;
    call!(nr::STATX, fd, c"".as_ptr(), flags, mask, &raw mut out)?;
    Ok(out)
}

/// statx(2) of what is at `path`, from what is in memory.
pub fn statx_path(path: u64, mask: u32) -> Result<k::statx> {
    // SAFETY: as above.
    let mut out: k::statx = unsafe { core::mem::zeroed() };
    call!(nr::STATX, AT_FDCWD, path, k::AT_STATX_DONT_SYNC, mask, &raw mut out)?;
    Ok(out)
}

/// preadv2(2) into one buffer, of data that is in memory only. An offset of `None` is the
/// descriptor's own.
///
/// # Safety
/// The kernel may write to `len` bytes at `buf`. An address without write access is EFAULT.
pub unsafe fn read_nowait(fd: Fd, buf: u64, len: u64, offset: Option<u64>) -> Result<u64> {
    let iov = [buf, len];
    let at = offset.unwrap_or(u64::MAX);
    call!(nr::PREADV2, fd, &raw const iov, 1, at, 0, k::RWF_NOWAIT)
}

/// lseek(2).
pub fn lseek(fd: Fd, offset: i64, whence: u32) -> Result<u64> {
    call!(nr::LSEEK, fd, offset, whence)
}

/// cachestat(2): pages of the range that are in memory.
pub fn cached_pages(fd: Fd, offset: u64, len: u64) -> Result<u64> {
    let range = [offset, len];
    let mut out = [0u64; 5];
    call!(nr::CACHESTAT, fd, &raw const range, &raw mut out, 0)?;
    Ok(out[0])
}

/// True if all pages of the range are in memory.
pub fn is_cached(fd: Fd, offset: u64, len: u64) -> Result<bool> {
    let pages = (offset + len).div_ceil(PAGE) - offset / PAGE;
    cached_pages(fd, offset, len).map(|cached| cached >= pages)
}

/// fstatfs(2).
pub fn filesystem(fd: Fd) -> Result<k::statfs> {
    // SAFETY: statfs is integers, for which zero is valid.
    let mut out: k::statfs = unsafe { core::mem::zeroed() };
    call!(nr::FSTATFS, fd, &raw mut out)?;
    Ok(out)
}

/// The type of the file system (`f_type` of fstatfs(2)).
pub fn filesystem_type(fd: Fd) -> Result<u64> {
    filesystem(fd).map(|told| told.f_type as u64)
}

/// fcntl(2) F_GETFL: the access mode and status flags of the open file description.
pub fn status_flags(fd: Fd) -> Result<u64> {
    call!(nr::FCNTL, fd, k::F_GETFL)
}

/// fcntl(2) F_GETFD: the flags of the descriptor.
pub fn descriptor_flags(fd: Fd) -> Result<u64> {
    call!(nr::FCNTL, fd, k::F_GETFD)
}

/// fcntl(2) F_GET_SEALS: the seals of a memfd.
pub fn file_seals(fd: Fd) -> Result<u64> {
    call!(nr::FCNTL, fd, k::F_GET_SEALS)
}

/// fcntl(2) F_DUPFD_CLOEXEC: a duplicate whose number is at least `lowest`.
pub fn duplicate_above(fd: Fd, lowest: u64) -> Result<Fd> {
    call!(nr::FCNTL, fd, k::F_DUPFD_CLOEXEC, lowest).map(|fd| fd as Fd)
}

/// dup3(2).
pub fn dup3(from: Fd, to: Fd, flags: u32) -> Result<u64> {
    call!(nr::DUP3, from, to, flags)
}

/// getdents64(2) into a buffer of the agent's.
pub fn getdents(fd: Fd, buf: &mut [u8]) -> Result<usize> {
    call!(nr::GETDENTS64, fd, buf.as_mut_ptr(), buf.len()).map(|n| n as usize)
}

/// readlinkat(2) into a buffer of the agent's; `path` is checked by the kernel.
pub fn readlinkat(dir: Fd, path: u64, buf: &mut [u8]) -> Result<usize> {
    call!(nr::READLINKAT, dir, path, buf.as_mut_ptr(), buf.len()).map(|n| n as usize)
}

/// getcwd(2): bytes written, the final NUL included.
pub fn getcwd(buf: &mut [u8]) -> Result<usize> {
    call!(nr::GETCWD, buf.as_mut_ptr(), buf.len()).map(|n| n as usize)
}

/// Place for a mapping.
#[derive(Clone, Copy)]
pub enum Place {
    /// Any place, chosen by the kernel.
    Anywhere,
    /// At this address, if nothing is there (else `EEXIST`).
    IfFree(u64),
    /// At this address, in place of whatever is there.
    Over(u64),
}

impl Place {
    /// The place so many bytes further on.
    pub fn after(self, bytes: u64) -> Self {
        match self {
            Place::Anywhere => self,
            Place::IfFree(at) => Place::IfFree(at + bytes),
            Place::Over(at) => Place::Over(at + bytes),
        }
    }
}

/// mmap(2).
///
/// # Safety
/// Nothing that is still needed is replaced.
unsafe fn map(place: Place, len: u64, prot: u32, flags: u32, fd: Fd) -> Result<u64> {
    let (at, how) = match place {
        Place::Anywhere => (0, 0),
        Place::IfFree(at) => (at, k::MAP_FIXED_NOREPLACE),
        Place::Over(at) => (at, k::MAP_FIXED),
    };
    let got = call!(nr::MMAP, at, len, prot, flags | how, fd, 0)?;
    if at == 0 || got == at {
        return Ok(got);
    }
    // A kernel that does not know the flag takes the address as a wish.
    call!(nr::MUNMAP, got, len)?;
    Err(Errno(EEXIST))
}

const PRIVATE: u32 = k::MAP_PRIVATE | k::MAP_ANONYMOUS | k::MAP_NORESERVE;

/// mmap(2) of room without access, which takes addresses and nothing else.
///
/// # Safety
/// Nothing that is still needed is replaced.
pub unsafe fn map_nothing(place: Place, len: u64) -> Result<u64> {
    // SAFETY: passed on to the caller.
    unsafe { map(place, len, k::PROT_NONE, PRIVATE, -1) }
}

/// mmap(2) of new private memory, of which only what is touched is to count.
///
/// # Safety
/// Nothing that is still needed is replaced.
pub unsafe fn map_private(place: Place, len: u64) -> Result<u64> {
    // SAFETY: passed on to the caller.
    unsafe { map(place, len, k::PROT_READ | k::PROT_WRITE, PRIVATE, -1) }
}

/// mmap(2) of new private memory where the kernel likes: for a process of our own.
pub fn map_anywhere(len: usize) -> Result<u64> {
    // SAFETY: nothing is replaced.
    unsafe { map_private(Place::Anywhere, len as u64) }
}

/// mmap(2) of new memory that children share.
///
/// # Safety
/// Nothing that is still needed is replaced.
pub unsafe fn map_family(place: Place, len: u64) -> Result<u64> {
    let (prot, flags) = (k::PROT_READ | k::PROT_WRITE, k::MAP_SHARED | k::MAP_ANONYMOUS);
    // SAFETY: passed on to the caller.
    unsafe { map(place, len, prot, flags, -1) }
}

/// mmap(2) of a descriptor, shared and writable.
///
/// # Safety
/// Nothing that is still needed is replaced.
pub unsafe fn map_shared(place: Place, fd: Fd, len: u64) -> Result<u64> {
    // SAFETY: passed on to the caller.
    unsafe { map(place, len, k::PROT_READ | k::PROT_WRITE, k::MAP_SHARED, fd) }
}

/// mmap(2) of a descriptor, shared, to be read only.
///
/// # Safety
/// Nothing that is still needed is replaced.
pub unsafe fn map_shared_to_read(place: Place, fd: Fd, len: u64) -> Result<u64> {
    // SAFETY: passed on to the caller.
    unsafe { map(place, len, k::PROT_READ, k::MAP_SHARED, fd) }
}

/// mmap(2) of fresh private memory in place of whatever is at `at`.
///
/// # Safety
/// Nothing that is still needed lies there.
pub unsafe fn replace_with_private(at: u64, len: u64, prot: u32) -> Result<u64> {
    let flags = k::MAP_PRIVATE | k::MAP_ANONYMOUS | k::MAP_FIXED;
    call!(nr::MMAP, at, len, prot, flags, -1i64, 0)
}

/// mremap(2): moves the pages at `at` to `to`, replacing what is there.
///
/// # Safety
/// As for [`replace_with_private`], of `to`.
pub unsafe fn move_pages(at: u64, len: u64, to: u64) -> Result<u64> {
    call!(nr::MREMAP, at, len, len, k::MREMAP_MAYMOVE | k::MREMAP_FIXED, to)
}

/// mprotect(2).
///
/// # Safety
/// No reference of ours relies on the protection that is taken away.
pub unsafe fn protect(at: u64, len: u64, prot: u32) -> Result<u64> {
    call!(nr::MPROTECT, at, len, prot)
}

/// mseal(2): the protection of these pages, and that they are there, is for good. (Of no pages:
/// whether the kernel knows it.)
pub fn seal(at: u64, len: u64) -> Result<u64> {
    // Later than the generated numbers; the same on all architectures.
    const MSEAL: u64 = 462;
    call!(MSEAL, at, len, 0)
}

/// madvise(2).
///
/// # Safety
/// As unsafe as the advice.
pub unsafe fn advise(at: u64, len: u64, advice: u32) -> Result<u64> {
    call!(nr::MADVISE, at, len, advice)
}

/// prctl(2).
///
/// # Safety
/// As unsafe as the option.
pub unsafe fn prctl(option: u32, args: [u64; 4]) -> Result<u64> {
    call!(nr::PRCTL, option, args[0], args[1], args[2], args[3])
}

/// futex(2) FUTEX_WAIT on shared memory, for at most `timeout_us` microseconds.
pub fn futex_wait(
    word: &core::sync::atomic::AtomicU32,
    seen: u32,
    timeout_us: Option<u64>,
) -> Result<u64> {
    let spec = timeout_us.map(|us| [us / 1_000_000, us % 1_000_000 * 1000]);
    let spec_at = spec.as_ref().map_or(core::ptr::null(), |s| s.as_ptr());
    call!(nr::FUTEX, word.as_ptr(), k::FUTEX_WAIT, seen, spec_at)
}

/// futex(2) FUTEX_WAKE on shared memory.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    let _ = call!(nr::FUTEX, word.as_ptr(), k::FUTEX_WAKE, i32::MAX);
}

/// rt_sigprocmask(2): sets the mask of blocked signals; what it was.
pub fn set_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    let _ = call!(nr::RT_SIGPROCMASK, k::SIG_SETMASK, &raw const mask, &raw mut old, 8);
    old
}

/// The mask of blocked signals.
pub fn mask() -> u64 {
    let mut now = 0u64;
    let _ = call!(nr::RT_SIGPROCMASK, k::SIG_BLOCK, 0, &raw mut now, 8);
    now
}

/// Counts of a thread's context switches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Switches {
    /// Times that the thread gave its processor up to wait.
    pub voluntary: u32,
    /// Times that the thread was pushed off its processor.
    pub forced: u32,
}

/// Words of a `struct rusage` (getrusage(2)).
const USAGE_WORDS: usize = 18;
/// Selects the usage of all threads of the process.
const RUSAGE_SELF: u64 = 0;
const RUSAGE_THREAD: u64 = 1;

/// getrusage(2): those of this thread.
pub fn switches() -> Switches {
    /// Behind two times of two words each and twelve other counters.
    const NVCSW: usize = 2 * 2 + 12;
    let mut usage = [0u64; USAGE_WORDS];
    let _ = call!(nr::GETRUSAGE, RUSAGE_THREAD, &raw mut usage);
    Switches { voluntary: usage[NVCSW] as u32, forced: usage[NVCSW + 1] as u32 }
}

/// getrusage(2): page faults of this process that needed no device.
pub fn minor_faults() -> u64 {
    /// Behind two times and four sizes.
    const MINFLT: usize = 2 * 2 + 4;
    let mut usage = [0u64; USAGE_WORDS];
    let _ = call!(nr::GETRUSAGE, RUSAGE_SELF, &raw mut usage);
    usage[MINFLT]
}

/// getrusage(2): page faults of this thread that waited for a device.
pub fn major_faults() -> u64 {
    /// Behind two times, four sizes and the faults that did not.
    const MAJFLT: usize = 2 * 2 + 5;
    let mut usage = [0u64; USAGE_WORDS];
    let _ = call!(nr::GETRUSAGE, RUSAGE_THREAD, &raw mut usage);
    usage[MAJFLT]
}

/// Processor time of this thread, in nanoseconds (clock_gettime(2)).
pub fn thread_ns() -> u64 {
    let mut time = [0u64; 2];
    let _ = call!(nr::CLOCK_GETTIME, k::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
    time[0] * 1_000_000_000 + time[1]
}

/// getrusage(2): page faults of this process that needed a device, and its processor time in
/// microseconds.
pub fn process_major_faults() -> (u64, u64) {
    /// Behind two times and five other counters.
    const MAJFLT: usize = 2 * 2 + 5;
    let mut usage = [0u64; USAGE_WORDS];
    let _ = call!(nr::GETRUSAGE, RUSAGE_SELF, &raw mut usage);
    (usage[MAJFLT], cpu_of(&usage))
}

/// A run of pages that are alike (`struct page_region`).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct PageRegion {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    categories: u64,
}

/// PAGEMAP_SCAN of ioctl(2), on a descriptor of a pagemap: runs of pages that are there, in
/// the range; how many, and up to where it has looked. Linux 6.7 has it.
pub fn scan_pages(
    map: Fd,
    AddressRange { start, end }: AddressRange,
    to: &mut [PageRegion],
) -> Result<(usize, u64)> {
    /// `struct pm_scan_arg`.
    #[repr(C)]
    struct Scan {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        to: u64,
        room: u64,
        max_pages: u64,
        inverted: u64,
        all_of: u64,
        any_of: u64,
        told: u64,
    }
    const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<Scan>() as u64) << 16 | (b'f' as u64) << 8 | 16;
    const PAGE_IS_PRESENT: u64 = 1 << 3;
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        flags: 0,
        start,
        end,
        walk_end: 0,
        to: to.as_mut_ptr() as u64,
        room: to.len() as u64,
        max_pages: 0,
        inverted: 0,
        all_of: PAGE_IS_PRESENT,
        any_of: 0,
        told: PAGE_IS_PRESENT,
    };
    let got = call!(nr::IOCTL, map, PAGEMAP_SCAN, &raw mut scan)?;
    Ok(((got as usize).min(to.len()), scan.walk_end))
}

/// Lets go of every descriptor and of the working directory.
pub fn hold_nothing() {
    let _ = call!(nr::CLOSE_RANGE, 0, u32::MAX, 0);
    let _ = call!(nr::CHDIR, c"/".as_ptr());
}

/// socket(2): for one exchange of packets on this machine.
pub fn unix_socket() -> Result<Fd> {
    const AF_UNIX: u32 = 1;
    const SOCK_SEQPACKET: u32 = 5;
    call!(nr::SOCKET, AF_UNIX, SOCK_SEQPACKET | k::O_CLOEXEC | k::O_NONBLOCK, 0).map(|fd| fd as Fd)
}

/// connect(2) to a unix(7) address.
pub fn connect_unix(socket: Fd, name: &[u8]) -> Result<u64> {
    let mut address = [0u8; 110];
    address[0] = 1;
    address.get_mut(2..2 + name.len()).ok_or(Errno(EINVAL))?.copy_from_slice(name);
    call!(nr::CONNECT, socket, address.as_ptr(), 2 + name.len())
}

/// sendto(2), on a connected socket.
pub fn send(socket: Fd, bytes: &[u8]) -> Result<u64> {
    const MSG_NOSIGNAL: u32 = 0x4000;
    call!(nr::SENDTO, socket, bytes.as_ptr(), bytes.len(), MSG_NOSIGNAL, 0, 0)
}

/// poll(2) of one descriptor for input, or its end.
pub fn is_readable_within(fd: Fd, milliseconds: i32) -> bool {
    const POLLIN: u64 = 1;
    let mut request = fd as u32 as u64 | POLLIN << 32;
    call!(nr::POLL, &raw mut request, 1, milliseconds) == Ok(1)
}

/// Bytes of one descriptor as ancillary data (cmsg(3)): length, level and type; then the number.
const RIGHTS_BYTES: u64 = 20;
const RIGHTS: u64 = {
    const SCM_RIGHTS: u64 = 1;
    const SOL_SOCKET: u64 = 1;
    SOL_SOCKET | SCM_RIGHTS << 32
};

/// sendmsg(2), on a connected socket: these bytes, and a descriptor beside them.
pub fn send_with(socket: Fd, bytes: &[u8], fd: Fd) -> Result<u64> {
    const MSG_NOSIGNAL: u32 = 0x4000;
    let part = [bytes.as_ptr() as u64, bytes.len() as u64];
    let control = [RIGHTS_BYTES, RIGHTS, fd as u32 as u64];
    let len = size_of_val(&control) as u64;
    // struct msghdr: no name; one part; control data; flags.
    let message = [0, 0, part.as_ptr() as u64, 1, control.as_ptr() as u64, len, 0];
    call!(nr::SENDMSG, socket, message.as_ptr(), MSG_NOSIGNAL)
}

/// recvmsg(2): how many bytes came, and the descriptor that came with them.
pub fn receive(socket: Fd, bytes: &mut [u8]) -> Result<(usize, Option<Fd>)> {
    let part = [bytes.as_mut_ptr() as u64, bytes.len() as u64];
    let mut control = [0u64; 3];
    let len = size_of_val(&control) as u64;
    // struct msghdr, as above.
    let mut message = [0, 0, part.as_ptr() as u64, 1, control.as_mut_ptr() as u64, len, 0];
    let got = call!(nr::RECVMSG, socket, message.as_mut_ptr(), 0)?;
    if got == 0 {
        return Err(Errno(EPIPE));
    }
    let has_one = message[5] >= RIGHTS_BYTES && control[0] == RIGHTS_BYTES && control[1] == RIGHTS;
    Ok((got as usize, has_one.then_some(control[2] as u32 as Fd)))
}

/// pidfd_open(2).
pub fn pidfd_open(pid: u32) -> Result<Fd> {
    call!(nr::PIDFD_OPEN, pid, 0).map(|fd| fd as Fd)
}

/// clone(2) as fork(2), without a signal at the end: `None` in the child, its number and a pidfd in
/// the parent.
pub fn fork_with_pidfd() -> Result<Option<(u32, Fd)>> {
    let mut pidfd: Fd = -1;
    match call!(nr::CLONE, k::CLONE_PIDFD, 0, &raw mut pidfd, 0, 0)? {
        0 => Ok(None),
        pid => Ok(Some((pid as u32, pidfd))),
    }
}

/// True if `fd` is an end of a pipe.
pub fn is_pipe(fd: Fd) -> bool {
    statx_fd(fd, k::STATX_TYPE).is_ok_and(|s| u32::from(s.stx_mode) & k::S_IFMT == k::S_IFIFO)
}

/// clone(2) as fork(2), without a signal at the end, with a last argument that the kernel ignores
/// and a filter may look at: `None` in the child.
pub fn fork_marked(mark: u64) -> Result<Option<u32>> {
    match call!(nr::CLONE, 0, 0, 0, 0, mark)? {
        0 => Ok(None),
        pid => Ok(Some(pid as u32)),
    }
}

/// wait4(2) for a child made by [`fork_with_pidfd`] or [`fork_marked`]: its processor time, in
/// microseconds.
pub fn collect(pid: u32) -> Result<u64> {
    let mut usage = [0u64; 18];
    call!(nr::WAIT4, pid, 0, k::__WCLONE, &raw mut usage)?;
    Ok(cpu_of(&usage))
}

/// Seconds and microseconds of user and of system time come first in a struct rusage.
fn cpu_of(usage: &[u64; 18]) -> u64 {
    (usage[0] + usage[2]) * 1_000_000 + usage[1] + usage[3]
}

/// getrusage(2): processor time of this process, in microseconds.
pub fn cpu_us() -> u64 {
    let mut usage = [0u64; 18];
    let _ = call!(nr::GETRUSAGE, 0, &raw mut usage);
    cpu_of(&usage)
}

/// pidfd_send_signal(2) of SIGKILL.
pub fn kill_by_pidfd(pidfd: Fd) -> Result<u64> {
    call!(nr::PIDFD_SEND_SIGNAL, pidfd, k::SIGKILL, 0, 0)
}

/// Signals that wait for this thread, and for the process (proc_pid_status(5)).
pub fn signals_waiting() -> Result<[u64; 2]> {
    let fd = openat2(AT_FDCWD, c"/proc/thread-self/status".as_ptr() as u64, k::O_CLOEXEC, 0, 0)?;
    let mut text = [0u8; 4096];
    let got = call!(nr::READ, fd, text.as_mut_ptr(), text.len());
    close(fd)?;
    let text = &text[..got? as usize];
    let mask = |name: &[u8]| {
        let at = text.windows(name.len()).position(|word| word == name)? + name.len();
        let digits = core::str::from_utf8(text.get(at..at + 16)?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    };
    match (mask(b"\nSigPnd:\t"), mask(b"\nShdPnd:\t")) {
        (Some(own), Some(shared)) => Ok([own, shared]),
        _ => Err(Errno(EINVAL)),
    }
}

/// Nanoseconds (clock_gettime(2), CLOCK_MONOTONIC). A call, as a program may forbid the time-stamp
/// counter.
pub fn now() -> u64 {
    let mut time = [0u64; 2];
    let _ = call!(nr::CLOCK_GETTIME, k::CLOCK_MONOTONIC, time.as_mut_ptr());
    time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1])
}

/// mincore(2) of the pages from `at`, a byte each: how many, all of them.
pub fn mincore(at: u64, to: &mut [u8]) -> Result<usize> {
    let args = [at, to.len() as u64 * PAGE, to.as_mut_ptr() as u64, 0, 0, 0];
    // SAFETY: writes a byte for each page into a buffer of that many.
    check(unsafe { raw(nr::MINCORE, args) }).map(|_| to.len())
}

/// pread(2) into a buffer of the agent's.
pub fn pread(fd: Fd, buf: &mut [u8], offset: u64) -> Result<usize> {
    call!(nr::PREAD64, fd, buf.as_mut_ptr(), buf.len(), offset).map(|n| n as usize)
}

/// Names what capabilities(7) keeps in a file.
const CAPABILITIES: &core::ffi::CStr = c"security.capability";

/// getxattr(2): the file at `path` has capabilities.
pub fn path_has_capabilities(path: u64) -> bool {
    call!(nr::GETXATTR, path, CAPABILITIES.as_ptr(), 0, 0).is_ok()
}

/// nanosleep(2), cut short by a signal.
pub fn sleep_us(us: u64) {
    let time = [us / 1_000_000, us % 1_000_000 * 1000];
    let _ = call!(nr::NANOSLEEP, time.as_ptr(), 0);
}

/// munmap(2).
///
/// # Safety
/// Nothing that is still needed lies there.
pub unsafe fn unmap(at: u64, len: u64) -> Result<u64> {
    call!(nr::MUNMAP, at, len)
}

/// exit_group(2).
pub fn exit(status: i32) -> ! {
    loop {
        let _ = call!(nr::EXIT_GROUP, status);
    }
}
