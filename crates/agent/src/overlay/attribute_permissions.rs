//! Permission checks of calls that change metadata, as the kernel makes them of the lower entry.

use linux_raw_sys::general as k;

use super::call_results::{self, Call};
use super::change_filter;
use super::entry_rights::{EntryRights, WRITE};
use super::layer::Layer;
use super::process_credentials::{self, Capability};
use super::view_entry::{Resolved, ViewEntry};
use crate::sys::{self, Errno, Result, nr};

/// Checks that the program may make the change to the entry.
pub(super) fn may_change(layer: Layer, call: &Call, found: &Resolved) -> Result<()> {
    let is_upper = matches!(found.entry, ViewEntry::Upper(_));
    if is_upper && !change_filter::filter(layer).has_copies_without_rights() {
        // The kernel checks the upper entry.
        return Ok(());
    }
    let Some(entry) = EntryRights::of(layer, found) else { return Ok(()) };
    let a = call.args;
    match call.nr {
        nr::CHOWN | nr::LCHOWN | nr::FCHOWN | nr::FCHOWNAT => may_set_owner(&entry),
        nr::UTIME | nr::UTIMES => may_set_times(&entry, found, a[1] == 0),
        nr::FUTIMESAT => may_set_times(&entry, found, a[2] == 0),
        nr::UTIMENSAT => may_set_times(&entry, found, is_touch(a[2])?),
        nr::SETXATTR
        | nr::LSETXATTR
        | nr::FSETXATTR
        | nr::REMOVEXATTR
        | nr::LREMOVEXATTR
        | nr::FREMOVEXATTR => may_set_attribute(&entry, found, a[1]),
        _ => {
            entry.check_changeable()?;
            entry.check_owner()
        }
    }
}

/// The kernel checks the new owner and group of the copy.
fn may_set_owner(entry: &EntryRights) -> Result<()> {
    entry.check_changeable()?;
    match process_credentials::user() == entry.owner || process_credentials::has(Capability::Chown)
    {
        true => Ok(()),
        false => Err(Errno(sys::EPERM)),
    }
}

/// True if the times at an address, two `struct timespec`, are those of now.
fn is_touch(times: u64) -> Result<bool> {
    const NOW: u64 = k::UTIME_NOW as u64;
    if times == 0 {
        return Ok(true);
    }
    let [_, accessed, _, modified]: [u64; 4] = sys::copy_in(times)?;
    Ok(accessed == NOW && modified == NOW)
}

fn may_set_times(entry: &EntryRights, found: &Resolved, is_touch: bool) -> Result<()> {
    if !is_touch {
        entry.check_changeable()?;
        return entry.check_owner();
    }
    match entry.check_owner() {
        _ if entry.is_immutable() => Err(Errno(sys::EPERM)),
        Ok(()) => Ok(()),
        // Write permission is enough.
        Err(_) => entry.check_access_to(found, WRITE),
    }
}

fn may_set_attribute(entry: &EntryRights, found: &Resolved, name: u64) -> Result<()> {
    let mut room = call_results::path_buffer();
    let name = call_results::read_path(name, &mut room)?;
    entry.check_changeable()?;
    let has_prefix = |prefix: &[u8]| name.starts_with(prefix);
    if has_prefix(b"user.") {
        let is_directory = entry.kind() == k::S_IFDIR;
        if !is_directory && entry.kind() != k::S_IFREG {
            return Err(Errno(sys::EPERM));
        }
        if is_directory && entry.is_sticky() {
            entry.check_owner()?;
        }
        return entry.check_access_to(found, WRITE);
    }
    match name {
        _ if has_prefix(b"system.") => entry.check_owner(),
        _ if has_prefix(b"trusted.") && !process_credentials::has(Capability::SysAdmin) => {
            Err(Errno(sys::EPERM))
        }
        // The kernel decides by the process's capabilities, or does not know the attribute.
        _ => Ok(()),
    }
}
