//! Looking at processes through `/proc`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Every process there is.
pub fn all() -> impl Iterator<Item = i32> {
    let dir = std::fs::read_dir("/proc").expect("/proc is mounted");
    dir.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The parent of `pid`; `None` when it is gone.
pub fn parent(pid: i32) -> Option<i32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// The process group of `pid`; `None` when it is gone.
fn group(pid: i32) -> Option<i32> {
    stat(pid)?.get(2)?.parse().ok()
}

/// The state letter of proc_pid_stat(5), `Z` for a zombie; `None` when it is gone.
pub fn state(pid: i32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

/// The fields behind the name, which may itself hold spaces and parentheses.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// The program that `pid` runs; `None` when it is gone or a zombie.
pub fn program(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The words of the command line of `pid`; empty when it is gone or a zombie.
pub fn command_line(pid: i32) -> Vec<OsString> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.strip_suffix(b"\0").unwrap_or_default().split(|byte| *byte == 0);
    words.map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

/// Processes, zombies aside, that run `program`.
pub fn running(program: &std::path::Path) -> Vec<i32> {
    let path = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    all().filter(|&pid| self::program(pid).as_ref() == Some(&path)).collect()
}

/// State, call and kernel stack of each thread of the process group `group`, to find out why it
/// does not end. Only root may read kernel stacks.
pub fn describe(group: i32) -> String {
    let mut text = String::new();
    for pid in all().filter(|&pid| self::group(pid) == Some(group)) {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        let state = state(pid).unwrap_or('?');
        for task in tasks.flatten().map(|task| task.path()) {
            let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
            let [name, call, stack] = ["comm", "syscall", "stack"].map(read);
            text += &format!("{} {state} {} {}\n{stack}", task.display(), name.trim(), call.trim());
        }
    }
    text
}

/// Waits until `done`, for at most 10 s; false if it did not come to that.
pub fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + Duration::from_secs(10);
    while !done() {
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Sends a signal; true if the process existed.
pub fn kill(pid: i32, signal: i32) -> bool {
    // SAFETY: kill(2) has no memory to get wrong.
    unsafe { libc::kill(pid, signal) == 0 }
}
