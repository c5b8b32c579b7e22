//! How the command ends, and what the first process of a container has to do until then.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use runahead_inject::{Ended, Status, wait};

use crate::members;

/// How often orphans are collected, in milliseconds.
const ORPHANS_MS: u16 = 500;

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
        match wait(command, 0) {
            Ok(Status::Ended(ended)) => return ended,
            // Somebody else collected it: nothing is known but that it is over.
            Err(Errno::ECHILD) => return Ended::Exited(0),
            _ => {}
        }
    }
}

/// As the first process of a container we have to collect those whose parents have ended.
fn collect_orphans(command: Pid) {
    let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    loop {
        // SAFETY: zero is valid for a siginfo_t, and says that there was nobody.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: writes `info`.
        let found = unsafe { libc::waitid(libc::P_ALL, 0, &mut info, look) };
        // SAFETY: what waitid(2) writes has a process number.
        let pid = Pid::from_raw(unsafe { info.si_pid() });
        if found != 0 || pid.as_raw() == 0 || pid == command || wait(pid, libc::__WALL).is_err() {
            return;
        }
    }
}
