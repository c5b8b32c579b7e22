//! Slow disk of one worker, with a suite on it, cold before every half.
//!
//! Invariant: cold means mounted anew. Nothing of the file system is then in memory (neither data
//! nor names nor its block device's), and nothing of the rest of the machine is forgotten, so that
//! workers do not disturb each other. The time that this takes is spent with the delay off.

use std::fs::{self, File};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use runahead_harness::{helper_text, remove, run_helper};
use runahead_testbed::{Disk, DiskOptions};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::error::Error;
use crate::pristine_tree::{Pristine, UNPRIVILEGED};
use crate::suite_cache::PreparedSuite;

const BYTES: u64 = 4 << 30;
const PARALLEL: u32 = 64;
/// Time in which namespaces end after their last process.
const PATIENCE: Duration = Duration::from_secs(20);

/// A slow disk of one worker.
pub struct SlowDisk {
    disk: Disk,
    dir: PathBuf,
    node: PathBuf,
    /// Keeps the loop device, which goes with its last user, while nothing is mounted.
    device: File,
    pristine: Option<Pristine>,
    grows: Option<&'static str>,
}

impl SlowDisk {
    /// Brings one up at `dir`, which is created, with a copy of the suite.
    pub fn up(dir: &Path, ready: &PreparedSuite, latency: Duration) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(Error::system("create", dir))?;
        let options = DiskOptions {
            backing_dir: backing_dir(),
            ..DiskOptions::new(dir).size(BYTES).parallel(latency, PARALLEL).delay(false)
        };
        let disk = Disk::up(&options)?;
        let mut findmnt = Command::new("findmnt");
        findmnt.args(["--noheadings", "--output=SOURCE"]).arg(dir);
        let node: PathBuf = helper_text(&mut findmnt)?.into();
        let device = File::open(&node).map_err(Error::system("open", &node))?;
        let to = dir.join("tree");
        run_helper(Command::new("cp").arg("-a").args([&ready.tree, &to]))?;
        let pristine = match ready.suite.writes {
            true => {
                run_helper(Command::new("chown").args(["-R", "-h", "65534:65534"]).arg(&to))?;
                Some(Pristine::of(&ready.tree)?)
            }
            false => None,
        };
        let grows = ready.suite.grows;
        Ok(Self { disk, dir: dir.to_owned(), node, device, pristine, grows })
    }

    /// Mount point; `tree` and `work` are in it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the suite's tree as in the cache, and an empty directory to work in, with nothing in
    /// memory and the delay on.
    pub fn fresh(&self) -> Result<(), Error> {
        self.disk.set_delay(false)?;
        let work = self.dir.join("work");
        // Directories that their owner made unreadable do not stop root.
        remove(&work)?;
        if let Some(pristine) = &self.pristine {
            pristine.restore(&self.dir.join("tree"))?;
        }
        for dir in [work.clone(), work.join("tmp")] {
            fs::create_dir(&dir).map_err(Error::system("create", &dir))?;
            chown(&dir, Some(UNPRIVILEGED), Some(UNPRIVILEGED))
                .map_err(Error::system("give away", &dir))?;
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))
                .map_err(Error::system("set the mode of", &dir))?;
        }
        if let Some(name) = self.grows {
            let (from, to) = (self.dir.join("tree").join(name), work.join(name));
            run_helper(Command::new("cp").arg("-al").args([&from, &to]))?;
            let chown = ["-type", "d", "-exec", "chown", "65534:65534", "{}", "+"];
            run_helper(Command::new("find").arg(&to).args(chown))?;
        }
        self.mount_anew()?;
        self.disk.set_delay(true)?;
        Ok(self.disk.reset_stats()?)
    }

    /// Returns the requests since it was made fresh, and switches the delay off.
    pub fn requests(&self) -> Result<u64, Error> {
        let requests = self.disk.stats()?.requests;
        self.disk.set_delay(false)?;
        Ok(requests)
    }

    /// Takes it down.
    pub fn down(self) -> Result<(), Error> {
        drop(self.device);
        Ok(self.disk.down()?)
    }

    fn mount_anew(&self) -> Result<(), Error> {
        self.unmount()?;
        let released = self.released();
        if released.is_ok() {
            // The device's own pages, which hold the file system's tables.
            rustix::fs::fadvise(&self.device, 0, None, rustix::fs::Advice::DontNeed)
                .map_err(|e| Error::system("forget the pages of", &self.node)(e.into()))?;
        }
        // Another process that tried to take this device for a disk holds it until its attempt
        // fails.
        self.patiently("mount", &self.node, || {
            rustix::mount::mount(&self.node, &self.dir, "ext4", MountFlags::empty(), None)
        })?;
        released
    }

    /// Unmounts it here. A process that looks at all mounts, as for a new namespace, keeps each
    /// busy for a moment.
    fn unmount(&self) -> Result<(), Error> {
        self.patiently("unmount", &self.dir, || {
            rustix::mount::unmount(&self.dir, UnmountFlags::empty())
        })
    }

    /// Does `step`, to `path`, again as long as something is busy.
    fn patiently(
        &self,
        what: &'static str,
        path: &Path,
        step: impl Fn() -> rustix::io::Result<()>,
    ) -> Result<(), Error> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match step() {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::BUSY) if Instant::now() < give_up => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(rustix::io::Errno::BUSY) => return Err(Error::Busy(self.dir.clone())),
                Err(e) => return Err(Error::system(what, path)(e.into())),
            }
        }
    }

    /// Waits until no namespace has it mounted any more: until then it would not be mounted anew
    /// but once more.
    fn released(&self) -> Result<(), Error> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let alone = File::options()
                .read(true)
                .custom_flags(rustix::fs::OFlags::EXCL.bits() as i32)
                .open(&self.node);
            match alone {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() != std::io::ErrorKind::ResourceBusy => {
                    return Err(Error::system("open", &self.node)(e));
                }
                Err(_) if Instant::now() > give_up => return Err(Error::Busy(self.dir.clone())),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

/// Directory for the disk's bytes: in memory if there is much, so that no unit waits for the
/// machine's own disk.
fn backing_dir() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    if free > BYTES { memory.to_owned() } else { "/var/tmp".into() }
}
