//! A slow storage with content on it: brought up, filled and taken down.
//!
//! Invariant: all of it (mount points, outputs, archive, the bytes of disks, the source of a share)
//! lies in one directory in memory, so that no run waits for the machine's own disk, and that
//! directory is gone at the end. Only the disk of everyday rows, 8 GB, lies on the machine's own
//! disk.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_harness::{remove, require_program, require_space, run_helper};
use runahead_testbed::model::Service;
use runahead_testbed::{Disk, DiskOptions, Share, ShareOptions, Stats, Storage, drop_caches};
use tempfile::TempDir;

use crate::data::copy_tree::{self, Links, TreeCensus};
use crate::data::job::set_environment;
use crate::data::linux_source::{self, SourceTree};
use crate::data::progress::{self, Unit};
use crate::data::row_datasets::{self, let_through};
use crate::error::Error;
use crate::measure::busy_processors::Spinners;
use crate::rows::everyday_commands::{IMAGE, OURS};
use crate::rows::row_definition::{Content, Row};
use crate::rows::storage_kinds::{Medium, Place};
use crate::rows::tree_commands::{DATA, DATA_BYTES, GIT_DIR, REPO, TREE};

/// Bytes of the disk with the whole source, twice in its git repository. Unused bytes take no
/// space.
const LARGE: u64 = 8 << 30;
/// Bytes of the disk with a Debian system, with room to spare.
const SYSTEM: u64 = 16 << 30;
/// Bytes of memory for the image of a container, with room to spare.
const IMAGE_BYTES: u64 = 2 << 30;

/// The system's memory file system.
const MEMORY: &str = "/dev/shm";

/// The one directory in memory.
pub struct MemoryDirectory {
    dir: TempDir,
}

impl MemoryDirectory {
    /// A scratch directory with `need` bytes free.
    pub fn new(need: u64) -> Result<Self, Error> {
        let memory = Path::new(MEMORY);
        require_space(memory, need)?;
        let dir = tempfile::Builder::new()
            .prefix("runahead-bench-")
            .tempdir_in(memory)
            .map_err(Error::system("create a directory in", memory))?;
        // Some rows' commands are another user's.
        let_through(dir.path())?;
        Ok(Self { dir })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes its directory for outputs.
    pub fn out(&self) -> Result<PathBuf, Error> {
        let out = self.dir.path().join("out");
        fs::create_dir(&out).map_err(Error::system("create", &out))?;
        Ok(out)
    }
}

/// Content to put on a storage.
#[derive(Clone, Copy)]
pub struct StorageContent<'a> {
    /// The rows that work on the storage, which say what they need on it.
    pub rows: &'a [&'a Row],
    /// The tree; of a large disk, unless `quick`, all of the source that the tree is a part of.
    pub source: &'a SourceTree,
    /// At most so many files of it.
    pub files: usize,
    /// Directory of the dataset, if the rows have one.
    pub made: Option<&'a Path>,
    /// Directory of the Debian system for everyday rows, and the directory to show in it.
    pub system: Option<(&'a Path, &'a Path)>,
    /// True for little latency.
    pub quick: bool,
}

impl StorageContent<'_> {
    fn has(&self, content: Content) -> bool {
        self.rows.iter().any(|row| row.content == content)
    }
}

/// A storage that is up and filled. Dropping it takes it down.
pub struct FilledStorage {
    root: PathBuf,
    slow: SlowMedium,
    census: TreeCensus,
    /// Mount points below the root, to be unmounted first.
    mounted: Vec<PathBuf>,
    /// Directory that the share shows, to be removed with it.
    source: Option<PathBuf>,
    spinners: Option<Spinners>,
}

enum SlowMedium {
    Disk(Disk),
    Share(Share),
    /// Memory: nothing that could be slow.
    None,
}

impl FilledStorage {
    /// Brings it up with the delay off. After an error nothing is left up.
    pub fn up(
        scratch: &MemoryDirectory,
        place: &Place,
        filling: StorageContent<'_>,
    ) -> Result<Self, Error> {
        // Each place has its own: one that could not be taken down is not in another's way.
        let root = scratch.path().join(place.name);
        fs::create_dir_all(&root).map_err(Error::system("create", &root))?;
        let (slow, census, mounted) = (SlowMedium::None, TreeCensus::default(), Vec::new());
        let mut site = Self { root, slow, census, mounted, source: None, spinners: None };
        match (place.medium, place.service(filling.quick)) {
            (Medium::Disk, service) => site.up_disk(scratch, place, service, filling)?,
            (Medium::Share, Service::Parallel { latency, parallel }) => {
                let source = scratch.path().join("source");
                fs::create_dir_all(&source).map_err(Error::system("create", &source))?;
                site.source = Some(source.clone());
                site.census = fill(&source, place, filling)?;
                let options = ShareOptions::new(&source, &site.root).parallel(latency, parallel);
                site.slow = SlowMedium::Share(Share::up(&options.delay(false))?);
            }
            _ => {}
        }
        if let Some((system, ours)) = filling.system {
            if place.medium == Medium::Memory {
                site.mount(&["--bind".as_ref(), system.as_os_str()], "")?;
            }
            site.mount_system(ours)?;
            site.spinners = place.busy.then(Spinners::start).transpose()?;
        }
        Ok(site)
    }

