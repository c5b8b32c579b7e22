//! Processes of a try that have not ended, whether or not `runahead` still runs.
//!
//! Each process with an agent maps the file of the filter, which its agent has locked (flock(2),
//! shared). The lock is part of the mapping: it survives fork and what closes descriptors, and ends
//! with the process, or at its exec. An exec that has begun is counted in the filter until the new
//! program has an agent. A process without an agent cannot change anything but files that it has
//! inherited open, by which it is found in `/proc`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runahead_abi::overlay::{ChangeFilter, FILTER};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;

use crate::printed_name::printed_name;
use crate::store::{Try, TryLock};
use crate::{Error, Result, io_error};

/// Longest time between the exec of a program and the start of its agent.
const EXEC_MAX: Duration = Duration::from_secs(2);
/// Time for which a commit waits for others that only look.
const LOOKERS_MAX: Duration = Duration::from_millis(100);
const INTERVAL: Duration = Duration::from_millis(10);
/// Limit of processes that a message names.
const LISTED_MAX: usize = 5;

/// A process of a try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningProcess {
    /// Its PID.
    pub pid: i32,
    /// Its name (`/proc/PID/comm`).
    pub name: String,
}

/// State of the processes of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessesState {
    /// Processes run.
    Running,
    /// A process may be at its exec, and has no agent yet.
    AtExec,
    /// A process without an agent may run.
    Unknown,
    /// End of all processes.
    Ended,
}

