//! What a command can be put into, with runahead and all: another user's rights, a control group with
//! little memory.
//!
//! Invariant: a control group is empty when it is removed, and is removed whatever happens to the run.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::data::job::Job;
use crate::error::{Error, Failure};

/// The user and group of nobody.
pub const NOBODY: u32 = 65534;

/// How long the kernel may take to see that a group is empty.
const PATIENCE: Duration = Duration::from_secs(5);

/// Words that make what follows them nobody's.
pub fn nobody() -> Vec<OsString> {
    let [user, group] = ["u", "g"].map(|of| OsString::from(format!("--re{of}id={NOBODY}")));
    vec!["setpriv".into(), user, group, "--clear-groups".into()]
}

/// Makes a file or directory nobody's.
///
/// # Errors
/// We are not root.
pub fn give(path: &Path) -> Result<(), Error> {
    chown(path, Some(NOBODY), Some(NOBODY)).map_err(Error::system("change the owner of", path))
}

/// What was `removed` need not have been there.
fn is_gone(removed: io::Result<()>, path: &Path) -> Result<(), Error> {
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::system("remove", path)(e)),
        _ => Ok(()),
    }
}

/// A new, empty file for what stands in front of `job` to write, whoever that will be.
///
/// # Errors
/// It cannot be made.
pub fn file(dir: &Path, job: &Job, name: &str) -> Result<PathBuf, Error> {
    let path = dir.join(name);
    is_gone(fs::remove_file(&path), &path)?;
    if job.owner.is_some() {
        File::create(&path).map_err(Error::system("create", &path))?;
        give(&path)?;
    }
    Ok(path)
}

/// A new, empty directory for the same, where that writes beside what it replaces.
///
/// # Errors
/// It cannot be made.
pub fn directory(dir: &Path, job: &Job, name: &str) -> Result<PathBuf, Error> {
    let path = dir.join(name);
    is_gone(fs::remove_dir_all(&path), &path)?;
    fs::create_dir(&path).map_err(Error::system("create", &path))?;
    if job.owner.is_some() {
        give(&path)?;
    }
    Ok(path)
}

/// The program under test; a copy of it in `dir` for a user who may not be let through to it.
///
/// # Errors
/// It cannot be copied.
pub fn usable(runahead: Option<&Path>, job: &Job, dir: &Path) -> Result<Option<PathBuf>, Error> {
    let Some(runahead) = runahead.filter(|_| job.owner.is_some()) else {
        return Ok(runahead.map(Path::to_owned));
    };
    let copy = dir.join("runahead");
    fs::copy(runahead, &copy)
        .and_then(|_| fs::set_permissions(&copy, Permissions::from_mode(0o755)))
        .map_err(Error::system("copy to", &copy))?;
    Ok(Some(copy))
}

/// A control group of its own. Dropping it removes it.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
}

impl Group {
    /// One that may have so many bytes of memory, and no swap, or any.
    ///
    /// # Errors
    /// [`Failure::NoControl`]: there is no memory controller, or it cannot be used.
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
        // On the unified hierarchy groups have it only where their parent hands it on.
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

    /// Words that put what follows them into it.
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

/// Where groups are made, and how their files are called.
#[derive(Debug, PartialEq)]
struct Controller {
    root: PathBuf,
    limit: &'static str,
    swap: &'static str,
}

const UNIFIED: &str = "memory.max";

/// The memory controller that is mounted by itself, else the unified hierarchy.
fn controller(mounts: &str) -> Option<Controller> {
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
    use crate::data::job::Kind;
    use crate::measure::command_runner::Runner;

    #[test]
    fn another_users_files_and_runahead_are_its_own() {
        use std::os::unix::fs::MetadataExt;
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can become another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        fs::write(&closed, "program").unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
        let own = Job::new("id", "coreutils", Path::new("/")).args(["-u"]);
        assert_eq!(usable(Some(&closed), &own, dir.path()).unwrap().as_ref(), Some(&closed));
        let job = Job { around: nobody(), owner: Some(NOBODY), ..own };
        let copy = usable(Some(&closed), &job, dir.path()).unwrap().unwrap();
        assert_eq!(fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(file(dir.path(), &job, "f").unwrap()).unwrap().uid(), NOBODY);
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let outcome = runner.run(&job, Kind::Plain, &[]).unwrap();
        assert_eq!(fs::read_to_string(outcome.files.stdout).unwrap(), "65534\n");
    }

    #[test]
    fn a_controller_is_found_on_either_hierarchy() {
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let apart = "cgroup /c/cpu cgroup rw,cpu 0 0\ncgroup /c/memory cgroup rw,memory 0 0\n";
        assert_eq!(controller(unified).unwrap().root, Path::new("/sys/fs/cgroup"));
        assert_eq!(controller(unified).unwrap().limit, UNIFIED);
        assert_eq!(controller(&format!("{unified}{apart}")).unwrap().root, Path::new("/c/memory"));
        assert_eq!(controller("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn a_group_limits_what_runs_in_it_and_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner { out: dir.path().into(), limit: Duration::from_secs(60) };
        let run = |script: &str| {
            let job = Job::new("sh", "dash", Path::new("/")).args(["-c", script]);
            runner.run(&Job { memory: Some(32 << 20), ..job }, Kind::Plain, &[])
        };
        let told = match run("cat /proc/self/cgroup") {
            Err(Error::Failure(Failure::NoControl(why))) => {
                println!("skipped: {why}");
                return;
            }
            other => other.unwrap(),
        };
        let text = fs::read_to_string(told.files.stdout).unwrap();
        assert!(text.contains("runahead-bench-"), "{text}");
        // 100 MB in the memory of a process that may have 32.
        let hog = run("x=$(head -c 100000000 /dev/zero | tr '\\0' a); echo ${#x}").unwrap();
        assert_ne!(hog.exit, "exit 0");
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let left = controller(&mounts)
            .unwrap()
            .root
            .join(format!("runahead-bench-{}", std::process::id()));
        assert!(!left.exists());
    }
}