    fn up_disk(
        &mut self,
        scratch: &MemoryDirectory,
        place: &Place,
        service: Service,
        filling: StorageContent<'_>,
    ) -> Result<(), Error> {
        let plain = DiskOptions { service, ..DiskOptions::new(&self.root).delay(false) };
        let size = match filling.rows.first().and_then(|row| row.data()) {
            Some(data) => plain.size.max(data.space(filling.quick)),
            None if place.name == "large" => LARGE,
            None if filling.system.is_some() => SYSTEM,
            None => plain.size,
        };
        let in_memory = filling.system.is_none().then(|| scratch.path().to_owned());
        let backing_dir = in_memory.unwrap_or_else(|| plain.backing_dir.clone());
        self.slow = SlowMedium::Disk(Disk::up(&DiskOptions { backing_dir, ..plain }.size(size))?);
        self.census = fill(&self.root, place, filling)?;
        match filling.system {
            Some(_) => Ok(()),
            None => checkpoint(&self.root),
        }
    }

    /// Mounts what a system needs to be worked in; `ours` is shown at [`OURS`].
    fn mount_system(&mut self, ours: &Path) -> Result<(), Error> {
        for dir in ["proc", "dev", "tmp", OURS] {
            let dir = self.root.join(dir);
            fs::create_dir_all(&dir).map_err(Error::system("create", &dir))?;
        }
        self.mount(&["-t", "proc", "proc"].map(OsStr::new), "proc")?;
        self.mount(&["--bind", "/dev"].map(OsStr::new), "dev")?;
        self.mount(&["-t", "tmpfs", "tmpfs"].map(OsStr::new), "tmp")?;
        self.mount(&["--bind".as_ref(), ours.as_os_str()], OURS)
    }

    fn mount(&mut self, what: &[&OsStr], at: &str) -> Result<(), Error> {
        let at = self.root.join(at);
        run_helper(Command::new("mount").args(what).arg(&at))?;
        self.mounted.push(at);
        Ok(())
    }

    /// The directory where it is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the census of what a row works on, if that is not the tree that all rows have.
    pub fn content(&self, row: &Row) -> Result<Option<TreeCensus>, Error> {
        match (row.content, &self.source) {
            // Beside the share, and so without waiting.
            (Content::App(app), Some(source)) => {
                copy_tree::census(&source.join(app.dir), usize::MAX).map(Some)
            }
            (Content::Data(_), _) => Ok(Some(self.census.clone())),
            _ if row.place.name == "large" => Ok(Some(self.census.clone())),
            _ => Ok(None),
        }
    }

    /// Switches the delay.
    pub fn set_delay(&self, on: bool) -> Result<(), Error> {
        self.storage().map_or(Ok(()), |storage| Ok(storage.set_delay(on)?))
    }

    /// Leaves nothing of it in memory.
    pub fn make_cold(&self) -> Result<(), Error> {
        match self.storage() {
            None => Ok(()),
            // The testbed's own way has a share forget names in use, too: it would lose its mount
            // points.
            Some(_) if !self.mounted.is_empty() => Ok(drop_caches()?),
            Some(storage) => Ok(storage.make_cold()?),
        }
    }

    /// Counts from now on.
    pub fn reset_stats(&self) -> Result<(), Error> {
        self.storage().map_or(Ok(()), |storage| Ok(storage.reset_stats()?))
    }

    /// Requests since counting began.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.storage().map_or_else(|| Ok(Stats::default()), |storage| Ok(storage.stats()?))
    }

    /// Takes it down. Dropping it does so too, but cannot report an error.
    pub fn down(mut self) -> Result<(), Error> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), Error> {
        self.spinners = None;
        for at in std::mem::take(&mut self.mounted).iter().rev() {
            let _ = Command::new("umount").arg(at).status();
        }
        match std::mem::replace(&mut self.slow, SlowMedium::None) {
            SlowMedium::Disk(disk) => disk.down()?,
            SlowMedium::Share(share) => share.down()?,
            // Not what is below a mount that could not be removed.
            SlowMedium::None if self.source.is_none() => _ = fs::remove_dir(&self.root),
            SlowMedium::None => {}
        }
        self.source.take().map_or(Ok(()), |source| Ok(remove(&source)?))
    }

    fn storage(&self) -> Option<&Storage> {
        match &self.slow {
            SlowMedium::Disk(disk) => Some(disk.storage()),
            SlowMedium::Share(share) => Some(share.storage()),
            SlowMedium::None => None,
        }
    }
}

