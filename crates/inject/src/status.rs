//! Result of wait(2). The types of nix have no real-time signals, and it fails where one comes.

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

/// Something that was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The process is over, and has been collected.
    Ended(Ended),
    /// A tracee stopped for this signal, which it has not got yet.
    Stopped(i32),
    /// A tracee stopped for this event of ptrace(2).
    Event(i32),
    /// Anything else.
    Other,
}

/// waitpid(2), with its flags.
pub fn wait(pid: Pid, flags: i32) -> Result<Status, Errno> {
    let mut status = 0;
    // SAFETY: writes an integer that lives.
    Errno::result(unsafe { libc::waitpid(pid.as_raw(), &mut status, flags) })?;
    Ok(Status::from_raw(status))
}

/// waitpid(2), with its flags, without waiting. None: nothing has happened.
pub fn wait_briefly(pid: Pid, flags: i32) -> Result<Option<Status>, Errno> {
    let mut status = 0;
    // SAFETY: writes an integer that lives.
    let got = unsafe { libc::waitpid(pid.as_raw(), &mut status, flags | libc::WNOHANG) };
    Ok((Errno::result(got)? != 0).then(|| Status::from_raw(status)))
}

impl Status {
    fn from_raw(status: i32) -> Self {
        // The kernel keeps a tracee's event above the signal (ptrace(2)).
        const EVENT_SHIFT: i32 = 16;
        if libc::WIFEXITED(status) {
            Status::Ended(Ended::Exited(libc::WEXITSTATUS(status)))
        } else if libc::WIFSIGNALED(status) {
            Status::Ended(Ended::Signaled(libc::WTERMSIG(status)))
        } else if status >> EVENT_SHIFT != 0 {
            Status::Event(status >> EVENT_SHIFT)
        } else if libc::WIFSTOPPED(status) {
            Status::Stopped(libc::WSTOPSIG(status))
        } else {
            Status::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_told_apart() {
        for (raw, status) in [
            (0x0300, Status::Ended(Ended::Exited(3))),
            (0x0009, Status::Ended(Ended::Signaled(9))),
            // With a core file; and a real-time signal.
            (0x008b, Status::Ended(Ended::Signaled(11))),
            (0x0028, Status::Ended(Ended::Signaled(40))),
            (0x227f, Status::Stopped(34)),
            (0x4057f, Status::Event(libc::PTRACE_EVENT_EXEC)),
            (0xffff, Status::Other),
        ] {
            assert_eq!(Status::from_raw(raw), status, "{raw:#x}");
        }
    }
}
