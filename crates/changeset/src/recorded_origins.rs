//! Origins and whiteouts of a try, from its records.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use runahead_abi::overlay::{CHANGES, Origin, WHITEOUT};
use runahead_abi::{FileId, device_number};

use crate::{Result, io_error};

/// Origins and whiteouts of a try.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    /// Origins by path.
    by_path: BTreeMap<PathBuf, Origin>,
    /// Paths that whiteouts hide.
    pub(crate) whiteouts: BTreeSet<PathBuf>,
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

impl Origins {
    /// Reads the records in the try's directory `overlay_directory`. An incomplete record belongs
    /// to a change that was not made: its process ended while it wrote.
    pub(crate) fn read(overlay_directory: &Path) -> Result<Self> {
        let mut origins = Origins::default();
        let list = overlay_directory.join(CHANGES);
        let text = fs::read(&list).map_err(io_error("read", &list))?;
        for record in text.split(|byte| *byte == 0) {
            let (is_gone, words) = match record.split_first() {
                Some((&WHITEOUT, words)) => (true, words),
                _ => (false, record),
            };
            if let Some((origin, name)) = Origin::read(words) {
                origins.by_path.entry(path(name)).or_insert(origin);
                if is_gone {
                    origins.whiteouts.insert(path(name));
                }
            }
        }
        Ok(origins)
    }

    /// Origin of a path, if it was recorded.
    pub(crate) fn of(&self, path: &Path) -> Option<&Origin> {
        self.by_path.get(path)
    }

    /// Returns all paths and their origins.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Path, &Origin)> {
        self.by_path.iter().map(|(path, origin)| (path.as_path(), origin))
    }

    /// True if a whiteout hides a parent of the path.
    pub(crate) fn is_below_whiteout(&self, path: &Path) -> bool {
        path.ancestors().skip(1).any(|above| self.whiteouts.contains(above))
    }
}

/// True if an error says that an entry or its directory does not exist.
pub(crate) fn is_absence(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// Returns the current metadata of a path; `None` if nothing is there, or if links above it lead in
/// a circle.
pub(crate) fn current_metadata(path: &Path) -> Result<Option<Metadata>> {
    let is_circle = |error: &std::io::Error| {
        error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
    };
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absence(&error) || is_circle(&error) => Ok(None),
        Err(error) => Err(io_error("examine", path)(error)),
    }
}

/// Returns the origin for metadata.
pub(crate) fn origin(found: &Metadata) -> Origin {
    let dev = found.dev();
    let device = device_number(rustix::fs::major(dev), rustix::fs::minor(dev));
    Origin {
        file: FileId { device, inode: found.ino() },
        mode: found.mode().into(),
        size: found.size(),
        mtime: [found.mtime() as u64, found.mtime_nsec() as u64],
        ctime: [found.ctime() as u64, found.ctime_nsec() as u64],
    }
}

/// True if a name leads to the same entry, unchanged.
pub(crate) fn is_unchanged(origin: &Origin, found: Option<&Metadata>) -> bool {
    match found {
        None => *origin == Origin::ABSENT,
        Some(found) => *origin == self::origin(found),
    }
}

/// True if a directory is the same one with the same permissions. Its contents may differ.
pub(crate) fn is_same_directory(origin: &Origin, found: Option<&Metadata>) -> bool {
    found.is_some_and(|found| {
        let now = self::origin(found);
        (now.file, now.mode) == (origin.file, origin.mode)
    })
}
