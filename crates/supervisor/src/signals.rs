//! Signals that reach us instead of the command.
//!
//! From a terminal the command gets them, too, being in the same process group, and we only must
//! not die before it. Those sent by a process are passed on, taken to be meant for the command by
//! somebody who knows our number only.
//!
//! A signal that a process sends to the whole group (`kill -TERM -GROUP`, or a shell's `kill %1`)
//! hence reaches the command twice: nothing in it tells the group from us alone. Not passing on
//! would lose those sent to us alone, which is worse.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use nix::libc;
use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, pthread_sigmask, sigaction,
};
use nix::unistd::Pid;

static COMMAND: AtomicI32 = AtomicI32::new(0);

const PASSED_ON: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGALRM,
];

extern "C" fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo. Its code says who sent it: a process, or the
    // kernel on behalf of the terminal, which has sent it to the whole group.
    let from_process = unsafe { (*info).si_code } <= 0;
    let command = COMMAND.load(Relaxed);
    if from_process && command > 0 {
        // SAFETY: kill(2) is async-signal-safe; the command is our child and not yet collected.
        unsafe { libc::kill(command, signal) };
    }
}

/// From now on signals are the command's. Those that we were started with ignored stay ignored.
pub fn pass_to(command: Pid) {
    COMMAND.store(command.as_raw(), Relaxed);
    let flags = SaFlags::SA_SIGINFO | SaFlags::SA_RESTART;
    let action = SigAction::new(SigHandler::SigAction(pass_on), flags, SigSet::empty());
    for signal in PASSED_ON {
        // SAFETY: the handler only reads its arguments and an atomic, and calls kill.
        match unsafe { sigaction(signal, &action) } {
            Ok(old) if matches!(old.handler(), SigHandler::SigIgn) => {
                // SAFETY: puts back what was there.
                let _ = unsafe { sigaction(signal, &old) };
            }
            _ => {}
        }
    }
}

/// Where files may not grow, a write of ours (shared memory, a report) is to fail and not to end us. The
/// command must have been forked before.
pub fn ignore_file_limit() {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: installs no handler.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, &ignore) };
}

/// The command has been collected: its number may be somebody else's from now on.
pub fn stop_passing() {
    COMMAND.store(0, Relaxed);
}

/// Keeps signals away from this thread and those that it starts.
pub fn block_all() {
    let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None);
}
