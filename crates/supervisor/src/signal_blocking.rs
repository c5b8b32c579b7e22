//! Our own signals: while a command runs they wait, for they are meant for it
//! ([`crate::signal_forwarding`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The kernel's, one bit for each signal. The C library's keeps some to itself.
pub(crate) type Mask = u64;
/// Mask of all signals.
pub(crate) const ALL_SIGNALS: Mask = !0;

/// The mask that we were started with, while ours is in force.
static INHERITED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicBool = AtomicBool::new(false);

/// Sets this thread's mask; what it was.
pub(crate) fn set_mask(mask: Mask) -> Mask {
    let mut old: Mask = 0;
    let bytes = size_of::<Mask>();
    // SAFETY: two masks of the size that is given.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &mask, &raw mut old, bytes)
    };
    old
}

/// From now on signals wait, in this thread and those that it starts. No effect when they do
/// already.
pub fn block() {
    if !BLOCKED.swap(true, Relaxed) {
        INHERITED.store(set_mask(ALL_SIGNALS), Relaxed);
    }
}

/// Signals do again what they did before [`hold`], those that have come meanwhile included.
pub fn unblock() {
    if BLOCKED.swap(false, Relaxed) {
        set_mask(INHERITED.load(Relaxed));
    }
}

/// The mask that the command is to start with.
pub(crate) fn inherited_mask() -> Mask {
    INHERITED.load(Relaxed)
}

/// Keeps signals away from this thread and those that it starts.
pub fn block_all() {
    set_mask(ALL_SIGNALS);
}

/// Ignores SIGXFSZ, so that a write beyond RLIMIT_FSIZE (shared memory, a report) fails and does
/// not end this process. The command must have been forked before.
pub fn ignore_file_limit() {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: installs no handler.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, &ignore) };
}
