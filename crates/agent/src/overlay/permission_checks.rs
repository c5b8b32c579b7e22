//! Permission checks as the kernel would make them in the lower tree. They are needed because the
//! upper tree's directories belong to the user.

use linux_raw_sys::general as k;

use super::directory_cache::DirectoryState;
use super::kernel_calls::{self, Stat};
use super::view_entry::Resolved;
use crate::sys::{self, Errno, Result};

/// Modes of access(2).
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
        // The owner may have changed the permissions: then the upper directory has them.
        let is_own = is_merged && Stat::lower(parent)?.owner == effective_user();
        let may = match is_own {
            true => kernel_calls::access(parent.upper_address(), WRITE | SEARCH),
            false => kernel_calls::access_lower(parent, WRITE | SEARCH),
        };
        may.map(drop)
    })
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
