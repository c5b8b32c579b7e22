//! One command, run and timed.
//!
//! Invariant: a run sees the same environment, directory and descriptors whatever is put in front
//! of it, writes to files in memory only, and leaves no process of its group behind.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Failure};
use crate::interrupt;

/// How long a group may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

/// A command of the table.
#[derive(Debug, Clone)]
pub struct Job {
    /// Found in PATH.
    pub program: &'static str,
    /// Debian's package of it.
    pub package: &'static str,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// A file that it writes besides its output, compared like it.
    pub artefact: Option<PathBuf>,
}

/// In which way a command was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// By itself.
    Plain,
    /// Under `runahead run`.
    Runahead,
    /// By itself, while all its accesses are made for it.
    Oracle,
    /// Under strace.
    Recording,
}

impl Kind {
    /// As in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Runahead => "runahead",
            Self::Oracle => "oracle",
            Self::Recording => "recording",
        }
    }
}

/// Length and SHA-256 of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// In bytes.
    pub bytes: u64,
    /// In hexadecimal.
    pub sha256: String,
}

/// What a run gave.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// From before the process was made until it had ended.
    pub elapsed: Duration,
    /// `exit 0`, `signal 11`.
    pub exit: String,
    /// Whether the command did its work: 0, or 1, with which grep says that nothing matched.
    pub ok: bool,
    /// Standard output.
    pub stdout: Digest,
    /// Standard error.
    pub stderr: Digest,
    /// [`Job::artefact`].
    pub artefact: Option<Digest>,
    /// Where the output is, until the next run of the same kind.
    pub files: Files,
}

/// Files for the output of runs of one kind.
#[derive(Debug, Clone)]
pub struct Files {
    /// Standard output.
    pub stdout: PathBuf,
    /// Standard error.
    pub stderr: PathBuf,
}

impl Files {
    fn of(kind: Kind, dir: &Path) -> Self {
        let name = |suffix| dir.join(format!("{}.{suffix}", kind.name()));
        Self { stdout: name("stdout"), stderr: name("stderr") }
    }
}

/// Where and how runs are made.
#[derive(Debug, Clone)]
pub struct Runner {
    /// A directory in memory for outputs.
    pub out: PathBuf,
    /// A run that takes longer is a failure.
    pub limit: Duration,
}

impl Runner {
    /// Runs `job`, with `prefix` in front of it, to its end.
    ///
    /// # Errors
    /// [`Failure::TimedOut`], [`Error::Interrupted`] (both after killing it), or it could not be
    /// started.
    pub fn run(&self, job: &Job, kind: Kind, prefix: &[OsString]) -> Result<Outcome, Error> {
        let files = Files::of(kind, &self.out);
        let create = |path: &PathBuf| File::create(path).map_err(Error::system("create", path));
        if let Some(path) = &job.artefact {
            match fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::system("remove", path)(e));
                }
                _ => {}
            }
        }
        let mut command = command_line(job, prefix);
        command
            .stdin(Stdio::null())
            .stdout(create(&files.stdout)?)
            .stderr(create(&files.stderr)?)
            .process_group(0);
        let start = Instant::now();
        let mut child = command.spawn().map_err(Error::system("run", command.get_program()))?;
        let ended = wait_until(&child, start + self.limit);
        let elapsed = start.elapsed();
        if !matches!(ended, Ok(true)) {
            end_group(&mut child);
        }
        let status = child.wait().map_err(Error::system("wait for", command.get_program()))?;
        if !ended? {
            return Err(Failure::TimedOut { kind: kind.name(), limit: self.limit }.into());
        }
        Ok(Outcome {
            elapsed,
            exit: describe(status),
            ok: matches!(status.code(), Some(0 | 1)),
            stdout: digest(&files.stdout)?,
            stderr: digest(&files.stderr)?,
            artefact: job.artefact.as_deref().map(digest).transpose()?,
            files,
        })
    }
}

fn command_line(job: &Job, prefix: &[OsString]) -> Command {
    let mut words = prefix.iter().cloned().chain([job.program.into()]).chain(job.args.clone());
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).current_dir(&job.cwd);
    set_environment(&mut command);
    command
}

/// The same few variables on every machine: nobody's locale, aliases or git configuration.
pub fn set_environment(command: &mut Command) {
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
}

/// Waits for the end of `child` without reaping it; false if `deadline` came first.
fn wait_until(child: &Child, deadline: Instant) -> Result<bool, Error> {
    let failed = |e: rustix::io::Errno| Error::system("wait for", "a process")(e.into());
    let fd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(failed)?;
    // Signals end the wait by themselves, except between the check and the wait.
    let slice = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    loop {
        interrupt::check()?;
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&slice)) {
            Ok(0) if Instant::now() >= deadline => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(e) => return Err(failed(e)),
        }
    }
}

/// The process and whatever it started: asked first, then killed.
fn end_group(child: &mut Child) {
    let group = Pid::from_child(child);
    // Errors mean that nobody is left.
    let _ = kill_process_group(group, Signal::TERM);
    let give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = kill_process_group(group, Signal::KILL);
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

fn digest(path: &Path) -> Result<Digest, Error> {
    let failed = |e: io::Error| Error::system("read", path)(e);
    let mut file = match File::open(path) {
        // A command that failed may not have written its file; that is a difference, not an error.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Ok(Digest { bytes: 0, sha256: "absent".into() });
        }
        other => other.map_err(failed)?,
    };
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = file.read(&mut buffer).map_err(failed)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
        bytes += n as u64;
    }
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Digest { bytes, sha256 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Job {
        let args = vec!["-c".into(), script.into()];
        Job { program: "sh", package: "dash", args, cwd: "/".into(), artefact: None }
    }

    #[test]
    fn outcomes_tell_exit_signal_and_output() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let run = |script| runner.run(&shell(script), Kind::Plain, &[]).unwrap();
        let one = run("echo out; echo err >&2; exit 3");
        assert_eq!((one.exit.as_str(), one.ok), ("exit 3", false));
        assert_eq!((one.stdout.bytes, one.stderr.bytes), (4, 4));
        assert_ne!(one.stdout, run("echo OUT").stdout);
        assert_eq!(run("kill -9 $$").exit, "signal 9");
    }

    #[test]
    fn what_does_not_end_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_millis(300) };
        let start = Instant::now();
        let job = shell("trap '' TERM; sleep 100 & echo $!; wait; wait");
        let result = runner.run(&job, Kind::Runahead, &[]);
        assert!(matches!(result, Err(Error::Failure(Failure::TimedOut { .. }))));
        assert!(start.elapsed() < Duration::from_secs(20));
        let pid = fs::read_to_string(dir.path().join("runahead.stdout")).unwrap();
        // A zombie until its new parent notices; either way it runs no more.
        let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z"), "{state}");
    }
}
