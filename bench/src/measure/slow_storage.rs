//! A slow storage with the tree on it, brought up, filled and taken down.
//!
//! Invariant: all of it (mount points, outputs, archive, the bytes of disks, the source of a share)
//! lies in one directory in memory, so that no run waits for the machine's own disk, and that
//! directory is gone at the end.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_testbed::model::Service;
use runahead_testbed::{Disk, DiskOptions, Share, ShareOptions, Stats, Storage};
use tempfile::TempDir;

use crate::data::copy_tree::{self as copy, Census, Links};
use crate::data::datasets::{self as data, Data};
use crate::data::job;
use crate::data::linux_source::{self as source, Source};
use crate::data::progress::{self, Unit};
use crate::data::share_programs::App;
use crate::data::system_programs as sys;
use crate::error::Error;
use crate::rows::catalog::Row;
use crate::rows::commands::{DATA, DATA_BYTES, GIT_DIR, REPO, TREE};
use crate::rows::storages::Place;

/// Of the disk with the whole source, twice in its git repository. What is not used takes no space.
const LARGE: u64 = 8 << 30;

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
        // Some rows' commands are another user's.
        sys::let_through(dir.path())?;
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
    /// The tree; of a large disk, without `quick`, all of what the tree is a part of.
    pub source: &'a Source,
    /// At most so many files of it.
    pub files: usize,
    /// Whether it is a git repository, too.
    pub repository: Repository,
    /// What is installed where there are programs instead of a tree.
    pub apps: &'a [App],
    /// What rows work on that have data of their own, instead of all this; and where they are.
    pub data: Option<(Data, &'a Path)>,
    /// Little latency.
    pub quick: bool,
}

/// A git repository on a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repository {
    /// There is none.
    None,
    /// The tree a second time, as [`REPO`].
    Copy,
    /// The tree itself, with [`GIT_DIR`] beside it.
    Apart,
}

/// A storage that is up and filled.
pub struct Site {
    slow: Slow,
    census: Census,
    /// Whether that is of data instead of the tree.
    has_data: bool,
    /// What the share shows, to be removed with it.
    source: Option<PathBuf>,
}

enum Slow {
    Disk(Disk),
    Share(Share),
    /// Nothing that could be slow.
    Memory(PathBuf),
}

impl Site {
    /// Brings it up with the delay off.
    ///
    /// # Errors
    /// The testbed's, or copying failed; then nothing is left up.
    pub fn up(scratch: &Scratch, place: Place, content: Content<'_>) -> Result<Self, Error> {
        // Each place has its own: one that could not be taken down is not in another's way.
        let dir = scratch.path().join(place.name());
        fs::create_dir_all(&dir).map_err(Error::system("create", &dir))?;
        let service = place.service(content.quick);
        if place == Place::Memory {
            let (slow, census) = (Slow::Memory(dir), Census::default());
            return Ok(Self { slow, census, has_data: false, source: None });
        }
        if let (Place::Share | Place::Apps, Service::Parallel { latency, parallel }) =
            (place, service)
        {
            let source = scratch.path().join("source");
            fs::create_dir_all(&source).map_err(Error::system("create", &source))?;
            let census = fill(&source, place, content)?;
            let options = ShareOptions::new(&source, &dir).parallel(latency, parallel);
            let slow = Slow::Share(Share::up(&options.delay(false))?);
            return Ok(Self { slow, census, has_data: false, source: Some(source) });
        }
        let options = DiskOptions {
            service,
            backing_dir: scratch.path().to_owned(),
            ..DiskOptions::new(&dir).delay(false)
        };
        let size = match content.data {
            Some((data, _)) => options.size.max(data.space(content.quick)),
            None if place == Place::Large => LARGE,
            None => options.size,
        };
        let options = options.size(size);
        let disk = Disk::up(&options)?;
        let census = fill(&dir, place, content)?;
        checkpoint(&dir)?;
        let has_data = content.data.is_some();
        Ok(Self { slow: Slow::Disk(disk), census, has_data, source: None })
    }

    /// Where it is mounted.
    pub fn root(&self) -> &Path {
        match &self.slow {
            Slow::Memory(dir) => dir,
            Slow::Disk(disk) => disk.storage().dir(),
            Slow::Share(share) => share.storage().dir(),
        }
    }

    /// What a row works on, if that is not the tree that all have.
    ///
    /// # Errors
    /// It cannot be listed.
    pub fn content(&self, row: &Row) -> Result<Option<Census>, Error> {
        match (row.place, row.work.app(), &self.source) {
            // Beside the share, and so without waiting.
            (Place::Apps, Some(app), Some(source)) => {
                copy::census(&source.join(app.dir()), usize::MAX).map(Some)
            }
            (Place::Large, ..) => Ok(Some(self.census.clone())),
            _ if self.has_data => Ok(Some(self.census.clone())),
            _ => Ok(None),
        }
    }

