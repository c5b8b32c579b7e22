//! One command, run and timed.
//!
//! Invariant: a run sees the same environment, directory and descriptors whatever is put in front
//! of it, writes to files in memory only, and leaves no process of its group behind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use runahead_harness::interrupt;
use runahead_testbed::Swap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::data::copy_tree::{self as copy, Links};
use crate::data::job::{self, Files, Fresh, Gauge, Job, Kind, Manner, Outcome};
use crate::error::{Error, Failure};
use crate::measure::redis_load as redis;
use crate::measure::resident_memory as resident;
use crate::measure::surroundings::Group;

/// How long a group may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where and how runs are made.
#[derive(Debug, Clone)]
pub struct Runner {
    /// A directory in memory for outputs.
    pub out: PathBuf,
    /// A run that takes longer is a failure.
    pub limit: Duration,
}

/// A command that has been started. Dropping it ends it, with whatever it started.
pub struct Running {
    child: Option<Child>,
    files: Files,
    kind: Kind,
    start: Instant,
    deadline: Instant,
    limit: Duration,
}

impl Runner {
    /// Runs `job`, with `prefix` in front of it, to its end.
    ///
    /// # Errors
    /// [`Failure::TimedOut`], [`Error::Interrupted`] (both after killing it), or it could not be
    /// started.
    pub fn run(&self, job: &Job, kind: Kind, prefix: &[OsString]) -> Result<Outcome, Error> {
        if let Gauge::Told(file) = &job.gauge {
            remove(file)?;
        }
        if let Some(file) = &job.artefact {
            remove(file)?;
        }
        if let Some(fresh) = &job.fresh {
            make_fresh(fresh)?;
        }
        let swapped = |bytes| Swap::on(&job.cwd, bytes).map_err(|e| Failure::NoSwap(e.to_string()));
        let _swap = job.swap.map(swapped).transpose()?;
        let limited = |bytes| Group::with_memory(bytes, job.swap.is_some());
        let group = job.memory.map(limited).transpose()?;
        let inside = group.as_ref().map(|group| {
            let around = group.words().into_iter().chain(job.around.clone()).collect();
            Job { around, ..job.clone() }
        });
        let job = inside.as_ref().unwrap_or(job);
        let outcome = match job.manner {
            Manner::Itself => self.start(job, kind, prefix)?.finish(job),
            Manner::Serving { requests, pipeline } => {
                redis::serve(self, job, kind, prefix, redis::Load { requests, pipeline })
            }
            Manner::Sleeping => resident::look(self, job, kind, prefix),
        };
        if let Some(fresh) = &job.fresh {
            remove_all(&fresh.dir)?;
        }
        outcome
    }

    /// Starts it, with its output to files.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(&self, job: &Job, kind: Kind, prefix: &[OsString]) -> Result<Running, Error> {
        let files = Files::of(kind, &self.out);
        let create = |path: &PathBuf| File::create(path).map_err(Error::system("create", path));
        let mut command = job.command(prefix);
        command
            .stdin(input(job)?)
            .stdout(create(&files.stdout)?)
            .stderr(create(&files.stderr)?)
            .process_group(0);
        let start = Instant::now();
        let child = command.spawn().map_err(Error::system("run", command.get_program()))?;
        let (deadline, limit) = (start + self.limit, self.limit);
        Ok(Running { child: Some(child), files, kind, start, deadline, limit })
    }
}

