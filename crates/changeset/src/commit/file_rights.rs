//! Rights that the kernel will ask for, looked at before a commit changes anything.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Access, StatxAttributes, StatxFlags};

use crate::held_tree::{HeldDirectory, HeldEntry};

/// Bit of a directory in which entries can only be removed by their owners.
const STICKY: u32 = 0o1000;

/// Attributes of the file system that an entry has (statx(2)).
fn attributes(found: &rustix::fs::Statx) -> StatxAttributes {
    found.stx_attributes
}

/// True if names can be made in the directory and not removed.
pub(super) fn is_append_only(directory: &HeldDirectory) -> io::Result<bool> {
    Ok(attributes(&directory.statx(StatxFlags::TYPE)?).contains(StatxAttributes::APPEND))
}

/// True if another file system, or a file, is mounted on the entry.
pub(super) fn is_mount_point(entry: &HeldEntry) -> io::Result<bool> {
    Ok(attributes(&entry.statx(StatxFlags::TYPE)?).contains(StatxAttributes::MOUNT_ROOT))
}

/// True if entries can be renamed between the directories.
pub(super) fn is_one_mount(a: &HeldDirectory, b: &HeldDirectory) -> io::Result<bool> {
    let (a, b) = (a.statx(StatxFlags::MNT_ID)?, b.statx(StatxFlags::MNT_ID)?);
    let device = |of: &rustix::fs::Statx| (of.stx_dev_major, of.stx_dev_minor);
    Ok(device(&a) == device(&b) && a.stx_mnt_id == b.stx_mnt_id)
}

/// Reason why the user can make no entries in the directory.
pub(super) fn why_not_creatable(directory: &HeldDirectory) -> io::Result<Option<&'static str>> {
    let found = directory.statx(StatxFlags::TYPE)?;
    if attributes(&found).contains(StatxAttributes::IMMUTABLE) {
        return Ok(Some("its directory is immutable"));
    }
    let is_own = directory.metadata()?.uid() == rustix::process::geteuid().as_raw();
    match directory.access(Access::WRITE_OK | Access::EXEC_OK) {
        // Permissions that the try itself may have taken away are widened for the step.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_own => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Ok(Some("its directory may not be written to"))
        }
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            Ok(Some("its file system is mounted read-only"))
        }
        other => other.map(|()| None),
    }
}

/// Reason why the user cannot remove or replace the entry.
pub(super) fn why_not_removable(
    entry: &HeldEntry,
    found: &Metadata,
) -> io::Result<Option<&'static str>> {
    if let Some(why) = why_not_creatable(entry.directory())? {
        return Ok(Some(why));
    }
    if is_append_only(entry.directory())? {
        return Ok(Some("its directory is append-only"));
    }
    let own = attributes(&entry.statx(StatxFlags::TYPE)?);
    if own.contains(StatxAttributes::IMMUTABLE) {
        return Ok(Some("it is immutable"));
    }
    if own.contains(StatxAttributes::APPEND) {
        return Ok(Some("it is append-only"));
    }
    if own.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(Some("something is mounted on it"));
    }
    let (user, above) = (rustix::process::geteuid(), entry.directory().metadata()?);
    let is_own = |of: &Metadata| of.uid() == user.as_raw();
    if above.mode() & STICKY != 0 && !user.is_root() && !is_own(found) && !is_own(&above) {
        return Ok(Some("it belongs to another user, in a directory with the sticky bit"));
    }
    Ok(None)
}

/// Reason why the user cannot write to the file.
pub(super) fn why_not_writable(
    entry: &HeldEntry,
    found: &Metadata,
) -> io::Result<Option<&'static str>> {
    let own = attributes(&entry.statx(StatxFlags::TYPE)?);
    if own.contains(StatxAttributes::IMMUTABLE) {
        return Ok(Some("it is immutable"));
    }
    if own.contains(StatxAttributes::APPEND) {
        return Ok(Some("it is append-only"));
    }
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    match entry.access(Access::WRITE_OK) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_own => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Ok(Some("it may not be written to"))
        }
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            Ok(Some("its file system is mounted read-only"))
        }
        other => other.map(|()| None),
    }
}

/// Reason why the user cannot set attributes of the entry, and permissions if `sets_mode`.
pub(super) fn why_not_changeable(
    entry: &HeldEntry,
    found: &Metadata,
    sets_mode: bool,
) -> io::Result<Option<&'static str>> {
    let own = attributes(&entry.statx(StatxFlags::TYPE)?);
    let user = rustix::process::geteuid();
    if own.contains(StatxAttributes::IMMUTABLE) {
        return Ok(Some("it is immutable"));
    }
    if own.contains(StatxAttributes::APPEND) {
        return Ok(Some("it is append-only"));
    }
    if sets_mode && !user.is_root() && found.uid() != user.as_raw() {
        return Ok(Some("it belongs to another user"));
    }
    match entry.access(Access::WRITE_OK) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            Ok(Some("its file system is mounted read-only"))
        }
        _ => Ok(None),
    }
}