impl Drop for FilledStorage {
    fn drop(&mut self) {
        let _ = self.take_down();
    }
}

fn fill(root: &Path, place: &Place, filling: StorageContent<'_>) -> Result<TreeCensus, Error> {
    if let Some((system, _)) = filling.system {
        let parts = if place.medium == Medium::Share { IMAGE } else { &["."] };
        if place.medium == Medium::Share {
            require_space(root, IMAGE_BYTES)?;
        }
        let clock = progress::clock("copying the Debian system");
        copy_parts(system, parts, root)?;
        clock.finish_and_clear();
        return Ok(TreeCensus::default());
    }
    if let Some((data, made)) = filling.rows.first().and_then(|row| row.data()).zip(filling.made) {
        let (to, clock) = (root.join(data.dir), progress::clock("copying what the rows work on"));
        row_datasets::copy(made, &to)?;
        clock.finish_and_clear();
        return copy_tree::census(&to, usize::MAX);
    }
    if place.name == "apps" {
        let clock = progress::clock("installing programs on the share");
        for row in filling.rows {
            // Rows without a mechanism have the program of the row that they are made from.
            if let Content::App(app) = row.content
                && !root.join(app.dir).exists()
            {
                app.install(root)?;
            }
        }
        clock.finish_and_clear();
        return copy_tree::census(root, usize::MAX);
    }
    let tree = root.join(TREE);
    match place.name == "large" && !filling.quick {
        true => linux_source::unpack_whole(&tree)?,
        false => copy_source(root, filling)?,
    }
    if place.name == "disk" {
        let data = root.join(DATA);
        fs::write(&data, vec![7; DATA_BYTES]).map_err(Error::system("write", &data))?;
    }
    if filling.has(Content::RepositoryApart) {
        make_repository(&tree, Some(&root.join(GIT_DIR)))?;
    }
    copy_tree::census(&tree, usize::MAX)
}

/// Copies files and directories, named as seen from `source`, to the same places below `to`.
fn copy_parts(source: &Path, parts: &[&str], to: &Path) -> Result<(), Error> {
    let mut copy = Command::new("cp");
    run_helper(copy.args(["-a", "--parents", "--"]).args(parts).arg(to).current_dir(source))?;
    Ok(())
}

fn copy_source(root: &Path, filling: StorageContent<'_>) -> Result<(), Error> {
    let twice = filling.has(Content::Repository);
    let (source, files) = (&filling.source.root, filling.files);
    let total = copy_tree::census(source, files)?.files * if twice { 2 } else { 1 };
    let bar = progress::bar("copying the tree", total as u64, Unit::Files);
    copy_tree::copy_tree(source, &root.join(TREE), files, Links::Keep, &bar)?;
    if twice {
        let repo = root.join(REPO);
        copy_tree::copy_tree(source, &repo, files, Links::Keep, &bar)?;
        make_repository(&repo, None)?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Commits everything, and leaves an index that needs no refreshing. The git directory is in `dir`
/// or, so that other commands do not see it there, `apart`.
fn make_repository(dir: &Path, apart: Option<&Path>) -> Result<(), Error> {
    require_program("git", "git")?;
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
        set_environment(&mut command);
        run_helper(&mut command)?;
    }
    clock.finish_and_clear();
    Ok(())
}

/// Moves everything from the journal to its place. Until then the kernel cannot forget these
/// blocks, and the disk would be less than cold.
fn checkpoint(dir: &Path) -> Result<(), Error> {
    let fsfreeze = require_program("fsfreeze", "util-linux")?;
    rustix::fs::sync();
    for how in ["--freeze", "--unfreeze"] {
        run_helper(Command::new(&fsfreeze).arg(how).arg(dir))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_named_parts_or_all() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(from.path().join("usr/bin")).unwrap();
        fs::create_dir_all(from.path().join("data")).unwrap();
        fs::write(from.path().join("usr/bin/x"), "x").unwrap();
        std::os::unix::fs::symlink("usr/bin", from.path().join("bin")).unwrap();
        copy_parts(from.path(), &["bin", "usr/bin"], to.path()).unwrap();
        assert!(to.path().join("bin/x").is_file() && to.path().join("bin").is_symlink());
        assert!(!to.path().join("data").exists());
        copy_parts(from.path(), &["."], to.path()).unwrap();
        assert!(to.path().join("data").is_dir());
    }
}
