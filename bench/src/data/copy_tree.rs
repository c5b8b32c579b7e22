//! Copying a tree onto the storage under test, in the order of its names, as `cp -a` would.
//!
//! Invariant: times of modification are kept, so that git finds nothing racily clean and ls prints
//! the same each time.

use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use runahead_harness::interrupt;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What a tree holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Regular files.
    pub files: usize,
    /// Directories, the root included.
    pub dirs: usize,
    /// Bytes in regular files.
    pub bytes: u64,
}

/// Whether there are at least `wanted` regular files below `root`.
pub fn has_files(root: &Path, wanted: usize) -> bool {
    let mut left = wanted;
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => pending.push(entry.path()),
                Ok(kind) if kind.is_file() => left = left.saturating_sub(1),
                _ => {}
            }
        }
        if left == 0 {
            return true;
        }
    }
    false
}

/// Copies at most `limit` files of `from` to the new directory `to`, with the directories that they
/// are in. Files that this user may not read are left out.
///
/// # Errors
/// [`Error::System`], or [`Error::Interrupted`].
pub fn copy_tree(
    from: &Path,
    to: &Path,
    limit: usize,
    links: Links,
    bar: &ProgressBar,
) -> Result<Census, Error> {
    let mut copy = Copy { census: Census::default(), limit, links, bar };
    copy.directory(from, to)?;
    Ok(copy.census)
}

/// What becomes of symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// They are copied.
    Keep,
    /// What they point to is copied; those that point nowhere are left out.
    Follow,
}

struct Copy<'a> {
    census: Census,
    limit: usize,
    links: Links,
    bar: &'a ProgressBar,
}

impl Copy<'_> {
    fn directory(&mut self, from: &Path, to: &Path) -> Result<(), Error> {
        let Some(names) = sorted_names(from)? else { return Ok(()) };
        fs::create_dir(to).map_err(Error::system("create", to))?;
        self.census.dirs += 1;
        for name in names {
            if self.census.files >= self.limit {
                break;
            }
            let (from, to) = (from.join(&name), to.join(&name));
            let metadata = match self.links {
                Links::Keep => fs::symlink_metadata(&from),
                Links::Follow => match fs::metadata(&from) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    other => other,
                },
            };
            let kind = metadata.map_err(Error::system("look at", &from))?.file_type();
            if kind.is_dir() {
                self.directory(&from, &to)?;
            } else if kind.is_file() {
                self.file(&from, &to)?;
            } else if kind.is_symlink() {
                let target = fs::read_link(&from).map_err(Error::system("read", &from))?;
                symlink(target, &to).map_err(Error::system("create", &to))?;
            }
        }
        set_times(from, to)
    }

    fn file(&mut self, from: &Path, to: &Path) -> Result<(), Error> {
        interrupt::check()?;
        match fs::copy(from, to) {
            Ok(bytes) => self.census.bytes += bytes,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            Err(e) => return Err(Error::system("copy to", to)(e)),
        }
        set_times(from, to)?;
        self.census.files += 1;
        self.bar.inc(1);
        Ok(())
    }
}

/// What is below `root`.
///
/// # Errors
/// [`Error::System`].
pub fn census(root: &Path, limit: usize) -> Result<Census, Error> {
    let mut census = Census { dirs: 1, ..Census::default() };
    for name in sorted_names(root)?.unwrap_or_default() {
        if census.files >= limit {
            break;
        }
        let path = root.join(name);
        let metadata = fs::symlink_metadata(&path).map_err(Error::system("look at", &path))?;
        if metadata.is_dir() {
            let below = self::census(&path, limit - census.files)?;
            census.files += below.files;
            census.dirs += below.dirs;
            census.bytes += below.bytes;
        } else if metadata.is_file() {
            census.files += 1;
            census.bytes += metadata.len();
        }
    }
    Ok(census)
}

/// `None` for a directory that this user may not read.
fn sorted_names(dir: &Path) -> Result<Option<Vec<std::ffi::OsString>>, Error> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        other => other,
    };
    let names: io::Result<Vec<_>> =
        entries.and_then(|all| all.map(|e| Ok(e?.file_name())).collect());
    let mut names = names.map_err(Error::system("list", dir))?;
    names.sort();
    Ok(Some(names))
}

fn set_times(from: &Path, to: &Path) -> Result<(), Error> {
    let modified =
        fs::metadata(from).and_then(|m| m.modified()).map_err(Error::system("look at", from))?;
    File::open(to)
        .and_then(|file| file.set_times(FileTimes::new().set_modified(modified)))
        .map_err(Error::system("set the time of", to))
}

/// Every regular file below `dir`, in the order of names, as paths relative to `base`.
///
/// # Errors
/// [`Error::System`].
pub fn regular_files(base: &Path, dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let below = base.join(dir);
    for name in sorted_names(&below)?.unwrap_or_default() {
        let path = dir.join(&name);
        let full = base.join(&path);
        let kind =
            fs::symlink_metadata(&full).map_err(Error::system("look at", &full))?.file_type();
        if kind.is_dir() {
            found.extend(regular_files(base, &path)?);
        } else if kind.is_file() {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_copy_keeps_times_and_names() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("b/c")).unwrap();
        for name in ["a", "b/x", "b/c/y", "z"] {
            fs::write(from.join(name), name).unwrap();
        }
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let file = File::options().write(true).open(from.join("a")).unwrap();
        file.set_times(FileTimes::new().set_modified(old)).unwrap();

        let to = dir.path().join("to");
        let census = copy_tree(&from, &to, 3, Links::Keep, &ProgressBar::hidden()).unwrap();
        assert_eq!(census, Census { files: 3, dirs: 3, bytes: 1 + 3 + 5 });
        assert_eq!(self::census(&from, 3).unwrap(), census);
        assert_eq!(self::census(&to, usize::MAX).unwrap(), census);
        assert_eq!(fs::metadata(to.join("a")).unwrap().modified().unwrap(), old);
        let names = regular_files(dir.path(), Path::new("to")).unwrap();
        assert_eq!(names, ["to/a", "to/b/c/y", "to/b/x"].map(PathBuf::from));
        assert!(has_files(&from, 4) && !has_files(&from, 5));
    }

    #[test]
    fn links_are_kept_or_followed() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir(&from).unwrap();
        fs::write(dir.path().join("outside"), "text").unwrap();
        symlink("../outside", from.join("link")).unwrap();
        symlink("nowhere", from.join("dangling")).unwrap();
        let copy = |to: &str, links| {
            let to = dir.path().join(to);
            copy_tree(&from, &to, usize::MAX, links, &ProgressBar::hidden()).unwrap();
            (to.join("link").is_symlink(), fs::symlink_metadata(to.join("dangling")).is_ok())
        };
        assert_eq!(copy("kept", Links::Keep), (true, true));
        assert_eq!(copy("followed", Links::Follow), (false, false));
    }
}
