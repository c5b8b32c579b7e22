//! From a command line to a running program with the agent in it.

use std::ffi::{CString, OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, execvp, fork};
use runahead_abi::AgentConfig;

use crate::image::{Image, PAGE};
use crate::tracee::{Running, Stopped, TraceError};

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
    /// As a shell's exit status 127.
    #[error("{0}: command not found")]
    NotFound(String),
    /// As a shell's exit status 126.
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
}

/// Why a program runs without the agent.
#[derive(Debug, thiserror::Error)]
pub enum NotInjected {
    /// This machine lacks something.
    #[error("{0}")]
    Unavailable(String),
    /// Tracing would take its privileges away.
    #[error("it is set-user-ID, set-group-ID or has file capabilities")]
    Privileged,
    /// No agent for its instruction set.
    #[error("it is not an x86-64 program")]
    Architecture,
    /// The kernel does not let us trace it.
    #[error("tracing it is not permitted here ({0})")]
    NotPermitted(Errno),
    /// Something failed on the way in.
    #[error("the agent could not be put into it: {0}")]
    Trace(String),
    /// The agent is in but could not start.
    #[error("the agent could not start in it ({0}); is this kernel older than 5.11?")]
    Agent(Errno),
}

/// A program that has been started.
#[derive(Debug)]
pub struct Launched {
    /// Its process; a child of the caller.
    pub pid: Pid,
    /// Why the agent is not in it, if it is not.
    pub native: Option<NotInjected>,
    /// Its end, if it ended (and was collected) before it could be let go.
    pub ended: Option<WaitStatus>,
}

/// Starts `command` with the agent in it, which finds the file `shared` under the same number.
/// `prepare` makes the image and what to tell it while the kernel makes the program. If any of
/// this fails the command runs without the agent, or, with `require`, not at all.
///
/// The calling process must have one thread: the child runs this code between fork and exec.
pub fn launch(
    command: &Command,
    shared: BorrowedFd<'_>,
    require: bool,
    prepare: impl FnOnce() -> Result<(Image, AgentConfig), NotInjected>,
) -> Result<Launched, LaunchError> {
    let shown = command.program.to_string_lossy().into_owned();
    let path = find(&command.program).ok_or_else(|| LaunchError::NotFound(shown.clone()))?;
    let privileged = is_privileged(&path);
    if privileged && require {
        return Err(LaunchError::Required(NotInjected::Privileged));
    }
    let argv = std::iter::once(&command.program)
        .chain(&command.args)
        .map(|arg| CString::new(arg.as_bytes()))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut reader, writer) = std::io::pipe()
        .map_err(|e| LaunchError::Process(Errno::from_raw(e.raw_os_error().unwrap_or(0))))?;

    // SAFETY: the caller has one thread, so the child's copy of the process is whole.
    let pid = match unsafe { fork() }.map_err(LaunchError::Process)? {
        ForkResult::Child => exec(&argv, (!privileged).then_some(shared), require, writer),
        ForkResult::Parent { child } => child,
    };
    drop(writer);
    // The child says first whether it can be traced, then nothing (a successful exec closes the
    // pipe) or why exec failed.
    let mut native = privileged.then_some(NotInjected::Privileged);
    let mut ended = None;
    if !privileged {
        let prepared = prepare();
        match read_report(&mut reader) {
            Some(Errno::UnknownErrno) => {
                let inserted = Running::child(pid)
                    .wait_for_exec()
                    .map_err(Failure::from)
                    .and_then(|stopped| insert(stopped, shared, prepared, require));
                match inserted {
                    Ok(()) => {}
                    Err(Failure::Native(why)) => native = Some(why),
                    Err(Failure::Ended(status)) => ended = Some(status),
                }
            }
            Some(errno) => native = Some(NotInjected::NotPermitted(errno)),
            None => native = Some(NotInjected::Trace("it ended too early".into())),
        }
    }
    if let Some(errno) = read_report(&mut reader) {
        if ended.is_none() {
            let _ = waitpid(pid, None);
        }
        return Err(match errno {
            Errno::ENOENT | Errno::ENOTDIR if !path.exists() => LaunchError::NotFound(shown),
            errno => LaunchError::NotExecutable { program: shown, errno },
        });
    }
    match native {
        Some(why) if require => {
            // It was killed before its first instruction, or ended itself before exec.
            if ended.is_none() {
                let _ = waitpid(pid, None);
            }
            Err(LaunchError::Required(why))
        }
        native => Ok(Launched { pid, native, ended }),
    }
}

/// The next errno that the child sends; `UnknownErrno` (0) is success. `None` when it has nothing
/// more to say.
fn read_report(reader: &mut impl Read) -> Option<Errno> {
    let mut report = [0u8; 4];
    reader.read_exact(&mut report).ok()?;
    Some(Errno::from_raw(i32::from_le_bytes(report)))
}

