//! Moves one entry into place, completely or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use rustix::fs::OFlags;

use crate::copied_entry::{CopiedFiles, copy_contents, copy_whole, have_same_contents};
use crate::entry_metadata::{copy_metadata, could_change_owner, times_of};
use crate::held_tree::{HeldEntry, HeldTree};
use crate::readable_entry::ReadableEntry;
use crate::{Result, io_error};

/// Moves the entry `from` to `to` in the tree `lower`, where nothing is or a file to replace.
pub(crate) fn install(
    from: &HeldEntry,
    to: &HeldEntry,
    lower: &HeldTree,
    copied: &mut CopiedFiles,
) -> Result<()> {
    let path = to.path();
    let found = match from.metadata() {
        Ok(found) => found,
        // An earlier commit moved it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("examine", &from.path())(error)),
    };
    let there = to.metadata().ok().filter(Metadata::is_file);
    // Replacing the file would change an owner that the try could not change.
    let keeps = |there: &Metadata| !could_change_owner(there);
    let replaced = match &there {
        Some(there) if found.is_file() && keeps(there) => {
            write_into(from, to, &found).and_then(|()| from.remove_file())
        }
        _ => move_into_place(from, to, &found, lower, copied),
    };
    match replaced {
        // The user may write to the file and not create another in its directory.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && there.is_some() => {
            let written = write_into(from, to, &found).and_then(|()| from.remove_file());
            written.map_err(io_error("write", &path))
        }
        other => other.map_err(io_error("move a file to", &path)),
    }
}

fn move_into_place(
    from: &HeldEntry,
    to: &HeldEntry,
    found: &Metadata,
    lower: &HeldTree,
    copied: &mut CopiedFiles,
) -> io::Result<()> {
    // A directory that moves to another one is written to: its entry `..` changes. It has its own
    // permissions again when it is no longer held.
    let widened = found.is_dir().then(|| from.hold_widened()).transpose()?;
    let moved = to.directory().change_entries(|| from.rename_to(to));
    drop(widened);
    match moved {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {
            let beside = temporary_sibling(to);
            let placed = to.directory().change_entries(|| {
                beside.remove_all()?;
                copy_whole(from, &beside, lower, copied)?;
                rename_over(&beside, to)
            });
            if placed.is_err() {
                let _ = beside.remove_all();
            }
            placed?;
            copied.rename(&beside.path(), &to.path());
            from.remove_all()
        }
        renamed => renamed,
    }
}

/// Renames an entry. If both are names of one file, which rename(2) leaves alone, the old one is
/// removed.
fn rename_over(from: &HeldEntry, to: &HeldEntry) -> io::Result<()> {
    from.rename_to(to)?;
    match from.remove_file() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Returns an entry with a temporary name in the same directory.
pub(crate) fn temporary_sibling(entry: &HeldEntry) -> HeldEntry {
    let mut name = b".".to_vec();
    let last = entry.name().as_bytes();
    // Names have at most 255 bytes.
    name.extend_from_slice(&last[..last.len().min(200)]);
    name.extend_from_slice(b".runahead-try");
    entry.beside(OsString::from(OsStr::from_bytes(&name)))
}

/// True if the contents of the file `to` are those that an interrupted write of `from` leaves.
pub(crate) fn is_begun(from: &HeldEntry, to: &HeldEntry) -> io::Result<bool> {
    let (found, there) = (from.metadata()?, to.metadata()?);
    if !found.is_file() || !there.is_file() {
        return Ok(true);
    }
    let _readable = (ReadableEntry::new(from, &found)?, ReadableEntry::new(to, &there)?);
    let (from, to) = (from.open(OFlags::RDONLY)?, to.open(OFlags::RDONLY)?);
    have_same_contents(from.take(there.size()), to)
}

/// Completes the interrupted copy `to`, which cannot be removed.
pub(crate) fn complete_copy(
    from: &HeldEntry,
    to: &HeldEntry,
    lower: &HeldTree,
    copied: &mut CopiedFiles,
) -> io::Result<()> {
    let (found, there) = (from.metadata()?, to.metadata()?);
    if found.file_type() != there.file_type() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    if found.is_file() {
        write_into(from, to, &found)?;
    } else if found.is_dir() {
        let (from, to) = (from.hold_widened()?, to.hold_widened()?);
        for name in to.names()? {
            to.entry(&name).remove_all()?;
        }
        for name in from.names()? {
            copy_whole(&from.entry(&name), &to.entry(&name), lower, copied)?;
        }
    }
    copy_metadata(from, to, &found)?;
    to.set_times(&times_of(&found))
}

/// Overwrites the contents of the file `to`, which stays the same inode. An interrupted write is
/// repeated.
pub(crate) fn write_into(from: &HeldEntry, to: &HeldEntry, found: &Metadata) -> io::Result<()> {
    let _readable = ReadableEntry::new(from, found)?;
    let (source, target) = (from.open(OFlags::RDONLY)?, open_to_write(to, &to.metadata()?)?);
    target.set_len(0)?;
    copy_contents(&source, &target)?;
    // Fails if another user owns the file; then the try could not change them either.
    let owned = copy_metadata(from, to, found);
    if could_change_owner(&target.metadata()?) {
        owned?;
    }
    let times = FileTimes::new().set_modified(found.modified()?);
    let _ = target.set_times(times);
    Ok(())
}

/// Opens a file for writing. If its owner may not write to it, the permissions are widened: the try
/// may have changed them.
pub(crate) fn open_to_write(entry: &HeldEntry, found: &Metadata) -> io::Result<File> {
    const WRITE: u32 = 0o200;
    match entry.open(OFlags::WRONLY) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            entry.set_mode(found.mode() | WRITE).map_err(|_| error)?;
            entry.open(OFlags::WRONLY)
        }
        opened => opened,
    }
}
