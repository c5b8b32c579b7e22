//! Rights of an entry as the view shows it: what the kernel's permission checks look at.
//!
//! A copy lacks what the user may not set: another owner, and the attributes of chattr(1). Those
//! are the lower entry's, which a commit changes.

use linux_raw_sys::general as k;

use super::directory_cache::DirectoryState;
use super::kernel_calls::{self, Stat};
use super::layer::Layer;
use super::process_credentials::{self, Capability};
use super::view_entry::{Resolved, ViewEntry};
use super::view_path::ViewPath;
use super::{change_filter, inode_numbers, whiteouts};
use crate::sys::{self, Errno, Result};

/// Modes of access(2).
pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const SEARCH: u32 = 1;

/// Owner, mode and attributes of an entry.
#[derive(Clone, Copy)]
pub(super) struct EntryRights {
    pub owner: u32,
    /// Mode, with the bits of `S_IFMT`.
    pub mode: u32,
    /// Bits `STATX_ATTR_*` of the lower entry.
    attributes: u32,
    /// True if the upper entry has the owner, so that the kernel's check of it is right.
    is_upper_owner: bool,
    /// True if the lower and the upper entry have equal rights.
    are_equal: bool,
}

impl EntryRights {
    /// Rights of an entry that was looked up; `None` if it is absent, or outside the view.
    pub(super) fn of(layer: Layer, found: &Resolved) -> Option<Self> {
        match found.entry {
            ViewEntry::Lower(stat) | ViewEntry::Indexed(stat) => Some(Self::plain(&stat, false)),
            ViewEntry::Merged(lower, upper) => Some(Self::both(&lower, &upper)),
            ViewEntry::Upper(upper) => Some(match original(layer, found, &upper) {
                Some(lower) => Self::both(&lower, &upper),
                None => Self::plain(&upper, true),
            }),
            _ => None,
        }
    }

    /// Rights of a directory of the view.
    pub(super) fn of_directory(directory: &ViewPath, state: DirectoryState) -> Result<Self> {
        Ok(match state {
            DirectoryState::Lower => Self::plain(&Stat::lower(directory)?, false),
            DirectoryState::Upper => Self::plain(&Stat::of_path(directory.upper_address())?, true),
            DirectoryState::Merged => {
                Self::both(&Stat::lower(directory)?, &Stat::of_path(directory.upper_address())?)
            }
        })
    }

    fn plain(stat: &Stat, is_upper_owner: bool) -> Self {
        let mode = stat.kind() | stat.mode();
        let (owner, attributes) = (stat.owner, stat.attributes);
        EntryRights { owner, mode, attributes, is_upper_owner, are_equal: false }
    }

    fn both(lower: &Stat, upper: &Stat) -> Self {
        // A process that can copy owners has done so, or has set another.
        let is_upper_owner = lower.owner == upper.owner || process_credentials::copies_owners();
        let owner = if is_upper_owner { upper.owner } else { lower.owner };
        let mode = upper.kind() | upper.mode();
        let are_equal =
            lower.owner == upper.owner && lower.mode() == upper.mode() && !lower.is_protected();
        EntryRights { owner, mode, attributes: lower.attributes, is_upper_owner, are_equal }
    }

    pub(super) fn kind(&self) -> u32 {
        self.mode & k::S_IFMT
    }

    pub(super) fn is_sticky(&self) -> bool {
        self.mode & k::S_ISVTX != 0
    }

    pub(super) fn is_immutable(&self) -> bool {
        self.attributes & k::STATX_ATTR_IMMUTABLE != 0
    }

    pub(super) fn is_append_only(&self) -> bool {
        self.attributes & k::STATX_ATTR_APPEND != 0
    }

    pub(super) fn are_equal(&self) -> bool {
        self.are_equal
    }

    pub(super) fn is_mount_point(&self) -> bool {
        self.attributes & k::STATX_ATTR_MOUNT_ROOT != 0
    }

    /// Fails with EPERM unless this process may do what is the owner's.
    pub(super) fn check_owner(&self) -> Result<()> {
        match process_credentials::user() == self.owner
            || process_credentials::has(Capability::Fowner)
        {
            true => Ok(()),
            false => Err(Errno(sys::EPERM)),
        }
    }

    /// Fails with EPERM if the entry is immutable or append-only.
    pub(super) fn check_changeable(&self) -> Result<()> {
        match self.is_immutable() || self.is_append_only() {
            true => Err(Errno(sys::EPERM)),
            false => Ok(()),
        }
    }

    /// Checks access as access(2) does, by the rights of the entry at `name`.
    pub(super) fn check_access(&self, name: &ViewPath, is_lower: bool, how: u32) -> Result<()> {
        if how & WRITE != 0 && self.is_immutable() {
            return Err(Errno(sys::EPERM));
        }
        let may = match is_lower || !self.is_upper_owner {
            true => kernel_calls::access_lower(name, how),
            // The permissions may have been changed in the try.
            false => kernel_calls::access(name.upper_address(), how),
        };
        may.map(drop)
    }

    /// Checks access to an entry that was looked up.
    pub(super) fn check_access_to(&self, found: &Resolved, how: u32) -> Result<()> {
        let is_lower = matches!(found.entry, ViewEntry::Lower(_) | ViewEntry::Indexed(_));
        self.check_access(&found.path, is_lower, how)
    }
}

/// Lower entry of which an upper entry of the same name is a copy, if the copy has not all its
/// rights.
fn original(layer: Layer, found: &Resolved, upper: &Stat) -> Option<Stat> {
    let is_covering = found.parent == DirectoryState::Merged
        && change_filter::filter(layer).has_copies_without_rights()
        && !whiteouts::is_whiteout(&found.path);
    let file = inode_numbers::file_in_view(layer, upper);
    if !is_covering || file == upper.origin().file {
        return None;
    }
    Stat::lower(&found.path).ok().filter(|lower| lower.origin().file == file)
}

/// Notes that the copy of a file has not all rights of its original, if that is so. Directories of
/// both trees are looked up in both.
pub(super) fn record_copy(layer: Layer, copy: &Stat, original: &Stat) {
    let lacks_rights = original.is_protected() || copy.owner != original.owner;
    if lacks_rights && !original.is_directory() {
        change_filter::filter(layer).note_copy_without_rights();
    }
}
