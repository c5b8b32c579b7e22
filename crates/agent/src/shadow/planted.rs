//! Violations planted by tests: a runner really tries what it would only pretend to do, and the
//! kernel must refuse. Our own restraint is shown by the same programs without the plant.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;

use crate::plane::Call;
use crate::session::Session;
use crate::sys::{self, AT_FDCWD, Errno, nr};

/// Calls that have an effect, made as the program makes them.
const EFFECTS: &[u64] = &[
    nr::WRITE,
    nr::PWRITE64,
    nr::WRITEV,
    nr::SENDTO,
    nr::SENDMSG,
    nr::KILL,
    nr::UNLINK,
    nr::UNLINKAT,
    nr::RENAME,
    nr::RENAMEAT2,
    nr::MKDIR,
    nr::MKDIRAT,
    nr::FTRUNCATE,
    nr::TRUNCATE,
    nr::CHMOD,
    nr::FCHMODAT,
    nr::UTIMENSAT,
    nr::IOCTL,
    CONNECT,
    SOCKET,
    nr::SHMAT,
    nr::EXECVE,
    nr::FORK,
    nr::VFORK,
    nr::CLONE3,
];
const CONNECT: u64 = k::__NR_connect as u64;
const SOCKET: u64 = k::__NR_socket as u64;

/// Tries the effect of `call`, if it has one, and counts what the kernel says.
pub(super) fn attempt(session: &Session, call: &Call) {
    let outcome = match call.nr {
        n if EFFECTS.contains(&n) => sys::check(call.perform()),
        // seccomp sees no flags of openat2: this one is Landlock's to refuse.
        nr::OPEN => open(AT_FDCWD, call.args[0], call.args[1] as u32),
        nr::OPENAT => open(call.fd(0), call.args[1], call.args[2] as u32),
        nr::MMAP if call.args[3] as u32 & k::MAP_SHARED != 0 => {
            let [_, len, prot, flags, ..] = call.args;
            let flags = flags | u64::from(k::MAP_ANONYMOUS);
            // SAFETY: asks for new memory, shared with nobody yet.
            sys::check(unsafe { sys::raw(nr::MMAP, [0, len, prot, flags, u64::MAX, 0]) })
        }
        _ => return,
    };
    let control = &session.shared().control;
    match outcome {
        Err(Errno(sys::EPERM | sys::EACCES)) => control.planted_refused.fetch_add(1, Relaxed),
        // Not an attempt at all: an open that only reads.
        Err(Errno(sys::EALREADY)) => 0,
        _ => control.planted_done.fetch_add(1, Relaxed),
    };
}

fn open(dir: sys::Fd, path: u64, flags: u32) -> sys::Result<u64> {
    if flags & (k::O_CREAT | k::O_TRUNC) == 0 && flags & k::O_ACCMODE == k::O_RDONLY {
        return Err(Errno(sys::EALREADY));
    }
    let mode = if flags & k::O_CREAT != 0 { 0o600 } else { 0 };
    sys::openat2(dir, path, flags | k::O_CLOEXEC, mode, 0).map(|fd| fd as u64)
}