    /// Switches the delay.
    ///
    /// # Errors
    /// The testbed's.
    pub fn set_delay(&self, on: bool) -> Result<(), Error> {
        self.storage().map_or(Ok(()), |storage| Ok(storage.set_delay(on)?))
    }

    /// Leaves nothing of it in memory.
    ///
    /// # Errors
    /// The testbed's.
    pub fn make_cold(&self) -> Result<(), Error> {
        self.storage().map_or(Ok(()), |storage| Ok(storage.make_cold()?))
    }

    /// Counts from now on.
    ///
    /// # Errors
    /// The testbed's.
    pub fn reset_stats(&self) -> Result<(), Error> {
        self.storage().map_or(Ok(()), |storage| Ok(storage.reset_stats()?))
    }

    /// What it was asked since.
    ///
    /// # Errors
    /// The testbed's.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.storage().map_or_else(|| Ok(Stats::default()), |storage| Ok(storage.stats()?))
    }

    /// Takes it down. Dropping does so too, but has nobody to tell what went wrong.
    ///
    /// # Errors
    /// The testbed's, or what it showed cannot be removed.
    pub fn down(self) -> Result<(), Error> {
        match self.slow {
            Slow::Disk(disk) => disk.down()?,
            Slow::Share(share) => share.down()?,
            Slow::Memory(dir) => remove(&dir)?,
        }
        self.source.as_deref().map_or(Ok(()), remove)
    }

    fn storage(&self) -> Option<&Storage> {
        match &self.slow {
            Slow::Disk(disk) => Some(disk.storage()),
            Slow::Share(share) => Some(share.storage()),
            Slow::Memory(_) => None,
        }
    }
}

fn remove(dir: &Path) -> Result<(), Error> {
    fs::remove_dir_all(dir).map_err(Error::system("remove", dir))
}

fn fill(root: &Path, place: Place, content: Content<'_>) -> Result<Census, Error> {
    if let Some((data, made)) = content.data {
        let (to, clock) = (root.join(data.dir()), progress::clock("copying what the rows work on"));
        data::copy(made, &to)?;
        clock.finish_and_clear();
        return copy::census(&to, usize::MAX);
    }
    match place {
        Place::Apps => {
            let clock = progress::clock("installing programs on the share");
            content.apps.iter().try_for_each(|app| app.install(root))?;
            clock.finish_and_clear();
            return copy::census(root, usize::MAX);
        }
        Place::Large if !content.quick => source::unpack_whole(&root.join(TREE))?,
        _ => copy_source(root, content)?,
    }
    if place == Place::Disk {
        let data = root.join(DATA);
        fs::write(&data, vec![7; DATA_BYTES]).map_err(Error::system("write", &data))?;
    }
    if content.repository == Repository::Apart {
        make_repository(&root.join(TREE), Some(&root.join(GIT_DIR)))?;
    }
    copy::census(&root.join(TREE), usize::MAX)
}

fn copy_source(root: &Path, content: Content<'_>) -> Result<(), Error> {
    let twice = content.repository == Repository::Copy;
    let source = &content.source.root;
    let total = copy::census(source, content.files)?.files;
    let total = if twice { 2 * total } else { total };
    let bar = progress::bar("copying the tree", total as u64, Unit::Files);
    copy::copy_tree(source, &root.join(TREE), content.files, Links::Keep, &bar)?;
    if twice {
        let repo = root.join(REPO);
        copy::copy_tree(source, &repo, content.files, Links::Keep, &bar)?;
        make_repository(&repo, None)?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Commits everything, and leaves an index that needs no refreshing. The git directory is in `dir`
/// or, so that other commands do not see it there, `apart`.
fn make_repository(dir: &Path, apart: Option<&Path>) -> Result<(), Error> {
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
    let clock = progress::clock("making a git repository of the tree");
    for step in steps {
        let mut command = Command::new("git");
        if let Some(apart) = apart {
            let mut option = OsString::from("--git-dir=");
            option.push(apart);
            // Fast, because objects are never read in a measurement.
            command.arg(option).args(["--work-tree=.", "-c", "core.looseCompression=1"]);
        }
        command.args(identity).args(step).current_dir(dir);
        job::set_environment(&mut command);
        sys::run_helper("git", command, dir)?;
    }
    clock.finish_and_clear();
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
        sys::run_helper("fsfreeze", command, dir)?;
    }
    Ok(())
}
