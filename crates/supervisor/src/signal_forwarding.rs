//! Signals that reach us instead of the command are passed on to it.
//!
//! A sender that knows the supervisor's PID means the command: a signal to the supervisor alone is
//! passed on, once. All signals are blocked from the start until the command has ended
//! ([`crate::signal_blocking`]), and taken by the thread that waits for it. So none is lost before
//! the command exists. Afterwards they are the supervisor's own.
//!
//! A signal of the terminal goes to the whole process group, which holds the command as well. So
//! does a signal that a process of the command sends to its group, or to all. Neither is passed on.
//! A signal that another process sends to the whole group (`kill -TERM -GROUP`, or a shell's `kill
//! %1`) reaches the command twice: nothing in it tells the group from the supervisor alone.
//! Dropping it would lose signals to the supervisor alone, which is worse.
//!
//! When the command stops on a signal that has come to the supervisor, too, the supervisor stops as
//! well, for the shell to see. It goes on when it is continued, and so does the command.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::libc::{self, c_int};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use runahead_admission::process::proc_files::stat;

use crate::io_process;
use crate::signal_blocking::{ALL_SIGNALS, Mask, set_mask, unblock};

/// Longest time that the command may take to stop on a stop signal, and the interval of polling.
const STOP_TIMEOUT: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Generations between a process of the command and us.
const ANCESTORS_MAX: usize = 256;

/// Passes on what comes.
pub(crate) struct SignalForwarder {
    command: Pid,
    /// Readable while something waits.
    signal_fd: Option<SignalFd>,
}

impl SignalForwarder {
    /// Forwards to `command`, a child that has not been collected.
    pub(crate) fn new(command: Pid) -> Self {
        // The C library has let some of its own in when the first thread was started, which to
        // others are but the first that have no names.
        set_mask(ALL_SIGNALS);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let mut all = SigSet::all();
        // The C library leaves out some, which it has for itself.
        // SAFETY: a mask of the kernel's is what such a set begins with.
        unsafe { (&raw mut all).cast::<Mask>().write(ALL_SIGNALS) };
        SignalForwarder { command, signal_fd: SignalFd::with_flags(&all, flags).ok() }
    }

    /// Without it, [`Passing::pass`] is to be called every now and then.
    pub(crate) fn signal_fd(&self) -> Option<BorrowedFd<'_>> {
        self.signal_fd.as_ref().map(|bell| bell.as_fd())
    }

    /// Passes on what has come.
    pub(crate) fn forward_pending(&self) {
        while let Some(signal) = next_pending() {
            self.forward(&signal);
        }
    }

    /// The command has ended: what has come until now was for it.
    pub(crate) fn finish(self) {
        while next_pending().is_some() {}
        unblock();
    }

    fn forward(&self, info: &libc::siginfo_t) {
        let signal = info.si_signo;
        // SAFETY: all that is taken here has a sender, or nothing in its place.
        let sender = unsafe { info.si_pid() };
        let stops = matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
        let from_process = info.si_code <= 0;
        // A process may have started one before it became us.
        let from_timer = matches!(signal, libc::SIGALRM | libc::SIGVTALRM | libc::SIGPROF);
        let is_for_command = match from_process {
            true => sender != std::process::id() as i32 && !descends_from_us(sender),
            false => from_timer,
        };
        if is_for_command {
            self.send(info);
        }
        if stops {
            self.stop_with_command(signal);
        }
    }

    fn send(&self, info: &libc::siginfo_t) {
        if info.si_signo == libc::SIGCONT {
            io_process::resume();
            // It may be the group that was sent it; once more would be seen if it is caught.
            std::thread::sleep(POLL_INTERVAL);
            if self.state() != Some('T') {
                return;
            }
        }
        let (pid, signal) = (self.command.as_raw(), info.si_signo);
        if info.si_code == libc::SI_QUEUE {
            // SAFETY: the siginfo was filled by the kernel; the command is our child and not yet
            // collected.
            unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, signal, info) };
        } else {
            // SAFETY: kill(2) has no memory to get wrong.
            unsafe { libc::kill(pid, signal) };
        }
    }

    /// A signal has come that stops, to us and to the command: if that stops, we do.
    fn stop_with_command(&self, signal: c_int) {
        let until = Instant::now() + STOP_TIMEOUT;
        loop {
            match self.state() {
                Some('T') => break,
                None | Some('Z' | 'X') => return,
                _ if Instant::now() > until => return,
                _ => std::thread::sleep(POLL_INTERVAL),
            }
        }
        // SAFETY: no handler is installed; what was there is put back.
        unsafe {
            let before = libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
            // Here we stop.
            set_mask(ALL_SIGNALS & !(1 << (signal - 1)));
            set_mask(ALL_SIGNALS);
            libc::signal(signal, before);
        }
    }

    /// The letter of proc_pid_stat(5).
    fn state(&self) -> Option<char> {
        stat(self.command.as_raw())?.first()?.chars().next()
    }
}

/// The next signal that waits.
fn next_pending() -> Option<libc::siginfo_t> {
    // SAFETY: zero is valid for a siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let bytes = size_of::<Mask>();
    // SAFETY: a mask of the size that is given, a siginfo to be written, and a time, all of which
    // live.
    let got = unsafe {
        libc::syscall(libc::SYS_rt_sigtimedwait, &ALL_SIGNALS, &raw mut info, &at_once, bytes)
    };
    (got > 0).then_some(info)
}

/// True if `process` is one of the command's. One that was collected is not.
fn descends_from_us(process: i32) -> bool {
    let ours = std::process::id() as i32;
    let mut at = process;
    for _ in 0..ANCESTORS_MAX {
        if at <= 1 {
            return false;
        }
        let parent = stat(at).and_then(|fields| fields.get(1)?.parse().ok());
        match parent {
            Some(parent) if parent == ours => return true,
            Some(parent) => at = parent,
            None => return false,
        }
    }
    false
}
