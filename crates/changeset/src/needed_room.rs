//! Room that a commit needs on file systems other than the one that tries are kept on.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use runahead_abi::overlay::UPPER;

use crate::try_changes::{ChangeKind, Changes};
use crate::widened_directory::WidenedDirectories;
use crate::{Error, Result, io_error};

/// Copies that one file system gets.
struct Copies {
    /// Directory on the file system.
    directory: PathBuf,
    /// Size of the copies' data, in bytes.
    bytes: u64,
}

/// Fails if a file system lacks room for what the commit would copy to it. A copy lies beside the
/// file that it replaces until it is complete, so the room of that file does not count.
pub(crate) fn check(changes: &Changes, overlay_directory: &Path) -> Result<()> {
    let upper = overlay_directory.join(UPPER);
    let mut all: BTreeMap<u64, Copies> = BTreeMap::new();
    for change in changes.iter() {
        if !matches!(change.kind, ChangeKind::Added | ChangeKind::Modified) {
            continue;
        }
        let name = upper.join(change.path.strip_prefix("/").unwrap_or(&change.path));
        let _widened = WidenedDirectories::above(&upper, [&name]);
        let found = fs::symlink_metadata(&name).map_err(io_error("examine", &name))?;
        // The try may have replaced a symbolic link by a directory.
        let is_directory = |path: &&Path| fs::symlink_metadata(path).is_ok_and(|at| at.is_dir());
        let existing = change.path.ancestors().skip(1).find(is_directory);
        let directory = existing.unwrap_or(Path::new("/"));
        let there = fs::metadata(directory).map_err(io_error("examine", directory))?;
        if there.dev() != found.dev() {
            let new = || Copies { directory: directory.to_owned(), bytes: 0 };
            all.entry(there.dev()).or_insert_with(new).bytes += found.blocks() * 512;
        }
    }
    for Copies { directory, bytes } in all.into_values() {
        let Ok(room) = rustix::fs::statvfs(&directory) else { continue };
        let is_root = rustix::process::geteuid().is_root();
        let blocks = if is_root { room.f_bfree } else { room.f_bavail };
        let free = blocks.saturating_mul(room.f_frsize);
        // A file system without a size reports no blocks.
        if room.f_blocks > 0 && free < bytes {
            return Err(Error::NoRoom { directory, needed: bytes, free });
        }
    }
    Ok(())
}
