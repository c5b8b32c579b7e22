//! A slow storage with the tree on it, brought up, filled and taken down.
//!
//! Invariant: all of it (mount points, outputs, archive, the bytes of disks, the source of a share)
//! lies in one directory in memory, so that no run waits for the machine's own disk, and that
//! directory is gone at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use runahead_testbed::model::Service;
use runahead_testbed::{Disk, DiskOptions, Share, ShareOptions, Stats, Storage};
use tempfile::TempDir;

use crate::copy::{self, Census};
use crate::error::Error;
use crate::job;
use crate::progress::{self, Unit};
use crate::rows::{Place, REPO, TREE};
use crate::source::Source;
use crate::sys;

/// The system's memory file system.
const MEMORY: &str = "/dev/shm";

/// The one directory in memory.
pub struct Scratch {
    dir: TempDir,
}

impl Scratch {
    /// Makes it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if fewer than `need` bytes are free.
    pub fn new(need: u64) -> Result<Self, Error> {
        let memory = Path::new(MEMORY);
        sys::require_space(memory, need)?;
        let dir = tempfile::Builder::new()
            .prefix("runahead-bench-")
            .tempdir_in(memory)
            .map_err(Error::system("create a directory in", memory))?;
        Ok(Self { dir })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// What to put on a storage.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// The tree.
    pub source: &'a Source,
    /// At most so many files of it.
    pub files: usize,
    /// Whether it is there a second time as a git repository.
    pub repo: bool,
}

/// A storage that is up and filled.
pub struct Site {
    slow: Slow,
    census: Census,
}

enum Slow {
    Disk(Disk),
    Share(Share),
}

impl Site {
    /// Brings it up with the delay off.
    ///
    /// # Errors
    /// The testbed's, or copying failed; then nothing is left up.
    pub fn up(
        scratch: &Scratch,
        service: Service,
        place: Place,
        content: Content<'_>,
    ) -> Result<Self, Error> {
        let dir = scratch.path().join("mnt");
        fs::create_dir_all(&dir).map_err(Error::system("create", &dir))?;
        let (slow, census) = match (place, service) {
            (Place::Share, Service::Parallel { latency, parallel }) => {
                let source = scratch.path().join("source");
                fs::create_dir_all(&source).map_err(Error::system("create", &source))?;
                let census = fill(&source, content)?;
                let options = ShareOptions::new(&source, &dir).parallel(latency, parallel);
                (Slow::Share(Share::up(&options.delay(false))?), census)
            }
            _ => {
                let options = DiskOptions {
                    service,
                    backing_dir: scratch.path().to_owned(),
                    ..DiskOptions::new(&dir).delay(false)
                };
                let disk = Disk::up(&options)?;
                let census = fill(&dir, content)?;
                checkpoint(&dir)?;
                (Slow::Disk(disk), census)
            }
        };
        Ok(Self { slow, census })
    }

    /// Where it is mounted.
    pub fn root(&self) -> &Path {
        self.storage().dir()
    }

    /// What the tree holds.
    pub fn census(&self) -> &Census {
        &self.census
    }

    /// Switches the delay.
    ///
    /// # Errors
    /// The testbed's.
    pub fn set_delay(&self, on: bool) -> Result<(), Error> {
        Ok(self.storage().set_delay(on)?)
    }

    /// Leaves nothing of it in memory.
    ///
    /// # Errors
    /// The testbed's.
    pub fn make_cold(&self) -> Result<(), Error> {
        Ok(self.storage().make_cold()?)
    }

    /// Counts from now on.
    ///
    /// # Errors
    /// The testbed's.
    pub fn reset_stats(&self) -> Result<(), Error> {
        Ok(self.storage().reset_stats()?)
    }

    /// What it was asked since.
    ///
    /// # Errors
    /// The testbed's.
    pub fn stats(&self) -> Result<Stats, Error> {
        Ok(self.storage().stats()?)
    }

    /// Takes it down. Dropping does so too, but has nobody to tell what went wrong.
    ///
    /// # Errors
    /// The testbed's.
    pub fn down(self) -> Result<(), Error> {
        match self.slow {
            Slow::Disk(disk) => disk.down()?,
            Slow::Share(share) => share.down()?,
        }
        Ok(())
    }

    fn storage(&self) -> &Storage {
        match &self.slow {
            Slow::Disk(disk) => disk.storage(),
            Slow::Share(share) => share.storage(),
        }
    }
}

fn fill(root: &Path, content: Content<'_>) -> Result<Census, Error> {
    let copies = if content.repo { 2 } else { 1 };
    let source = &content.source.root;
    let total = copy::regular_files(source, Path::new(""))?.len().min(content.files);
    let bar = progress::bar("copying the tree", (total * copies) as u64, Unit::Files);
    let census = copy::copy_tree(source, &root.join(TREE), content.files, &bar)?;
    if content.repo {
        let repo = root.join(REPO);
        copy::copy_tree(source, &repo, content.files, &bar)?;
        make_repository(&repo)?;
    }
    bar.finish_and_clear();
    Ok(census)
}

/// Commits everything, and leaves an index that needs no refreshing.
fn make_repository(dir: &Path) -> Result<(), Error> {
    sys::require_program("git", "git")?;
    let identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
    let steps: [&[&str]; 6] = [
        &["init", "--quiet"],
        // Or it prints how long it took, whenever that was long.
        &["config", "advice.statusUoption", "false"],
        // Nothing in the background in the middle of a measurement.
        &["config", "gc.auto", "0"],
        &["add", "--all", "--force"],
        &["commit", "--quiet", "--message=tree"],
        &["status", "--short"],
    ];
    for step in steps {
        let mut command = Command::new("git");
        command.args(identity).args(step).current_dir(dir);
        job::set_environment(&mut command);
        run_helper("git", command, dir)?;
    }
    Ok(())
}

/// Moves everything from the journal to its place. Until then the kernel cannot forget these
/// blocks, and the disk would be less than cold.
fn checkpoint(dir: &Path) -> Result<(), Error> {
    let fsfreeze = sys::require_program("fsfreeze", "util-linux")?;
    rustix::fs::sync();
    for how in ["--freeze", "--unfreeze"] {
        let mut command = Command::new(&fsfreeze);
        command.arg(how).arg(dir);
        run_helper("fsfreeze", command, dir)?;
    }
    Ok(())
}

fn run_helper(program: &'static str, mut command: Command, path: &Path) -> Result<(), Error> {
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(Error::system("run", PathBuf::from(program)))?;
    if output.status.success() {
        return Ok(());
    }
    let message = sys::last_line(&output.stderr);
    Err(Error::Helper { program, status: output.status, path: path.to_owned(), message })
}
