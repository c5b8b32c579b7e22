//! A command that has been started.
//!
//! Invariant: a run sees the same environment, directory and descriptors whatever is put in front
//! of it, writes to files in memory only, and leaves no process of its group behind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use runahead_harness::{describe, interrupt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::data::job::{FigureSource, Job};
use crate::error::{Error, Failure};
use crate::measure::run_outcome::{Files, Outcome, digest, digest_of_lines};
use crate::report::run_report::Kind;

/// Time in which a process group ends after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes runs.
#[derive(Debug, Clone)]
pub struct Runner {
    /// A directory in memory for outputs.
    pub out: PathBuf,
    /// Time limit of a run.
    pub limit: Duration,
}

/// A command that has been started. Dropping it ends it, with all that it started.
pub struct Running {
    child: Option<Child>,
    files: Files,
    kind: Kind,
    start: Instant,
    /// Processor time of children before it started.
    processor: f64,
    deadline: Instant,
    limit: Duration,
}

impl Runner {
    /// Starts `job`, with `prefix` in front of it and its output to files.
    pub fn start(&self, job: &Job, kind: Kind, prefix: &[OsString]) -> Result<Running, Error> {
        let files = Files::of(kind, &self.out);
        let create = |path: &PathBuf| File::create(path).map_err(Error::system("create", path));
        let mut command = job.command(prefix);
        command
            .stdin(input(job)?)
            .stdout(create(&files.stdout)?)
            .stderr(create(&files.stderr)?)
            .process_group(0);
        let (start, processor) = (Instant::now(), processor_of_children());
        let child = command.spawn().map_err(Error::system("run", command.get_program()))?;
        let (deadline, limit) = (start + self.limit, self.limit);
        Ok(Running { child: Some(child), files, kind, start, processor, deadline, limit })
    }
}

impl Running {
    /// PID of the process; under runahead that is runahead's.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Files for its output.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Tries `attempt` until it gives something, or the command has ended or its time is over.
    pub fn until<T>(&mut self, mut attempt: impl FnMut() -> Option<T>) -> Result<T, Error> {
        loop {
            if let Some(result) = attempt() {
                return Ok(result);
            }
            interrupt::check()?;
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                let exit = describe(status);
                return Err(Failure::Ended { kind: self.kind.name(), exit }.into());
            }
            if Instant::now() >= self.deadline {
                return Err(self.timed_out());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end, at most until its time limit.
    pub fn finish(mut self, job: &Job) -> Result<Outcome, Error> {
        let Some(mut child) = self.child.take() else { return Err(self.timed_out()) };
        let ended = wait_until(&child, self.deadline);
        let elapsed = self.start.elapsed();
        if !matches!(ended, Ok(true)) {
            end_group(&mut child);
        }
        let status = child.wait().map_err(Error::system("wait for", &job.program))?;
        if !ended? {
            return Err(self.timed_out());
        }
        let digest = if job.unordered { digest_of_lines } else { digest };
        Ok(Outcome {
            elapsed,
            processor: processor_of_children() - self.processor,
            exit: describe(status),
            ok: matches!(status.code(), Some(0 | 1)) && said(job, &self.files)?,
            stdout: digest(&self.files.stdout)?,
            stderr: digest(&self.files.stderr)?,
            artefact: job.artefact.as_deref().map(digest).transpose()?,
            figure: figure(&job.gauge, elapsed),
            more: BTreeMap::new(),
            files: self.files.clone(),
        })
    }

    fn timed_out(&self) -> Error {
        Failure::TimedOut { kind: self.kind.name(), limit: self.limit }.into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            end_group(child);
            // Killed above.
            let _ = child.wait();
        }
    }
}

fn input(job: &Job) -> Result<Stdio, Error> {
    match &job.input {
        Some(path) => Ok(File::open(path).map_err(Error::system("open", path))?.into()),
        None => Ok(Stdio::null()),
    }
}

/// True if its output has the text that shows that it did its work.
fn said(job: &Job, files: &Files) -> Result<bool, Error> {
    let Some(wanted) = job.says else { return Ok(true) };
    let text = fs::read(&files.stdout).map_err(Error::system("read", &files.stdout))?;
    Ok(String::from_utf8_lossy(&text).contains(wanted))
}

fn figure(gauge: &FigureSource, elapsed: Duration) -> Option<f64> {
    match gauge {
        FigureSource::None => None,
        FigureSource::MicrosecondsEach(times) => {
            Some(elapsed.as_secs_f64() * 1e6 / f64::from(*times))
        }
        // A program that failed may not have written it; then its exit status differs.
        FigureSource::Told(file) => fs::read_to_string(file).ok()?.trim().parse().ok(),
    }
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

/// Ends the process and all that it started: first by SIGTERM, then by SIGKILL.
fn end_group(child: &mut Child) {
    let group = Pid::from_child(child);
    // An error means that no process is left.
    let _ = kill_process_group(group, Signal::TERM);
    let give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = kill_process_group(group, Signal::KILL);
}

/// Processor time of all children that were waited for, in seconds.
pub fn processor_of_children() -> f64 {
    let Ok(text) = fs::read_to_string("/proc/self/stat") else { return 0.0 };
    // Behind the name, which may hold any characters: proc_pid_stat(5), cutime and cstime.
    let fields: Vec<&str> =
        text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(13) + ticks(14)) / rustix::param::clock_ticks_per_second() as f64
}
