//! Copies of trees onto the storage under test, in the order of names, as `cp -a` would make them.
//!
//! Invariant: times of modification are kept, so that git finds nothing racily clean and ls prints
//! the same each time.

use std::fs::{self, File, FileTimes};
use std::io::ErrorKind::{NotFound, PermissionDenied};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use runahead_harness::interrupt;
use serde::{Deserialize, Serialize};
use walkdir::{DirEntry, WalkDir};

use crate::error::Error;

/// Numbers of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeCensus {
    /// Regular files.
    pub files: usize,
    /// Directories, the root included.
    pub dirs: usize,
    /// Bytes in regular files.
    pub bytes: u64,
}

/// Treatment of symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// The copy has the link.
    Keep,
    /// The copy has the file or directory that it points to; nothing for links that point nowhere.
    Follow,
}

/// Everything below `root`, a directory before its content, in the order of names. Directories that
/// this user may not read, and links that point nowhere, are left out.
fn walk(root: &Path, links: Links) -> impl Iterator<Item = Result<DirEntry, Error>> + use<> {
    let root = root.to_owned();
    let walk = WalkDir::new(&root).sort_by_file_name().follow_links(links == Links::Follow);
    walk.into_iter().filter_map(move |entry| match entry {
        Ok(entry) => Some(Ok(entry)),
        Err(e) => match e.io_error().map(std::io::Error::kind) {
            Some(NotFound | PermissionDenied) if e.depth() > 0 => None,
            _ => Some(Err(Error::system("look through", &root)(e.into()))),
        },
    })
}

/// True if there are at least `wanted` regular files below `root`.
pub fn has_files(root: &Path, wanted: usize) -> bool {
    let is_file = |entry: &DirEntry| entry.file_type().is_file();
    walk(root, Links::Keep).flatten().filter(is_file).take(wanted).count() >= wanted
}

/// Copies at most `limit` files of `from` to the new directory `to`, with the directories that they
/// are in. Files that this user may not read are left out.
pub fn copy_tree(
    from: &Path,
    to: &Path,
    limit: usize,
    links: Links,
    bar: &ProgressBar,
) -> Result<TreeCensus, Error> {
    let mut census = TreeCensus::default();
    let mut dirs = Vec::new();
    for entry in walk(from, links) {
        if census.files >= limit {
            break;
        }
        interrupt::check()?;
        let entry = entry?;
        let (from, kind) = (entry.path(), entry.file_type());
        let to = to.join(from.strip_prefix(from_root(&entry)).unwrap_or(from));
        if kind.is_dir() {
            fs::create_dir(&to).map_err(Error::system("create", &to))?;
            census.dirs += 1;
            dirs.push((from.to_owned(), to));
        } else if kind.is_file() {
            match fs::copy(from, &to) {
                Ok(bytes) => census.bytes += bytes,
                Err(e) if e.kind() == PermissionDenied => continue,
                Err(e) => return Err(Error::system("copy to", to)(e)),
            }
            set_times(from, &to)?;
            census.files += 1;
            bar.inc(1);
        } else if kind.is_symlink() {
            let target = fs::read_link(from).map_err(Error::system("read", from))?;
            symlink(target, &to).map_err(Error::system("create", &to))?;
        }
    }
    // Last: each file that is made changes the time of its directory.
    dirs.iter().try_for_each(|(from, to)| set_times(from, to))?;
    Ok(census)
}

/// The root of the walk that found `entry`.
fn from_root(entry: &DirEntry) -> &Path {
    entry.path().ancestors().nth(entry.depth()).unwrap_or(Path::new(""))
}

/// Counts what is below `root`, up to `limit` files.
pub fn census(root: &Path, limit: usize) -> Result<TreeCensus, Error> {
    let mut census = TreeCensus::default();
    for entry in walk(root, Links::Keep) {
        if census.files >= limit {
            break;
        }
        let entry = entry?;
        if entry.file_type().is_dir() {
            census.dirs += 1;
        } else if entry.file_type().is_file() {
            census.files += 1;
            census.bytes += entry.metadata().map_or(0, |meta| meta.len());
        }
    }
    Ok(census)
}

fn set_times(from: &Path, to: &Path) -> Result<(), Error> {
    let modified =
        fs::metadata(from).and_then(|m| m.modified()).map_err(Error::system("look at", from))?;
    File::open(to)
        .and_then(|file| file.set_times(FileTimes::new().set_modified(modified)))
        .map_err(Error::system("set the time of", to))
}

/// Returns every regular file below `dir`, in the order of names, as paths relative to `base`.
pub fn regular_files(base: &Path, dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_file = |entry: &Result<DirEntry, Error>| match entry {
        Ok(entry) => entry.file_type().is_file(),
        Err(_) => true,
    };
    walk(&base.join(dir), Links::Keep)
        .filter(is_file)
        .map(|file| Ok(file?.path().strip_prefix(base).unwrap_or(dir).to_owned()))
        .collect()
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
        for name in ["a", "b"] {
            let file = File::open(from.join(name)).unwrap();
            file.set_times(FileTimes::new().set_modified(old)).unwrap();
        }
        let to = dir.path().join("to");
        let census = copy_tree(&from, &to, 3, Links::Keep, &ProgressBar::hidden()).unwrap();
        assert_eq!(census, TreeCensus { files: 3, dirs: 3, bytes: 1 + 3 + 5 });
        assert_eq!(self::census(&from, 3).unwrap(), census);
        assert_eq!(self::census(&to, usize::MAX).unwrap(), census);
        for name in ["a", "b"] {
            assert_eq!(fs::metadata(to.join(name)).unwrap().modified().unwrap(), old);
        }
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
