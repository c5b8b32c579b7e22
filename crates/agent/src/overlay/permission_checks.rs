//! Permission checks as the kernel would make them in the lower tree. They are needed because the
//! upper tree's directories belong to the user.

use linux_raw_sys::general as k;

use super::directory_cache::DirectoryState;
use super::kernel_calls::{self, Stat};
use super::view_entry::{Resolved, ViewEntry};
use super::view_path::ViewPath;
use crate::sys::{self, Errno, Result};

/// Modes of access(2).
const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;

fn effective(ids: Result<[u32; 3]>) -> u32 {
    ids.map_or(u32::MAX, |[_, effective, _]| effective)
}

/// Effective user ID.
pub(super) fn effective_user() -> u32 {
    effective(sys::users())
}

/// Checks that entries may be created in the parent directory.
pub(super) fn may_create(found: &mut Resolved) -> Result<()> {
    if found.parent == DirectoryState::Upper {
        return Ok(());
    }
    let is_merged = found.parent == DirectoryState::Merged;
    found.path.with_parent(|parent| {
        let may = match is_merged && upper_decides(&Stat::lower(parent)?) {
            true => kernel_calls::access(parent.upper_address(), WRITE | SEARCH),
            false => kernel_calls::access_lower(parent, WRITE | SEARCH),
        };
        may.map(drop)
    })
}

/// True if the upper directory decides about access to a merged one. The owner may have changed the
/// permissions: then the upper directory has them. Others' directories have an upper one that
/// belongs to this user.
pub(super) fn upper_decides(lower: &Stat) -> bool {
    lower.owner == effective_user()
}

/// Checks that names may be looked up in a directory. The kernel checks it when an entry is looked
/// up, except for permissions that the try has taken away from a merged directory.
pub(super) fn may_search(found: &Resolved) -> Result<()> {
    may_access_merged(found, SEARCH)
}

/// Checks that `.` and `..` may be looked up in a directory: the walk does not ask the kernel.
pub(super) fn may_pass(directory: &ViewPath, state: DirectoryState) -> Result<()> {
    if effective_user() == 0 {
        return Ok(());
    }
    let in_upper = match state {
        DirectoryState::Lower => false,
        DirectoryState::Merged => upper_decides(&Stat::lower(directory)?),
        DirectoryState::Upper => true,
    };
    let may = match in_upper {
        true => kernel_calls::access(directory.upper_address(), SEARCH),
        false => kernel_calls::access_lower(directory, SEARCH),
    };
    may.map(drop)
}

/// Checks that a directory may be listed, as [`may_search`] does.
pub(super) fn may_list(found: &Resolved) -> Result<()> {
    may_access_merged(found, READ)
}

fn may_access_merged(found: &Resolved, how: u32) -> Result<()> {
    match &found.entry {
        ViewEntry::Merged(lower, upper) if lower.mode() != upper.mode() && upper_decides(lower) => {
            kernel_calls::access(found.path.upper_address(), how).map(drop)
        }
        _ => Ok(()),
    }
}

/// Checks that the entry may be removed from its parent directory.
pub(super) fn may_remove(found: &mut Resolved) -> Result<()> {
    may_create(found)?;
    if found.parent == DirectoryState::Upper {
        return Ok(());
    }
    let Some(owner) = found.stat().map(|stat| stat.owner) else { return Ok(()) };
    let parent = found.path.with_parent(|parent| Stat::lower(parent))?;
    let (is_sticky, user) = (parent.mode() & k::S_ISVTX != 0, effective_user());
    match is_sticky && user != 0 && user != owner && user != parent.owner {
        true => Err(Errno(sys::EPERM)),
        false => Ok(()),
    }
}

/// Checks that the file of the lower tree may be written to.
pub(super) fn may_write(found: &Resolved) -> Result<()> {
    kernel_calls::access_lower(&found.path, WRITE).map(drop)
}

/// Checks that the user may change the metadata of a file of the lower tree.
pub(super) fn check_owner(stat: &Stat) -> Result<()> {
    let user = effective_user();
    if user == 0 || user == stat.owner { Ok(()) } else { Err(Errno(sys::EPERM)) }
}