impl Try {
    /// Locks a try of which no process runs, or fails.
    pub fn lock_ended(&self) -> Result<(TryLock, Option<File>)> {
        let start = Instant::now();
        loop {
            let lock = self.lock()?.ok_or_else(|| self.still_running())?;
            let (state, filter) = self.look(start)?;
            match state {
                ProcessesState::Ended => return Ok((lock, filter)),
                // Another command may look at the same moment.
                ProcessesState::Running
                    if start.elapsed() < LOOKERS_MAX && self.processes().is_empty() => {}
                ProcessesState::AtExec => {}
                _ => return Err(self.still_running()),
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// True if no process of the try runs. `since`: the time from which an exec that has begun is
    /// waited for.
    pub fn have_processes_ended(&self, since: Instant) -> Result<bool> {
        Ok(self.look(since)?.0 == ProcessesState::Ended)
    }

    fn look(&self, since: Instant) -> Result<(ProcessesState, Option<File>)> {
        let path = self.overlay_directory().join(FILTER);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok((ProcessesState::Ended, None));
            }
            Err(error) => return Err(io_error("open", &path)(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok((ProcessesState::Running, None)),
            Err(errno) => return Err(io_error("lock", &path)(errno.into())),
        }
        let (execs, natives) = self.execs()?;
        let state = match (execs > 0, natives > 0) {
            (false, false) => ProcessesState::Ended,
            (true, _) if since.elapsed() < EXEC_MAX => ProcessesState::AtExec,
            _ if self.processes().is_empty() => ProcessesState::Ended,
            _ => ProcessesState::Unknown,
        };
        Ok((state, Some(file)))
    }

    /// Returns the numbers of execs that have begun and of native ones, nested tries included.
    fn execs(&self) -> Result<(u64, u64)> {
        let nested = self.nested().list();
        let mut all = (0, 0);
        for tried in std::iter::once(self).chain(&nested) {
            let path = tried.overlay_directory().join(FILTER);
            let mut words = [0; 16];
            let read = File::open(&path)
                .and_then(|file| file.read_exact_at(&mut words, ChangeFilter::EXECS_AT as u64));
            read.map_err(io_error("read", &path))?;
            let word = |n: usize| {
                u64::from_ne_bytes(words[8 * n..8 * n + 8].try_into().unwrap_or_default())
            };
            all = (all.0 + word(0), all.1 + word(1));
        }
        Ok(all)
    }

    /// True if the command, a process that it left, or a commit runs.
    pub fn is_running(&self) -> bool {
        match self.lock() {
            Ok(None) => true,
            // Without `runahead`, no exec succeeds.
            Ok(Some(_lock)) => matches!(
                self.look(Instant::now()),
                Ok((ProcessesState::Running | ProcessesState::Unknown, _))
            ),
            Err(_) => false,
        }
    }

    /// Returns the processes of the try that this process may examine.
    pub fn processes(&self) -> Vec<RunningProcess> {
        let directory = self.overlay_directory();
        let own = std::process::id() as i32;
        let mut found: Vec<_> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| *pid != own && is_confined(*pid) && has_files_of(*pid, &directory))
            .map(RunningProcess::of)
            .collect();
        found.sort_by_key(|process| process.pid);
        found
    }

    /// Sends SIGTERM to a process if it is one of the try.
    pub fn terminate(&self, process: &RunningProcess) {
        self.signal(process, Signal::TERM);
    }

    /// Sends SIGKILL to a process if it is one of the try.
    pub fn kill(&self, process: &RunningProcess) {
        self.signal(process, Signal::KILL);
    }

    fn signal(&self, process: &RunningProcess, signal: Signal) {
        let Some(pid) = Pid::from_raw(process.pid) else { return };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // It is examined again: the number may be another process's by now.
        if has_files_of(process.pid, &self.overlay_directory()) {
            let _ = pidfd_send_signal(fd, signal);
        }
    }

    /// Error of an operation on a try whose processes have not ended.
    pub fn still_running(&self) -> Error {
        let processes = list_processes(&self.processes());
        let processes = if processes.is_empty() { processes } else { format!(" ({processes})") };
        Error::Running { id: self.meta.id.clone(), processes }
    }
}

/// Names processes in one line.
pub fn list_processes(processes: &[RunningProcess]) -> String {
    let shown = processes.iter().take(LISTED_MAX);
    let mut words: Vec<_> = shown
        .map(|process| format!("{} {}", process.pid, printed_name(Path::new(&process.name))))
        .collect();
    if processes.len() > LISTED_MAX {
        words.push(format!("and {} more", processes.len() - LISTED_MAX));
    }
    words.join(", ")
}

impl RunningProcess {
    fn of(pid: i32) -> Self {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned();
        RunningProcess { pid, name }
    }
}

/// True if the process has what each process of a try has: no new privileges, and a filter.
fn is_confined(pid: i32) -> bool {
    let Ok(status) = fs::read(format!("/proc/{pid}/status")) else { return false };
    let has =
        |line: &str| status.split(|byte| *byte == b'\n').any(|found| found == line.as_bytes());
    // Not of Linux before 4.10, which has no Landlock either.
    has("NoNewPrivs:\t1") && has("Seccomp:\t2")
}

/// True if the process maps, has open or executes a file below the directory.
fn has_files_of(pid: i32, directory: &Path) -> bool {
    let is_below = |path: &Path| path.starts_with(directory);
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut mapped = maps.split(|byte| *byte == b'\n').filter_map(|line| {
        line.iter().position(|byte| *byte == b'/').map(|start| unescape(&line[start..]))
    });
    let mut links = ["cwd", "root", "exe"].map(|link| format!("/proc/{pid}/{link}")).into_iter();
    let mut open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    mapped.any(|path| is_below(&path))
        || links.any(|link| fs::read_link(link).is_ok_and(|path| is_below(&path)))
        || open.any(|entry| fs::read_link(entry.path()).is_ok_and(|path| is_below(&path)))
}

/// Path of a line of `/proc/PID/maps`, in which a newline is written as `\\012`.
fn unescape(path: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, behind)) = rest.split_first() {
        match rest.strip_prefix(br"\012") {
            Some(behind) => {
                out.push(b'\n');
                rest = behind;
            }
            None => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newlines_in_mapped_paths_are_read() {
        assert_eq!(unescape(br"/a\012b\c"), Path::new("/a\nb\\c"));
    }

    #[test]
    fn a_try_without_processes_is_locked() {
        let path = tempfile::tempdir().expect("a directory");
        let store = crate::Store::new(Some(path.path())).expect("given");
        let (tried, lock) = store.create(vec!["x".into()], Path::new("/")).expect("new");
        assert!(tried.is_running());
        assert!(matches!(tried.lock_ended(), Err(Error::Running { .. })));
        drop(lock);
        assert!(!tried.is_running() && tried.processes().is_empty());
        let filter = File::open(tried.overlay_directory().join(FILTER)).expect("it is there");
        flock(&filter, FlockOperation::LockShared).expect("it is not locked");
        assert!(tried.is_running());
        assert!(matches!(tried.lock_ended(), Err(Error::Running { .. })));
        drop(filter);
        let _lock = tried.lock_ended().expect("none runs");
    }
}
