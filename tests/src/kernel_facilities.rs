//! Facilities of the kernel that runahead uses, unlike other programs, and that containers refuse.

/// Calls that are refused.
#[derive(Debug, Clone, Copy)]
pub enum Denied {
    /// The call of this number.
    Call(i64),
    /// The call of this number with this first argument.
    With(i64, u64),
}

/// Something that a system call filter can take away.
#[derive(Debug)]
pub struct Facility {
    /// Name on the command line of `confine`.
    pub name: &'static str,
    /// Its calls.
    pub calls: &'static [Denied],
    /// True if nothing is gained without it, which statistics must say.
    pub needed: bool,
    /// Makes one of its calls, harmlessly; its errno, or 0.
    probe: fn() -> i32,
}

use Denied::{Call, With};

const SUD: u64 = 59;
const CACHESTAT: i64 = 451;

macro_rules! facility {
    ($name:literal, $needed:literal, [$($call:expr),+], $probe:expr) => {
        Facility { name: $name, calls: &[$($call),+], needed: $needed, probe: || errno($probe) }
    };
}

/// Facilities that tests refuse in turn.
pub static FACILITIES: &[Facility] = &[
    facility!("ptrace", true, [Call(libc::SYS_ptrace)], [libc::SYS_ptrace, 0x4206, 0, 0]),
    facility!(
        "process_vm",
        false,
        [Call(libc::SYS_process_vm_readv), Call(libc::SYS_process_vm_writev)],
        [libc::SYS_process_vm_readv, 0, 0, 0]
    ),
    facility!("dispatch", true, [With(libc::SYS_prctl, SUD)], [libc::SYS_prctl, SUD as i64, 0, 0]),
    facility!("memfd", true, [Call(libc::SYS_memfd_create)], [libc::SYS_memfd_create, 0, 0, 0]),
    facility!(
        "io_uring",
        false,
        [Call(libc::SYS_io_uring_setup), Call(libc::SYS_io_uring_enter)],
        [libc::SYS_io_uring_setup, 0, 0, 0]
    ),
    facility!(
        "landlock",
        true,
        [
            Call(libc::SYS_landlock_create_ruleset),
            Call(libc::SYS_landlock_add_rule),
            Call(libc::SYS_landlock_restrict_self)
        ],
        [libc::SYS_landlock_create_ruleset, 0, 0, 1]
    ),
    facility!(
        "landlock_restrict",
        true,
        [Call(libc::SYS_landlock_restrict_self)],
        [libc::SYS_landlock_restrict_self, -1, 0, 0]
    ),
    facility!(
        "seccomp",
        true,
        [Call(libc::SYS_seccomp), With(libc::SYS_prctl, 22)],
        [libc::SYS_seccomp, 99, 0, 0]
    ),
    facility!("pidfd", true, [Call(libc::SYS_pidfd_open)], [libc::SYS_pidfd_open, -1, 0, 0]),
    facility!("cachestat", false, [Call(CACHESTAT)], [CACHESTAT, -1, 0, 0]),
    facility!(
        "userfaultfd",
        false,
        [Call(libc::SYS_userfaultfd)],
        [libc::SYS_userfaultfd, 1 << 30, 0, 0]
    ),
    facility!("membarrier", false, [Call(libc::SYS_membarrier)], [libc::SYS_membarrier, 0, 0, 0]),
    facility!(
        "unix",
        true,
        [With(libc::SYS_socket, 1)],
        [libc::SYS_socket, 1, libc::SOCK_DGRAM as i64, 0]
    ),
    facility!("openat2", false, [Call(libc::SYS_openat2)], [libc::SYS_openat2, -1, 0, 0]),
    facility!("preadv2", false, [Call(libc::SYS_preadv2)], [libc::SYS_preadv2, -1, 0, 0]),
    facility!("clone3", false, [Call(libc::SYS_clone3)], [libc::SYS_clone3, 0, 0, 0]),
    facility!(
        "close_range",
        false,
        [Call(libc::SYS_close_range)],
        [libc::SYS_close_range, 9, 8, 0]
    ),
    facility!("epoll", true, [Call(libc::SYS_epoll_create1)], [libc::SYS_epoll_create1, -1, 0, 0]),
    facility!("fadvise", false, [Call(libc::SYS_fadvise64)], [libc::SYS_fadvise64, -1, 0, 0]),
    facility!(
        "scheduler",
        false,
        [Call(libc::SYS_sched_setscheduler)],
        [libc::SYS_sched_setscheduler, -1, 0, 0]
    ),
    facility!("statx", false, [Call(libc::SYS_statx)], [libc::SYS_statx, -1, 0, 0]),
];

/// The facility of that name.
pub fn find(name: &str) -> Option<&'static Facility> {
    FACILITIES.iter().find(|f| f.name == name)
}

/// Runs tests of this binary again, by their full names, where userfaultfd(2) is refused, as by
/// the default profile of a container. `confine` is the path of that program. They take turns with
/// tests of this process only if the caller is [`apart`](crate::apart).
///
/// # Panics
/// One of them fails.
pub fn without_userfaultfd(confine: &str, tests: &[&str]) {
    let mut command = std::process::Command::new(confine);
    command.args(["--deny=userfaultfd:EPERM", "--"]).args(crate::same_binary(tests));
    let status = command.status();
    let status = status.expect("it starts");
    assert!(status.success(), "without userfaultfd(2): {status}");
}

fn errno([nr, a, b, c]: [i64; 4]) -> i32 {
    // SAFETY: every probe has arguments with which its call fails or has no effect.
    match unsafe { libc::syscall(nr, a, b, c, 0, 0) } {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        fd => {
            // One of the probes may have made a descriptor.
            if fd > 2 {
                // SAFETY: the probe has just made it, and no other code holds it.
                unsafe { libc::close(fd as i32) };
            }
            0
        }
    }
}

impl Facility {
    /// True if its calls are refused. A call that the kernel knows and finds wrong has another
    /// error.
    pub fn is_denied(&self) -> bool {
        matches!((self.probe)(), libc::EPERM | libc::ENOSYS)
    }
}
