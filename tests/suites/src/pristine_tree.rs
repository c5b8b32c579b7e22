//! A suite's tree on a slow disk, kept as it is in the cache.
//!
//! Invariant: every run begins with the tree that the cache has. Units of most suites cannot write
//! into it, because it is root's and they are not. The other trees belong to the user of the units,
//! and are looked through after each run: a file with another type, mode, size, time or target is
//! restored.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use runahead_harness::remove;
use walkdir::WalkDir;

use crate::error::Error;

/// User and group as which units run.
pub const UNPRIVILEGED: u32 = 65534;

/// Properties of a file that are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    mode: u32,
    /// Size of a file.
    size: u64,
    /// Time of modification of a file, in nanoseconds.
    modified: i128,
    /// Target of a link.
    target: Option<PathBuf>,
}

/// Content of a tree when it was made.
#[derive(Debug, Clone)]
pub struct Pristine {
    master: PathBuf,
    entries: HashMap<PathBuf, Entry>,
}

impl Pristine {
    /// Looks through the tree in the cache.
    pub fn of(master: &Path) -> Result<Self, Error> {
        Ok(Self { master: master.to_owned(), entries: look(master)? })
    }

    /// Undoes all changes to `copy`. Returns the number of files and directories that were changed.
    pub fn restore(&self, copy: &Path) -> Result<usize, Error> {
        let found = look(copy)?;
        let mut undone = 0;
        let mut extra: Vec<_> =
            found.keys().filter(|path| !self.same_kind(path, &found[*path])).collect();
        extra.sort();
        // A directory before what is in it, which then is gone already.
        for path in extra {
            let full = copy.join(path);
            if full.symlink_metadata().is_err() {
                continue;
            }
            remove(&full)?;
            undone += 1;
        }
        let mut wanted: Vec<_> =
            self.entries.iter().filter(|(path, entry)| found.get(*path) != Some(entry)).collect();
        wanted.sort_by_key(|(path, _)| *path);
        for (path, entry) in wanted {
            self.put(path, entry, copy)?;
            undone += 1;
        }
        Ok(undone)
    }

    fn same_kind(&self, path: &Path, found: &Entry) -> bool {
        const KIND: u32 = 0o170_000;
        self.entries.get(path).is_some_and(|entry| {
            entry.mode & KIND == found.mode & KIND && entry.target == found.target
        })
    }

    fn put(&self, path: &Path, entry: &Entry, copy: &Path) -> Result<(), Error> {
        let (from, to) = (self.master.join(path), copy.join(path));
        let failed = |what| Error::system(what, to.clone());
        let meta = from.symlink_metadata().map_err(Error::system("look at", &from))?;
        if let Some(target) = &entry.target {
            if to.symlink_metadata().is_err() {
                symlink(target, &to).map_err(failed("create"))?;
            }
            return lchown(&to, Some(UNPRIVILEGED), Some(UNPRIVILEGED))
                .map_err(failed("give away"));
        }
        if meta.is_dir() {
            if !to.is_dir() {
                fs::create_dir(&to).map_err(failed("create"))?;
            }
        } else {
            // Contents into a new file: the old one may have other names by now.
            let _ = fs::remove_file(&to);
            fs::copy(&from, &to).map_err(failed("copy to"))?;
            let modified = meta.modified().map_err(failed("look at"))?;
            let times = fs::FileTimes::new().set_modified(modified);
            fs::File::open(&to)
                .and_then(|f| f.set_times(times))
                .map_err(failed("set the time of"))?;
        }
        chown(&to, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).map_err(failed("give away"))?;
        fs::set_permissions(&to, meta.permissions()).map_err(failed("set the mode of"))
    }
}

fn look(root: &Path) -> Result<HashMap<PathBuf, Entry>, Error> {
    let mut found = HashMap::new();
    for entry in WalkDir::new(root).min_depth(1) {
        let failed = |e: walkdir::Error| Error::system("look through", root)(e.into());
        let entry = entry.map_err(failed)?;
        let meta = entry.metadata().map_err(failed)?;
        let target = match meta.is_symlink() {
            true => Some(fs::read_link(entry.path()).map_err(Error::system("read", entry.path()))?),
            false => None,
        };
        let file = meta.is_file();
        let modified = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        let described = Entry {
            mode: meta.mode(),
            size: if file { meta.size() } else { 0 },
            modified: if file { modified } else { 0 },
            target,
        };
        let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
        found.insert(path.to_owned(), described);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn every_change_is_undone() {
        // Only root may give files away.
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (master, copy) = (dir.path().join("master"), dir.path().join("copy"));
        fs::create_dir_all(master.join("d/e")).unwrap();
        for name in ["a", "b", "d/c", "d/e/f"] {
            fs::write(master.join(name), name).unwrap();
        }
        symlink("a", master.join("l")).unwrap();
        let mut cp = std::process::Command::new("cp");
        runahead_harness::run_helper(cp.arg("-a").args([&master, &copy])).unwrap();
        let pristine = Pristine::of(&master).unwrap();
        assert_eq!(pristine.restore(&copy).unwrap(), 0);

        fs::write(copy.join("a"), "longer than it was").unwrap();
        fs::set_permissions(copy.join("b"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_dir_all(copy.join("d")).unwrap();
        fs::write(copy.join("d"), "a file now").unwrap();
        fs::remove_file(copy.join("l")).unwrap();
        symlink("b", copy.join("l")).unwrap();
        fs::create_dir_all(copy.join("new/newer")).unwrap();
        assert!(pristine.restore(&copy).unwrap() > 5);
        assert_eq!(pristine.restore(&copy).unwrap(), 0);
        assert_eq!(fs::read_to_string(copy.join("d/e/f")).unwrap(), "d/e/f");
        assert_eq!(fs::read_link(copy.join("l")).unwrap(), Path::new("a"));
    }
}
