//! Naming, awaiting and ending the server process.
//!
//! Invariant: a process is only ever signalled through a pidfd whose start time was checked, so a
//! reused number cannot hit a stranger.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process, for ever: its number and when it started (clock ticks since boot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pid: i32,
    started: u64,
}

impl ProcessId {
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
        let started = start_time(pid)?;
        Ok(Self { pid, started })
    }

    pub(crate) fn pid(self) -> i32 {
        self.pid
    }

    /// The process, if it still is (or is a zombie).
    fn open(self) -> Option<OwnedFd> {
        let fd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Checked after the open: from here on the descriptor keeps its process.
        (start_time(self.pid).ok()? == self.started).then_some(fd)
    }

    pub(crate) fn is_running(self) -> bool {
        self.open().is_some_and(|fd| !ended(&fd, Duration::ZERO).unwrap_or(false))
    }

    /// Waits up to `patience` for the process to end, then kills it and waits again.
    pub(crate) fn end(self, patience: Duration) -> io::Result<()> {
        let Some(fd) = self.open() else { return Ok(()) };
        if ended(&fd, patience)? {
            return Ok(());
        }
        match pidfd_send_signal(&fd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => return Err(e.into()),
        }
        if ended(&fd, Duration::from_secs(5))? {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

fn ended(fd: &OwnedFd, patience: Duration) -> io::Result<bool> {
    let timeout =
        Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    loop {
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Field 22 of /proc/PID/stat. The second field is a name in parentheses that may hold anything,
/// even parentheses.
fn start_time(pid: i32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name
        .split_ascii_whitespace()
        .nth(19)
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
