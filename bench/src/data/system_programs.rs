//! Small questions to the system: programs, free memory file system, last words.

use std::fs::{self, Permissions};
use std::io::{Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// The path of a program, in PATH or in the system directories that an ordinary user's PATH may
/// lack.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
}

/// The path of a program that the harness itself needs.
///
/// # Errors
/// [`Error::NoProgram`].
pub fn require_program(name: &str, package: &str) -> Result<PathBuf, Error> {
    find_program(name)
        .ok_or_else(|| Error::NoProgram { program: name.to_owned(), package: package.to_owned() })
}

/// The last line that is not empty: where programs put the reason.
pub fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("no message").trim().to_owned()
}

/// Runs a program of the harness itself, without input.
///
/// # Errors
/// [`Error::Helper`], or it cannot be run.
pub fn run_helper(program: &'static str, command: Command, path: &Path) -> Result<(), Error> {
    run_helper_on(program, command, path, Stdio::null()).map(drop)
}

/// Runs a helper with this input; gives what it said on standard error.
///
/// # Errors
/// [`Error::Helper`], or it cannot be run.
pub fn run_helper_on(
    program: &'static str,
    mut command: Command,
    path: &Path,
    input: Stdio,
) -> Result<Vec<u8>, Error> {
    let output = command
        .stdin(input)
        .stdout(Stdio::null())
        .output()
        .map_err(Error::system("run", PathBuf::from(program)))?;
    if output.status.success() {
        return Ok(output.stderr);
    }
    let message = last_line(&output.stderr);
    Err(Error::Helper { program, status: output.status, path: path.to_owned(), message })
}

/// A file without a name, to be read from its start.
///
/// # Errors
/// There is no room for temporary files.
pub fn script(text: &str) -> Result<fs::File, Error> {
    let failed = || Error::system("write a file in", std::env::temp_dir());
    let mut file = tempfile::tempfile().map_err(failed())?;
    file.write_all(text.as_bytes()).and_then(|()| file.rewind()).map_err(failed())?;
    Ok(file)
}

/// Lets other users through a directory of ours to what they may use.
///
/// # Errors
/// It is not ours.
pub fn let_through(dir: &Path) -> Result<(), Error> {
    fs::set_permissions(dir, Permissions::from_mode(0o711))
        .map_err(Error::system("change the mode of", dir))
}

/// How often anybody has dropped the kernel's caches since it started.
pub fn times_caches_dropped() -> u64 {
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let dropped = counters.lines().filter_map(|line| line.strip_prefix("drop_"));
    dropped.filter_map(|line| line.split_once(' ')?.1.trim().parse::<u64>().ok()).sum()
}

/// Refuses a file system with less than `need` bytes free.
///
/// # Errors
/// [`Error::NoSpace`].
pub fn require_space(dir: &Path, need: u64) -> Result<(), Error> {
    let stat = rustix::fs::statvfs(dir).map_err(|e| Error::system("look at", dir)(e.into()))?;
    let free = stat.f_bavail * stat.f_frsize;
    if free >= need {
        return Ok(());
    }
    Err(Error::NoSpace { path: dir.to_owned(), free_mib: free >> 20, need_mib: need >> 20 })
}

/// Two processors that this process may use, or none if there are not two.
pub fn two_processors() -> (Option<usize>, Option<usize>) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return (None, None) };
    let mut found = (0..rustix::thread::CpuSet::MAX_CPU).filter(|n| allowed.is_set(*n));
    match (found.next(), found.next()) {
        (first, second @ Some(_)) => (first, second),
        _ => (None, None),
    }
}
