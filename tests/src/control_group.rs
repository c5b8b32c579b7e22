//! A control group with a limit, of either version (cgroups(7)).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Run;

/// A group below this process's own; removed when dropped, once its processes have ended.
pub struct Group {
    dir: PathBuf,
}

/// Group of this process for `controller`, and true if that is of cgroup version 1.
fn own(controller: &str) -> Result<(PathBuf, bool), String> {
    let text = fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("no groups: {e}"))?;
    let path = |line: &str| line.splitn(3, ':').nth(2).unwrap_or("").trim_matches('/').to_owned();
    let controls = |line: &&str| {
        line.split(':').nth(1).is_some_and(|list| list.split(',').any(|name| name == controller))
    };
    let first = text.lines().find(controls);
    if let Some(line) = first {
        return Ok((Path::new("/sys/fs/cgroup").join(controller).join(path(line)), true));
    }
    let second = text.lines().find(|line| line.starts_with("0::"));
    let line = second.ok_or("this process is in no group")?;
    Ok((Path::new("/sys/fs/cgroup").join(path(line)), false))
}

impl Group {
    /// Makes a group with a limit of `bytes` of memory; the error is the reason to skip.
    pub fn new(name: &str, bytes: u64) -> Result<Self, String> {
        let group = Group::swapping(name, bytes)?;
        // With swap, the program would not meet its limit but wait for the machine's swap device.
        // Each version of control groups has one of these files.
        let files = ["memory.swappiness", "memory.swap.max"].map(|name| group.dir.join(name));
        for file in files.iter().filter(|file| file.exists()) {
            let refused = |e| format!("{} cannot be set: {e}", file.display());
            fs::write(file, "0").map_err(refused)?;
        }
        Ok(group)
    }

    /// Makes a group with a limit of `bytes` of memory, beyond which memory is swapped out; the
    /// error is the reason to skip.
    pub fn swapping(name: &str, bytes: u64) -> Result<Self, String> {
        Group::limited(name, "memory", ["memory.limit_in_bytes", "memory.max"], bytes)
    }

    /// Makes a group with a limit of `tasks` processes and threads; the error is the reason to
    /// skip.
    pub fn of_tasks(name: &str, tasks: u64) -> Result<Self, String> {
        Group::limited(name, "pids", ["pids.max"; 2], tasks)
    }

    fn limited(name: &str, controller: &str, files: [&str; 2], limit: u64) -> Result<Self, String> {
        let (own, first) = own(controller)?;
        let dir = own.join(format!("runahead-{name}-{}", std::process::id()));
        let refused = |e: io::Error| format!("a group with a limit cannot be made: {e}");
        fs::create_dir(&dir).map_err(refused)?;
        let group = Group { dir };
        let file = if first { files[0] } else { files[1] };
        fs::write(group.dir.join(file), limit.to_string()).map_err(refused)?;
        Ok(group)
    }

    /// Directory of the group.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the command so that it enters the group first.
    pub fn run(&self, run: &Run) -> Run {
        let procs = self.dir.join("cgroup.procs");
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        run.behind(["sh".as_ref(), "-c".as_ref(), enter.as_ref(), procs.as_os_str()])
    }

    /// Number of its processes that were killed for lack of memory.
    pub fn killed(&self) -> u64 {
        let files = ["memory.events", "memory.oom_control"];
        let text = files.iter().find_map(|name| fs::read_to_string(self.dir.join(name)).ok());
        let text = text.expect("the kernel says what it killed");
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok()).expect("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let give_up = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.dir).is_err() && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