/// The child's side.
fn exec(
    argv: &[CString],
    shared: Option<BorrowedFd<'_>>,
    require: bool,
    mut writer: std::io::PipeWriter,
) -> ! {
    let mut report = |errno: Errno| {
        let _ = writer.write_all(&(errno as i32).to_le_bytes());
    };
    if let Some(shared) = shared {
        let traced = ptrace::traceme();
        report(traced.err().unwrap_or(Errno::UnknownErrno));
        match traced {
            // The agent finds the file under its number, and closes it.
            Ok(()) => drop(fcntl(shared, FcntlArg::F_SETFD(FdFlag::empty()))),
            // SAFETY: ends the child without running the parent's exit handlers.
            Err(_) if require => unsafe { libc::_exit(127) },
            Err(_) => {}
        }
    }
    let Err(errno) = execvp(&argv[0], argv);
    report(errno);
    // SAFETY: as above.
    unsafe { libc::_exit(127) }
}

enum Failure {
    Native(NotInjected),
    Ended(WaitStatus),
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        match error {
            TraceError::Gone(status) => Failure::Ended(status),
            other => Failure::Native(NotInjected::Trace(other.to_string())),
        }
    }
}

/// `syscall; int3`, in the low bytes of a word.
const CALL_SITE: i64 = 0x00cc_050f;
const CALL_SITE_MASK: i64 = 0x00ff_ffff;
/// User code segment of 64-bit programs (asm/segment.h).
const USER_CS: u64 = 0x33;

/// Puts the agent into a program that stands at its first instruction, and lets it go.
fn insert(
    mut program: Stopped,
    shared: BorrowedFd<'_>,
    prepared: Result<(Image, AgentConfig), NotInjected>,
    require: bool,
) -> Result<(), Failure> {
    let inserted = try_insert(&mut program, shared, prepared);
    if require && inserted.is_err() {
        program.kill();
    }
    inserted
}

fn try_insert(
    program: &mut Stopped,
    shared: BorrowedFd<'_>,
    prepared: Result<(Image, AgentConfig), NotInjected>,
) -> Result<(), Failure> {
    let saved = program.registers()?;
    if saved.cs != USER_CS {
        return Err(Failure::Native(NotInjected::Architecture));
    }
    let site = saved.rip;
    let code = program.peek(site)?;
    program.poke(site, code & !CALL_SITE_MASK | CALL_SITE)?;
    let placed = match prepared {
        Ok((image, config)) => place(program, site, image, shared, config).map_err(Failure::from),
        Err(why) => Err(Failure::Native(why)),
    };
    if matches!(placed, Err(Failure::Native(_))) {
        let _ = program.syscall(site, libc::SYS_close, [shared.as_raw_fd() as u64, 0, 0, 0, 0, 0]);
    }
    if !matches!(placed, Err(Failure::Ended(_))) {
        program.poke(site, code)?;
        program.set_registers(saved)?;
    }
    match placed? {
        0 => Ok(()),
        errno => Err(Failure::Native(NotInjected::Agent(Errno::from_raw(-errno as i32)))),
    }
}

/// The result of the agent's start: 0, or a negative errno.
fn place(
    program: &mut Stopped,
    site: u64,
    image: Image,
    shared: BorrowedFd<'_>,
    mut config: AgentConfig,
) -> Result<i64, TraceError> {
    let config_len = size_of::<AgentConfig>() as u64;
    let total = image.len() + config_len.next_multiple_of(PAGE);
    // The agent takes the rights that it does not need away before anything else can run.
    let rwx = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let base = program.syscall(
        site,
        libc::SYS_mmap,
        [0, total, rwx as u64, private as u64, u64::MAX, 0],
    )?;
    let (text, text_len) = image.text();
    config.shared_fd = shared.as_raw_fd();
    (config.image, config.image_len) = (base, total);
    (config.text, config.text_len) = (base + text, text_len);
    let (config_at, entry) = (base + image.len(), base + image.entry());
    program.write(base, &image.place(base))?;
    // SAFETY: AgentConfig is repr(C) integers without padding, so all of its bytes are initialised.
    let bytes = unsafe {
        std::slice::from_raw_parts(
            std::ptr::from_ref(&config).cast::<u8>(),
            size_of::<AgentConfig>(),
        )
    };
    program.write(config_at, bytes)?;
    let mut regs = program.registers()?;
    // Below what the kernel has put on the stack for the program.
    regs.rsp = (regs.rsp - 1024) & !15;
    regs.rip = entry;
    regs.rdi = config_at;
    regs.orig_rax = u64::MAX;
    Ok(program.run(regs)?.rax as i64)
}

/// The file that execvp(3) will find, as far as it matters here.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let candidates = std::env::split_paths(&path).map(|dir| dir.join(program));
    let files: Vec<_> = candidates.filter(|p| p.is_file()).collect();
    let runnable = |p: &&PathBuf| p.metadata().is_ok_and(|m| m.permissions().mode() & 0o111 != 0);
    files.iter().find(runnable).or(files.first()).cloned()
}

fn is_privileged(path: &Path) -> bool {
    const SET_ID: u32 = 0o6000;
    let set_id = path.metadata().is_ok_and(|m| m.mode() & SET_ID != 0);
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: two strings that live, and no buffer: only the attribute's size is asked for.
    let capabilities = unsafe {
        libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0)
    };
    set_id || capabilities > 0
}
