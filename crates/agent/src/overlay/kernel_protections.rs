//! Protections of links, and of files in directories that all may write to: `fs.protected_*`
//! (proc_sys_fs(5)). A setting that cannot be read counts as on.

use linux_raw_sys::general as k;

use super::entry_rights::{EntryRights, READ, WRITE};
use super::kernel_calls::{OpenFile, syscall};
use super::layer::Layer;
use super::process_credentials;
use super::view_entry::Resolved;
use crate::sys::{self, Errno, Result, nr};

/// Reads a setting, which is one digit.
fn setting(path: &core::ffi::CStr) -> u8 {
    let mut digit = [b'1'];
    if let Ok(file) = OpenFile::at(path.as_ptr() as u64, k::O_RDONLY, 0) {
        let _ = syscall!(nr::READ, file.0, digit.as_mut_ptr(), 1);
    }
    digit[0].saturating_sub(b'0')
}

/// Checks that a link to the file may be made: it is the user's, or an ordinary one that the user
/// may read and write.
pub(super) fn may_link(layer: Layer, found: &Resolved) -> Result<()> {
    let Some(rights) = EntryRights::of(layer, found) else { return Ok(()) };
    let special = |bits: u32| rights.mode & bits == bits;
    let is_safe = rights.kind() == k::S_IFREG
        && !special(k::S_ISUID)
        && !special(k::S_ISGID | k::S_IXGRP)
        && rights.check_access_to(found, READ | WRITE).is_ok();
    match is_safe || setting(c"/proc/sys/fs/protected_hardlinks") == 0 {
        true => Ok(()),
        false => rights.check_owner(),
    }
}

/// Checks that the symbolic link at the end of a path may be followed. In a sticky directory that
/// all may write to it must be the user's, or the directory's owner's.
pub(super) fn may_follow(found: &mut Resolved) -> Result<()> {
    const OF_ALL: u32 = k::S_ISVTX | k::S_IWOTH;
    let (Some(owner), user) = (found.stat().map(|link| link.owner), process_credentials::user())
    else {
        return Ok(());
    };
    if owner == user {
        return Ok(());
    }
    let directory = parent_rights(found)?;
    let is_protected = directory.mode & OF_ALL == OF_ALL && directory.owner != owner;
    match is_protected && setting(c"/proc/sys/fs/protected_symlinks") != 0 {
        true => Err(Errno(sys::EACCES)),
        false => Ok(()),
    }
}

/// Checks that an open with `O_CREAT` may open the entry, which exists. In a sticky directory that
/// others may write to, a regular file or a named pipe must be the user's, or the directory's
/// owner's.
pub(super) fn may_open_to_create(layer: Layer, found: &mut Resolved) -> Result<()> {
    let Some(entry) = EntryRights::of(layer, found) else { return Ok(()) };
    let path = match entry.kind() {
        k::S_IFREG => c"/proc/sys/fs/protected_regular",
        k::S_IFIFO => c"/proc/sys/fs/protected_fifos",
        _ => return Ok(()),
    };
    let user = process_credentials::user();
    if entry.owner == user {
        return Ok(());
    }
    let directory = parent_rights(found)?;
    if !directory.is_sticky() || directory.owner == entry.owner {
        return Ok(());
    }
    let is_refused = match setting(path) {
        0 => false,
        _ if directory.mode & k::S_IWOTH != 0 => true,
        level => level > 1 && directory.mode & k::S_IWGRP != 0,
    };
    if is_refused { Err(Errno(sys::EACCES)) } else { Ok(()) }
}

fn parent_rights(found: &mut Resolved) -> Result<EntryRights> {
    let state = found.parent;
    found.path.with_parent(|parent| EntryRights::of_directory(parent, state))
}
