//! From a command line to a running program with the agent in it.
//!
//! This process may be killed at any moment. Until the child is traced it waits for us; the end of
//! that pipe without a word is our end, and the child runs natively. So it does if we die before
//! its exec; from our word on it then has one descriptor more, that of the agent's file, which must
//! survive exec. From exec until it is let go, some 100 µs, it stands in code of ours
//! and dies with us. At no moment does it stay stopped.

use std::convert::Infallible;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::{ForkResult, Pid, execv, execvp, fork};

use crate::image::Layout;
use crate::insert_agent::{Failure, insert};
use crate::not_injected::NotInjected;
use crate::privilege_check;
use crate::status::{Ended, wait};
use crate::tracee::Running;

/// A program and its arguments, the first of which is its name.
#[derive(Debug, Clone)]
pub struct Command {
    /// Searched in `PATH` unless it holds a slash.
    pub program: OsString,
    /// The rest of the command line.
    pub args: Vec<OsString>,
}

/// Why a command did not start at all.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The command does not exist: exit status 127 of a shell.
    #[error("{0}: command not found")]
    NotFound(String),
    /// The command cannot be executed: exit status 126 of a shell.
    #[error("{program}: cannot be executed: {errno}")]
    NotExecutable {
        /// The command.
        program: String,
        /// The kernel's reason.
        errno: Errno,
    },
    /// It was to run with the agent or not at all.
    #[error("not run, because the agent cannot be put into it: {0}")]
    Required(NotInjected),
    /// An argument holds a NUL byte.
    #[error("an argument holds a NUL byte, which no program can be given")]
    Nul(#[from] std::ffi::NulError),
    /// No process could be made.
    #[error("cannot start a process: {0}")]
    Process(Errno),
    /// The kernel does not confine it as it was to be.
    #[error("not run, because the kernel does not confine it: {0}")]
    NotConfined(Errno),
}

/// Confines the program between fork and exec, so that it can do less from there on.
pub type Confine<'a> = &'a dyn Fn() -> Result<(), Errno>;

/// Options of the start of a program.
#[derive(Clone, Copy)]
pub struct StartOptions<'a> {
    /// True if the program is not started when the agent cannot be put into it.
    pub require: bool,
    /// The signals that it blocks, one bit for each; the caller may block others.
    pub mask: u64,
    /// Confinement of the program.
    pub confine: Option<Confine<'a>>,
}

/// A program that has been started.
#[derive(Debug)]
pub struct Launched {
    /// Its process; a child of the caller.
    pub pid: Pid,
    /// Its file, as found in `PATH`.
    pub path: PathBuf,
    /// Why the agent is not in it, if it is not.
    pub native: Option<NotInjected>,
    /// Its end, if it ended (and was collected) before it could be let go.
    pub ended: Option<Ended>,
}

/// Starts `command` with the agent in it, whose `file` the program has under the same number; there
/// may be a reason to have none. `prepare` fills it while the kernel makes the program. If any of
/// this fails the command runs without the agent, or, with `require`, not at all.
///
/// The calling process must have one thread: the child runs this code between fork and exec. It
/// gets the default disposition of SIGCHLD, without which there is nothing to wait for; the
/// program gets the one that was inherited.
pub fn launch(
    command: &Command,
    file: Result<&OwnedFd, &NotInjected>,
    start: StartOptions<'_>,
    prepare: impl FnOnce(&OwnedFd) -> Result<Layout, NotInjected>,
) -> Result<Launched, LaunchError> {
    let StartOptions { require, mask, confine } = start;
    let shown = command.program.to_string_lossy().into_owned();
    let path =
        find_in_path(&command.program).ok_or_else(|| LaunchError::NotFound(shown.clone()))?;
    let wanted = match privilege_check::forbids(&path) {
        Some(why) => Err(why),
        None => file.map_err(Clone::clone),
    };
    if let (Err(why), true) = (&wanted, require) {
        return Err(LaunchError::Required(why.clone()));
    }
    let argv = std::iter::once(&command.program)
        .chain(&command.args)
        .map(|arg| CString::new(arg.as_bytes()))
        .collect::<Result<Vec<_>, _>>()?;
    // One pipe tells the child that it is traced; the other tells us why exec failed, or nothing
    // when it closes at a successful one.
    let (traced, mut tell_traced) = pipe()?;
    let (mut report, tell_errno) = pipe()?;
    // Stops of a child concern the tracer, which waits for it: no SIGCHLD is needed for them.
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::SA_NOCLDSTOP, SigSet::empty());
    // SAFETY: no handler is installed.
    let inherited =
        unsafe { sigaction(Signal::SIGCHLD, &default) }.map_err(LaunchError::Process)?;

    // SAFETY: the caller has one thread, so the child's copy of the process is whole.
    let pid = match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            drop(tell_traced);
            let file = wanted.as_ref().ok().map(|file| file.as_fd());
            exec(&argv, file, traced, tell_errno, (&inherited, mask, confine))
        }
        Ok(ForkResult::Parent { child }) => child,
        Err(errno) => {
            // SAFETY: puts back what was there.
            let _ = unsafe { sigaction(Signal::SIGCHLD, &inherited) };
            return Err(LaunchError::Process(errno));
        }
    };
    drop(tell_errno);
    let mut ended = None;
    let native = match wanted {
        Err(why) => {
            drop(tell_traced);
            Some(why)
        }
        Ok(file) => match Running::seize(pid, false) {
            Ok(running) => {
                // If a signal has ended it meanwhile, waiting tells, not SIGPIPE: our copy of the
                // other end is still open.
                let _ = tell_traced.write_all(&[1]);
                drop((tell_traced, traced));
                let prepared = prepare(file);
                let inserted = running.wait_for_exec().map_err(Failure::from).and_then(|stopped| {
                    let Some(stopped) = stopped else { return Ok(()) };
                    insert(stopped, (file.as_raw_fd(), &[]), prepared, require, None)
                });
                match inserted {
                    Ok(()) => None,
                    Err(Failure::Native(why)) => Some(why),
                    Err(Failure::Ended(status)) => {
                        ended = Some(status);
                        None
                    }
                }
            }
            Err(errno) => {
                if require {
                    let _ = kill(pid, Signal::SIGKILL);
                }
                drop(tell_traced);
                Some(NotInjected::NotPermitted(errno))
            }
        },
    };
    if let Some(errno) = read_report(&mut report) {
        if ended.is_none() {
            let _ = wait(pid, 0);
        }
        return Err(match errno {
            ChildReport::Confine(errno) => LaunchError::NotConfined(errno),
            ChildReport::Exec(errno) => match errno {
                Errno::ENOENT | Errno::ENOTDIR if !path.exists() => LaunchError::NotFound(shown),
                errno => LaunchError::NotExecutable { program: shown, errno },
            },
        });
    }
    match native {
        Some(why) if require => {
            // It was killed before its first instruction.
            if ended.is_none() {
                let _ = wait(pid, 0);
            }
            Err(LaunchError::Required(why))
        }
        native => Ok(Launched { pid, path, native, ended }),
    }
}

