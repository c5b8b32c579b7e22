//! How the command ends, and what the first process of a container has to do until then.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use crate::members;

/// How often orphans are collected, in milliseconds.
const ORPHANS_MS: u16 = 500;

/// How a command ended, as wait(2) tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

/// Waits for the command, and for it alone: a wait for any child would take away what clerks, who
/// trace the command when it execs, are waiting for.
pub(crate) fn wait_for(command: Pid) -> Ended {
    let orphans = std::process::id() == 1;
    if let Ok(ends) = members::pidfd_open(command) {
        let mut ends = [PollFd::new(ends.as_fd(), PollFlags::POLLIN)];
        loop {
            let patience = if orphans { ORPHANS_MS.into() } else { PollTimeout::NONE };
            match poll(&mut ends, patience) {
                Ok(0) => collect_orphans(command),
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
    }
    loop {
        match waitpid(command, None) {
            Ok(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) => {
                return ended(status);
            }
            // Somebody else collected it: nothing is known but that it is over.
            Err(Errno::ECHILD) => return Ended::Exited(0),
            _ => {}
        }
    }
}

/// As the first process of a container we have to collect those whose parents have ended.
fn collect_orphans(command: Pid) {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) =
        waitid(Id::All, look | WaitPidFlag::__WALL)
    {
        if pid == command || waitpid(pid, Some(WaitPidFlag::__WALL)).is_err() {
            return;
        }
    }
}

/// What `status` says of the command.
pub(crate) fn ended(status: WaitStatus) -> Ended {
    match status {
        WaitStatus::Signaled(_, signal, _) => Ended::Signaled(signal as i32),
        WaitStatus::Exited(_, code) => Ended::Exited(code),
        _ => Ended::Exited(0),
    }
}
