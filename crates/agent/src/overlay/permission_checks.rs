//! Permission checks as the kernel would make them in the lower tree. They are needed because the
//! upper tree's directories belong to the user, and its files have no attributes of chattr(1).

use linux_raw_sys::general as k;

use super::change_filter;
use super::directory_cache::{self, DirectoryState};
use super::entry_rights::{EntryRights, READ, SEARCH, WRITE};
use super::layer::Layer;
use super::process_credentials::{self, Capability};
use super::view_entry::{Resolved, ViewEntry};
use super::view_path::ViewPath;
use crate::sys::{self, Errno, Result};

/// Checks that entries may be created in the parent directory.
pub(super) fn may_create(found: &mut Resolved) -> Result<()> {
    match kernel_checks_parent(found) {
        true => Ok(()),
        false => parent_for_change(found).map(drop),
    }
}

/// True if the kernel's check of a change in the parent's upper directory is known to be right.
fn kernel_checks_parent(found: &mut Resolved) -> bool {
    let layer = found.path.layer();
    found.parent == DirectoryState::Merged
        && found.path.with_parent(|parent| directory_cache::has_equal_rights(layer, parent.hash()))
}

/// Checks write access to the parent directory. Returns its rights, unless it is only in the upper
/// tree: then the kernel's checks are right.
fn parent_for_change(found: &mut Resolved) -> Result<Option<EntryRights>> {
    let state = found.parent;
    if state == DirectoryState::Upper {
        return Ok(None);
    }
    found.path.with_parent(|parent| {
        let rights = EntryRights::of_directory(parent, state)?;
        rights.check_access(parent, state == DirectoryState::Lower, WRITE | SEARCH)?;
        if rights.are_equal() {
            directory_cache::cache_equal_rights(parent.layer(), parent.hash());
        }
        Ok(Some(rights))
    })
}

/// Checks that names may be looked up in a directory. The kernel checks it when an entry is looked
/// up, except for permissions that the try has taken away from a merged directory.
pub(super) fn may_search(layer: Layer, found: &Resolved) -> Result<()> {
    may_access_merged(layer, found, SEARCH)
}

/// Checks that `.` and `..` may be looked up in a directory: the walk does not ask the kernel.
pub(super) fn may_pass(directory: &ViewPath, state: DirectoryState) -> Result<()> {
    if process_credentials::user() == 0 {
        return Ok(());
    }
    let rights = EntryRights::of_directory(directory, state)?;
    rights.check_access(directory, state == DirectoryState::Lower, SEARCH)
}

/// Checks that a directory may be listed, as [`may_search`] does.
pub(super) fn may_list(layer: Layer, found: &Resolved) -> Result<()> {
    may_access_merged(layer, found, READ)
}

fn may_access_merged(layer: Layer, found: &Resolved, how: u32) -> Result<()> {
    let ViewEntry::Merged(lower, upper) = &found.entry else { return Ok(()) };
    match EntryRights::of(layer, found) {
        Some(rights) if lower.mode() != upper.mode() => rights.check_access_to(found, how),
        _ => Ok(()),
    }
}

/// Checks that the entry may be removed from its parent directory.
pub(super) fn may_remove(layer: Layer, found: &mut Resolved) -> Result<()> {
    let is_own = matches!(found.entry, ViewEntry::Upper(_))
        && !change_filter::filter(layer).has_copies_without_rights();
    let parent = match is_own && kernel_checks_parent(found) {
        true => None,
        false => parent_for_change(found)?,
    };
    let Some(entry) = EntryRights::of(layer, found) else { return Ok(()) };
    if let Some(parent) = parent {
        let is_others = || {
            let user = process_credentials::user();
            user != entry.owner && user != parent.owner
        };
        if parent.is_append_only()
            || parent.is_sticky() && is_others() && !process_credentials::has(Capability::Fowner)
        {
            return Err(Errno(sys::EPERM));
        }
    }
    entry.check_changeable()
}

/// Fails with EPERM if the entry is immutable or append-only.
pub(super) fn check_changeable(layer: Layer, found: &Resolved) -> Result<()> {
    EntryRights::of(layer, found).map_or(Ok(()), |entry| entry.check_changeable())
}

/// Fails with EBUSY if a file system is mounted at the entry.
pub(super) fn check_not_mounted(layer: Layer, found: &Resolved) -> Result<()> {
    match EntryRights::of(layer, found) {
        Some(entry) if entry.is_mount_point() => Err(Errno(sys::EBUSY)),
        _ => Ok(()),
    }
}

/// Checks that the directory may move to another one: its entry `..` changes.
pub(super) fn may_move(layer: Layer, found: &Resolved) -> Result<()> {
    match EntryRights::of(layer, found) {
        Some(entry) if entry.kind() == k::S_IFDIR => entry.check_access_to(found, WRITE),
        _ => Ok(()),
    }
}

/// Checks that the file may be opened with these flags of open(2), which write to it.
pub(super) fn may_open_to_write(
    layer: Layer,
    found: &Resolved,
    access: u32,
    flags: u32,
) -> Result<()> {
    let Some(file) = EntryRights::of(layer, found) else { return Ok(()) };
    if access != 0 {
        file.check_access_to(found, access)?;
    }
    let writes = flags & k::O_ACCMODE != k::O_RDONLY;
    if file.is_append_only() && (writes && flags & k::O_APPEND == 0 || flags & k::O_TRUNC != 0) {
        return Err(Errno(sys::EPERM));
    }
    if flags & k::O_NOATIME != 0 { file.check_owner() } else { Ok(()) }
}

/// Checks that the file may be truncated by its name.
pub(super) fn may_truncate(layer: Layer, found: &Resolved) -> Result<()> {
    may_open_to_write(layer, found, WRITE, k::O_WRONLY | k::O_TRUNC)
}

/// Checks that a file without a name may be made in the directory.
pub(super) fn may_make_temporary(layer: Layer, found: &Resolved) -> Result<()> {
    match EntryRights::of(layer, found) {
        Some(directory) => directory.check_access_to(found, WRITE | SEARCH),
        None => Ok(()),
    }
}