fn pipe() -> Result<(PipeReader, PipeWriter), LaunchError> {
    std::io::pipe()
        .map_err(|e| LaunchError::Process(Errno::from_raw(e.raw_os_error().unwrap_or(0))))
}

/// Executes `command` in the place of this process. Returns only if that fails. For when not even
/// one further process can be had.
pub fn exec_instead(command: &Command) -> LaunchError {
    let program = command.program.to_string_lossy().into_owned();
    let argv = std::iter::once(&command.program).chain(&command.args);
    let argv: Result<Vec<_>, _> = argv.map(|arg| CString::new(arg.as_bytes())).collect();
    match argv.map(|argv| execute(&argv)) {
        Err(nul) => LaunchError::Nul(nul),
        Ok(Err(Errno::ENOENT | Errno::ENOTDIR)) => LaunchError::NotFound(program),
        Ok(Err(errno)) => LaunchError::NotExecutable { program, errno },
    }
}

/// execvp(3). A text without a first line that names its interpreter is the shell's to run, which
/// some C libraries leave to their callers. Returns only if it fails.
fn execute(argv: &[CString]) -> Result<Infallible, Errno> {
    const SHELL: &CStr = c"/bin/sh";
    let failed = execvp(&argv[0], argv);
    if failed != Err(Errno::ENOEXEC) {
        return failed;
    }
    let Some(path) = find_in_path(OsStr::from_bytes(argv[0].to_bytes())) else { return failed };
    let Ok(path) = CString::new(path.into_os_string().into_vec()) else { return failed };
    let line: Vec<&CStr> =
        [SHELL, &path].into_iter().chain(argv[1..].iter().map(CString::as_c_str)).collect();
    execv(SHELL, &line)
}

/// Report of the child before it ends.
enum ChildReport {
    /// It was not confined.
    Confine(Errno),
    /// It was not executed.
    Exec(Errno),
}

/// Why exec failed; `None` if it did not.
fn read_report(report: &mut impl Read) -> Option<ChildReport> {
    let mut errno = [0u8; 4];
    report.read_exact(&mut errno).ok()?;
    Some(match i32::from_le_bytes(errno) {
        errno if errno < 0 => ChildReport::Confine(Errno::from_raw(-errno)),
        errno => ChildReport::Exec(Errno::from_raw(errno)),
    })
}

/// The child's side.
fn exec(
    argv: &[CString],
    file: Option<BorrowedFd<'_>>,
    mut traced: PipeReader,
    mut tell_errno: PipeWriter,
    (on_child, mask, confine): (&SigAction, u64, Option<Confine<'_>>),
) -> ! {
    if matches!(on_child.handler(), SigHandler::SigIgn) {
        // SAFETY: puts back what was there, which is no handler.
        let _ = unsafe { sigaction(Signal::SIGCHLD, on_child) };
    }
    if traced.read_exact(&mut [0]).is_ok()
        && let Some(file) = file
    {
        // The program finds the file under its number, and closes it.
        let _ = fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()));
    }
    let bytes = size_of_val(&mask);
    let none = std::ptr::null_mut::<u64>();
    // SAFETY: a mask of the size that is given, and no place for the old one.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &mask, none, bytes) };
    let errno = match confine.map_or(Ok(()), |confine| confine()) {
        Ok(()) => match execute(argv) {
            Err(errno) => errno as i32,
            Ok(never) => match never {},
        },
        Err(errno) => -(errno as i32),
    };
    let _ = tell_errno.write_all(&errno.to_le_bytes());
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

/// The file that execvp(3) will find, as far as it matters here.
pub fn find_in_path(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let candidates = std::env::split_paths(&path).map(|dir| dir.join(program));
    let files: Vec<_> = candidates.filter(|p| p.is_file()).collect();
    let runnable = |p: &&PathBuf| p.metadata().is_ok_and(|m| m.permissions().mode() & 0o111 != 0);
    files.iter().find(runnable).or(files.first()).cloned()
}
