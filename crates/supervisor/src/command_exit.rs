//! Waits for the command's end. Until then signals are forwarded, and the first process of a
//! container collects orphans.

use std::os::fd::AsFd;

use nix::libc;
use nix::unistd::Pid;
use runahead_inject::{Ended, Status, wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{self, PidfdFlags, pidfd_open};

use crate::signal_forwarding::SignalForwarder;

/// Interval at which orphans are collected.
const ORPHAN_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// Interval at which signals are polled where they cannot be waited for.
const SIGNAL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Returns true if the command has ended. It can still be waited for.
pub(crate) fn has_ended(command: Pid) -> bool {
    peek_exited(libc::P_PID, command).is_some()
}

/// Waits for the command, and for it alone. A wait for any child would take the status changes for
/// which the threads of the control socket wait, which trace the command when it execs.
pub(crate) fn wait_for(command: Pid) -> Ended {
    let orphans = std::process::id() == 1;
    let passing = SignalForwarder::new(command);
    let number = process::Pid::from_raw(command.as_raw());
    if let Some(Ok(ends)) = number.map(|number| pidfd_open(number, PidfdFlags::empty())) {
        let bell = passing.signal_fd();
        let fds = [Some(ends.as_fd()), bell];
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds: Vec<_> = fds.into_iter().flatten().map(readable).collect();
        loop {
            let patience = match bell {
                None => Some(&SIGNAL_INTERVAL),
                Some(_) if orphans => Some(&ORPHAN_INTERVAL),
                Some(_) => None,
            };
            let polled = poll(&mut fds, patience);
            passing.forward_pending();
            match polled {
                Ok(0) if orphans => collect_orphans(command),
                Ok(_) if !fds[0].revents().is_empty() => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }
    let ended = loop {
        match wait(command, 0) {
            Ok(Status::Ended(ended)) => break ended,
            // Another waiter has collected the command: only its end is known.
            Err(nix::errno::Errno::ECHILD) => break Ended::Exited(0),
            _ => {}
        }
    };
    passing.finish();
    ended
}

/// Collects children whose parents have ended, if this is the first process of a container.
fn collect_orphans(command: Pid) {
    while let Some(orphan) = peek_exited(libc::P_ALL, Pid::from_raw(0)) {
        if orphan == command || wait(orphan, libc::__WALL).is_err() {
            return;
        }
    }
}

/// Finds an ended child without collecting it (waitid(2), `WNOWAIT`).
fn peek_exited(which: libc::idtype_t, child: Pid) -> Option<Pid> {
    let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: zero is valid for a siginfo_t, and stands for no child.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes `info`.
    let found = unsafe { libc::waitid(which, child.as_raw() as libc::id_t, &mut info, look) };
    // SAFETY: waitid(2) writes a PID.
    let pid = Pid::from_raw(unsafe { info.si_pid() });
    (found == 0 && pid.as_raw() != 0).then_some(pid)
}