impl Running {
    /// Its process; under runahead that is runahead's.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Where its output goes.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Tries `attempt` until it gives something, or the command has ended or its time is over.
    ///
    /// # Errors
    /// [`Failure::TimedOut`], [`Failure::Ended`], [`Error::Interrupted`].
    pub fn until<T>(&mut self, mut attempt: impl FnMut() -> Option<T>) -> Result<T, Error> {
        loop {
            if let Some(result) = attempt() {
                return Ok(result);
            }
            interrupt::check()?;
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                let exit = job::describe(status);
                return Err(Failure::Ended { kind: self.kind.name(), exit }.into());
            }
            if Instant::now() >= self.deadline {
                return Err(self.timed_out());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// As of [`Runner::run`].
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
        let digest = if job.unordered { job::digest_of_lines } else { job::digest };
        Ok(Outcome {
            elapsed,
            exit: job::describe(status),
            ok: matches!(status.code(), Some(0 | 1)) && said(job, &self.files)?,
            stdout: digest(&self.files.stdout)?,
            stderr: digest(&self.files.stderr)?,
            artefact: job.artefact.as_deref().map(job::digest).transpose()?,
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

/// Whether its output has what shows that it did its work.
fn said(job: &Job, files: &Files) -> Result<bool, Error> {
    let Some(wanted) = job.says else { return Ok(true) };
    let text = fs::read(&files.stdout).map_err(Error::system("read", &files.stdout))?;
    Ok(String::from_utf8_lossy(&text).contains(wanted))
}

fn figure(gauge: &Gauge, elapsed: Duration) -> Option<f64> {
    match gauge {
        Gauge::None => None,
        Gauge::MicrosecondsEach(times) => Some(elapsed.as_secs_f64() * 1e6 / f64::from(*times)),
        // A program that failed may not have told; then its exit status differs.
        Gauge::Told(file) => fs::read_to_string(file).ok()?.trim().parse().ok(),
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::system("remove", path)(e)),
        _ => Ok(()),
    }
}

fn remove_all(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::system("remove", path)(e)),
        _ => Ok(()),
    }
}

fn make_fresh(fresh: &Fresh) -> Result<(), Error> {
    remove_all(&fresh.dir)?;
    match &fresh.from {
        Some(from) => {
            let hidden = ProgressBar::hidden();
            copy::copy_tree(from, &fresh.dir, usize::MAX, Links::Keep, &hidden).map(drop)
        }
        None => fs::create_dir(&fresh.dir).map_err(Error::system("create", &fresh.dir)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Job {
        Job::new("sh", "dash", Path::new("/")).args(["-c", script])
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
    fn output_can_be_what_tells_and_input_what_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let input = dir.path().join("input");
        fs::write(&input, "count = 7\n").unwrap();
        let job = Job { input: Some(input), says: Some("count = "), ..shell("cat") };
        assert!(runner.run(&job, Kind::Plain, &[]).unwrap().ok);
        let silent = Job { says: Some("count = "), ..shell("echo error") };
        assert!(!runner.run(&silent, Kind::Plain, &[]).unwrap().ok);
        let words = Job { around: vec!["env".into(), "A=b".into()], ..shell("test $A = b") };
        assert!(runner.run(&words, Kind::Plain, &[]).unwrap().ok);
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
        // Killed, it may take a moment to end, and is a zombie until its new parent notices.
        let state = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z") {
            assert!(start.elapsed() < Duration::from_secs(20), "{}", state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_fresh_directory_is_there_for_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("f"), "text").unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let fresh = Some(Fresh { from: Some(from.clone()), dir: to.clone() });
        let script = format!("cat {0}/f && echo more > {0}/f", to.display());
        let job = Job { fresh, ..shell(&script) };
        let first = runner.run(&job, Kind::Plain, &[]).unwrap();
        assert_eq!((first.exit.as_str(), first.stdout.bytes), ("exit 0", 4));
        assert_eq!(runner.run(&job, Kind::Plain, &[]).unwrap().stdout, first.stdout);
        assert!(!to.exists() && from.join("f").exists());
    }

    #[test]
    fn figures_are_of_each_or_told() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let told = dir.path().join("told");
        let job = Job {
            gauge: Gauge::Told(told.clone()),
            ..shell(&format!("echo 12.5 > {}", told.display()))
        };
        assert_eq!(runner.run(&job, Kind::Plain, &[]).unwrap().figure, Some(12.5));
        let job = Job { gauge: Gauge::Told(told), ..shell("true") };
        assert_eq!(runner.run(&job, Kind::Plain, &[]).unwrap().figure, None, "an older figure");
        let job = Job { gauge: Gauge::MicrosecondsEach(10), ..shell("sleep 0.1") };
        assert!(runner.run(&job, Kind::Plain, &[]).unwrap().figure >= Some(10_000.0));
    }

    #[test]
    fn what_is_waited_for_in_vain_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_millis(300) };
        let wait = |script| {
            let mut running = runner.start(&shell(script), Kind::Plain, &[]).unwrap();
            running.until(|| None::<()>)
        };
        let ended = wait("exit 7");
        assert!(
            matches!(ended, Err(Error::Failure(Failure::Ended { exit, .. })) if exit == "exit 7")
        );
        assert!(matches!(wait("sleep 100"), Err(Error::Failure(Failure::TimedOut { .. }))));
    }
}
