//! A control group that limits the memory of a command, runahead included.
//!
//! Invariant: a control group is empty when it is removed, and is removed after any end of the run.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Failure};

/// Time in which the kernel sees that a group is empty.
const PATIENCE: Duration = Duration::from_secs(5);

/// A control group of its own. Dropping it removes it.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
}

impl Group {
    /// A group that may have so many bytes of memory, and no swap or any amount of it. Fails with
    /// [`Failure::NoControl`] if there is no memory controller, or it cannot be used.
    pub fn with_memory(bytes: u64, swaps: bool) -> Result<Self, Error> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let refused = |what: String| Failure::NoControl(what);
        let Some(Controller { root, limit, swap }) = controller(&mounts) else {
            return Err(refused("none is mounted".into()).into());
        };
        let dir = root.join(format!("runahead-bench-{}", std::process::id()));
        let failed = |what: &Path| {
            let what = what.display().to_string();
            move |e: io::Error| Error::from(refused(format!("{what}: {e}")))
        };
        // On the unified hierarchy a group has the controller only if its parent hands it on.
        if limit == UNIFIED {
            let hand_on = root.join("cgroup.subtree_control");
            fs::write(&hand_on, "+memory").map_err(failed(&hand_on))?;
        }
        fs::create_dir(&dir).map_err(failed(&dir))?;
        let group = Self { dir };
        let file = group.dir.join(limit);
        fs::write(&file, bytes.to_string()).map_err(failed(&file))?;
        // Where there is no swap there is no such file.
        if !swaps {
            let _ = fs::write(group.dir.join(swap), "0");
        }
        Ok(group)
    }

    /// Words that execute what follows them in the group.
    pub fn words(&self) -> Vec<OsString> {
        let enter = "echo $$ >\"$0\" && exec \"$@\"";
        vec!["sh".into(), "-c".into(), enter.into(), self.dir.join("cgroup.procs").into()]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let give_up = Instant::now() + PATIENCE;
        while let Err(e) = fs::remove_dir(&self.dir) {
            if e.kind() == io::ErrorKind::NotFound || Instant::now() >= give_up {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Directory of groups, and the names of their files.
#[derive(Debug, PartialEq)]
pub struct Controller {
    pub root: PathBuf,
    limit: &'static str,
    swap: &'static str,
}

const UNIFIED: &str = "memory.max";

/// The memory controller that is mounted by itself, else the unified hierarchy.
pub fn controller(mounts: &str) -> Option<Controller> {
    let lines: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
    let find = |kind: &str, option: &str| {
        let is_one = |line: &&Vec<&str>| {
            line.get(2) == Some(&kind)
                && (option.is_empty()
                    || line.get(3).is_some_and(|o| o.split(',').any(|o| o == option)))
        };
        lines.iter().find(is_one).map(|line| PathBuf::from(line[1]))
    };
    let own = find("cgroup", "memory").map(|root| Controller {
        root,
        limit: "memory.limit_in_bytes",
        swap: "memory.swappiness",
    });
    own.or_else(|| {
        let root = find("cgroup2", "")?;
        Some(Controller { root, limit: UNIFIED, swap: "memory.swap.max" })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_found_on_either_hierarchy() {
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let apart = "cgroup /c/cpu cgroup rw,cpu 0 0\ncgroup /c/memory cgroup rw,memory 0 0\n";
        assert_eq!(controller(unified).unwrap().root, Path::new("/sys/fs/cgroup"));
        assert_eq!(controller(unified).unwrap().limit, UNIFIED);
        assert_eq!(controller(&format!("{unified}{apart}")).unwrap().root, Path::new("/c/memory"));
        assert_eq!(controller("proc /proc proc rw 0 0\n"), None);
    }
}
