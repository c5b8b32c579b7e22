//! Forwards signals that reach the supervisor to the command.
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
/// Most generations between a process of the command and the supervisor.
const ANCESTORS_MAX: usize = 256;

/// Forwards signals to the command.
pub(crate) struct SignalForwarder {
    command: Pid,
    /// Signalfd that is readable while a signal is pending.
    signal_fd: Option<SignalFd>,
}

impl SignalForwarder {
    /// Forwards to `command`, a child that has not been collected.
    pub(crate) fn new(command: Pid) -> Self {
        // The C library unblocked the realtime signals that it uses when the first thread was
        // started. Other programs may send these.
        set_mask(ALL_SIGNALS);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let mut all = SigSet::all();
        // `SigSet::all` omits the signals that the C library uses.
        // SAFETY: a `sigset_t` begins with the kernel's mask.
        unsafe { (&raw mut all).cast::<Mask>().write(ALL_SIGNALS) };
        SignalForwarder { command, signal_fd: SignalFd::with_flags(&all, flags).ok() }
    }

    /// Descriptor that is readable while a signal is pending. If it is `None`,
    /// [`SignalForwarder::forward_pending`] must be called periodically.
    pub(crate) fn signal_fd(&self) -> Option<BorrowedFd<'_>> {
        self.signal_fd.as_ref().map(|bell| bell.as_fd())
    }

    /// Forwards all pending signals.
    pub(crate) fn forward_pending(&self) {
        while let Some(signal) = next_pending() {
            self.forward(&signal);
        }
    }

    /// Drops all pending signals, since the command has ended, and unblocks signals.
    pub(crate) fn finish(self) {
        while next_pending().is_some() {}
        unblock();
    }

    fn forward(&self, info: &libc::siginfo_t) {
        let signal = info.si_signo;
        // SAFETY: in every siginfo that is taken here `si_pid` is the sender or 0.
        let sender = unsafe { info.si_pid() };
        let stops = matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
        let from_process = info.si_code <= 0;
        // An alarm may have been set before this process executed `runahead`.
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
            // SIGCONT may have been sent to the whole group; a second one would be seen if it is
            // caught.
            std::thread::sleep(POLL_INTERVAL);
            if self.state() != Some('T') {
                return;
            }
        }
        let (pid, signal) = (self.command.as_raw(), info.si_signo);
        if info.si_code == libc::SI_QUEUE {
            // SAFETY: the kernel filled the siginfo; the command is our child and not collected
            // yet.
            unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, signal, info) };
        } else {
            // SAFETY: kill(2) uses no memory of this process.
            unsafe { libc::kill(pid, signal) };
        }
    }

    /// Stops this process if the command stops on the stop signal `signal`.
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
        // SAFETY: installs no handler; the previous action is restored.
        unsafe {
            let before = libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
            // The process stops here.
            set_mask(ALL_SIGNALS & !(1 << (signal - 1)));
            set_mask(ALL_SIGNALS);
            libc::signal(signal, before);
        }
    }

    /// State of the command, as a letter of proc_pid_stat(5).
    fn state(&self) -> Option<char> {
        stat(self.command.as_raw())?.first()?.chars().next()
    }
}

/// Takes the next pending signal.
fn next_pending() -> Option<libc::siginfo_t> {
    // SAFETY: zero is valid for a siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let bytes = size_of::<Mask>();
    // SAFETY: reads a mask of `bytes` bytes and a time, and writes a siginfo; all of them live.
    let got = unsafe {
        libc::syscall(libc::SYS_rt_sigtimedwait, &ALL_SIGNALS, &raw mut info, &at_once, bytes)
    };
    (got > 0).then_some(info)
}

/// True if `process` descends from this process. False for one that was collected.
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
