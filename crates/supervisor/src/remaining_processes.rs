//! Wait for processes that the command has left. Meanwhile the services run, without which no
//! process of a try can execute a program.

use std::fmt::Debug;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const INTERVAL_MIN: Duration = Duration::from_millis(1);
const INTERVAL_MAX: Duration = Duration::from_millis(50);
/// Signals that a user sends to end the wait.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Processes that may outlive the command.
pub trait RemainingProcesses: Debug + Send + Sync {
    /// Called when the command has ended.
    fn begin(&self);

    /// True if none is left. Called at intervals, then.
    fn have_ended(&self) -> bool;

    /// Has the processes ended: the user has sent a signal to end the wait.
    fn end(&self);
}

/// True if no process remains of a command that has ended before the services start.
pub(crate) fn have_ended_early(remaining: &dyn RemainingProcesses) -> bool {
    remaining.begin();
    remaining.have_ended()
}

/// Waits until no process remains. A signal that would end this process ends the others instead.
pub(crate) fn wait(remaining: &dyn RemainingProcesses) {
    remaining.begin();
    if remaining.have_ended() {
        return;
    }
    let mut mask = SigSet::empty();
    ENDING.into_iter().filter(|signal| is_default(*signal)).for_each(|signal| mask.add(signal));
    let _ = mask.thread_block();
    let bell = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let mut interval = INTERVAL_MIN;
    loop {
        let timeout = Timespec { tv_sec: 0, tv_nsec: interval.as_nanos() as i64 };
        match &bell {
            Ok(bell) => {
                let _ = poll(
                    &mut [PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)],
                    Some(&timeout),
                );
                if let Ok(Some(_)) = bell.read_signal() {
                    remaining.end();
                }
            }
            Err(_) => std::thread::sleep(interval),
        }
        if remaining.have_ended() {
            break;
        }
        interval = (2 * interval).min(INTERVAL_MAX);
    }
    let _ = mask.thread_unblock();
}

/// True if the signal would end this process.
fn is_default(signal: Signal) -> bool {
    // SAFETY: zero is valid for a sigaction, which is written.
    let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: changes nothing, and writes `found`.
    let read = unsafe { libc::sigaction(signal as i32, std::ptr::null(), &mut found) };
    read == 0 && found.sa_sigaction == libc::SIG_DFL
}
