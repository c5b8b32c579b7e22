//! Messages of `runahead`, and the end of its process: exit statuses, and the signal that ended the
//! command.

use std::io::Write;

use runahead_inject::LaunchError;
use runahead_supervisor::{Ended, SessionError};

/// Writes a message to stderr. A failed write is ignored: the command must run anyway.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = writeln!(std::io::stderr(), "runahead: {}", format_args!($($words)*));
    }};
}

pub(crate) use say;

/// Exit status if the command was not found, as in shells.
const NOT_FOUND: i32 = 127;
/// Exit status if the command cannot be executed, as in shells.
const NOT_EXECUTABLE: i32 = 126;
/// Exit status if `runahead` failed, or `--require` kept the command from running.
pub(crate) const RUNAHEAD_FAILED: i32 = 125;

pub(crate) fn launch_status(error: &LaunchError) -> i32 {
    match error {
        LaunchError::NotFound(_) => NOT_FOUND,
        LaunchError::NotExecutable { .. } => NOT_EXECUTABLE,
        _ => RUNAHEAD_FAILED,
    }
}

/// Reports why the command did not run, and returns the exit status.
pub(crate) fn report_error(error: &SessionError) -> i32 {
    say!("{error}");
    match error {
        SessionError::Launch(error) => launch_status(error),
        SessionError::TooFewProcesses(_) => RUNAHEAD_FAILED,
    }
}

/// Writes to stdout. A closed pipe is no error.
pub(crate) fn print(text: &[u8]) -> Result<(), String> {
    match std::io::stdout().write_all(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to stdout: {error}"))
        }
        _ => Ok(()),
    }
}

/// Closes stdio and ends the I/O process. Afterwards nothing may be written and no memory
/// allocated.
pub(crate) fn close_stdio() {
    // A reader of a pipe waits until its last descriptor is closed.
    // SAFETY: nothing that follows uses these descriptors.
    (libc::STDIN_FILENO..=libc::STDERR_FILENO).for_each(|fd| _ = unsafe { libc::close(fd) });
    runahead_supervisor::io_process::kill();
}

/// Returns the command's exit status, or ends this process by the signal that ended the command.
pub(crate) fn end_like(ended: Ended) -> i32 {
    let signal = match ended {
        Ended::Exited(status) => return status,
        Ended::Signaled(signal) => signal,
    };
    close_stdio();
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls on this process, which is about to end; the command's core, if any, is
    // not to be overwritten by ours.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::signal(signal, libc::SIG_DFL);
        // The parent may have blocked a signal that the command did not.
        let mask = 1u64 << (signal - 1);
        let none = std::ptr::null_mut::<u64>();
        let bytes = size_of_val(&mask);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, &mask, none, bytes);
        libc::raise(signal);
    }
    128 + signal
}
