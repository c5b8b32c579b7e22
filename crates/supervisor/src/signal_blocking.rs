//! Blocks the supervisor's own signals while a command runs, since they are meant for the command
//! ([`crate::signal_forwarding`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Signal mask of the kernel, one bit for each signal. The C library's type omits the signals that
/// it uses itself.
pub(crate) type Mask = u64;
/// Mask of all signals.
pub(crate) const ALL_SIGNALS: Mask = !0;

/// Mask that this process was started with, while all signals are blocked.
static INHERITED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicBool = AtomicBool::new(false);

/// Sets this thread's mask. Returns the previous one.
pub(crate) fn set_mask(mask: Mask) -> Mask {
    let mut old: Mask = 0;
    let bytes = size_of::<Mask>();
    // SAFETY: reads and writes masks of `bytes` bytes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &mask, &raw mut old, bytes)
    };
    old
}

/// Blocks all signals in this thread and those that it starts. No effect if they are blocked
/// already.
pub fn block() {
    if !BLOCKED.swap(true, Relaxed) {
        INHERITED.store(set_mask(ALL_SIGNALS), Relaxed);
    }
}

/// Restores the mask from before [`block`]. Signals that came meanwhile are delivered now.
pub fn unblock() {
    if BLOCKED.swap(false, Relaxed) {
        set_mask(INHERITED.load(Relaxed));
    }
}

/// Mask that the command is started with.
pub(crate) fn inherited_mask() -> Mask {
    INHERITED.load(Relaxed)
}

/// Blocks all signals in this thread and those that it starts, for good.
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
