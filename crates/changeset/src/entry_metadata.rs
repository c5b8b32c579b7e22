//! Owners, permissions, extended attributes and times of entries.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::held_tree::HeldEntry;
use crate::readable_entry::ReadableEntry;

/// True if a process of the try could set the file's owners, so that the copy has those that the
/// command asked for. Else the copy belongs to the user.
pub(crate) fn could_change_owner(there: &Metadata) -> bool {
    rustix::process::geteuid().is_root() || (is_own(there) && is_own_group(there.gid()))
}

/// True if the file belongs to this user, or this is root.
pub(crate) fn is_own(there: &Metadata) -> bool {
    let user = rustix::process::geteuid();
    user.is_root() || there.uid() == user.as_raw()
}

/// True if this process belongs to the group.
fn is_own_group(group: u32) -> bool {
    let is_it = |own: rustix::process::Gid| own.as_raw() == group;
    is_it(rustix::process::getegid())
        || rustix::process::getgroups().is_ok_and(|groups| groups.into_iter().any(is_it))
}

/// Copies owner, permissions and extended attributes of `from`, whose metadata is `found`, to `to`.
/// An owner or group that the user cannot give is left out.
pub(crate) fn copy_metadata(from: &HeldEntry, to: &HeldEntry, found: &Metadata) -> io::Result<()> {
    let there = to.metadata()?;
    // A kept copy of another user's file belongs to this user.
    let may_give = could_change_owner(&there) && could_change_owner(found);
    if may_give && (there.uid(), there.gid()) != (found.uid(), found.gid()) {
        to.set_owners(found.uid(), found.gid())?;
    }
    let _readable = ReadableEntry::new(from, found)?;
    let (from, path) = (from.path_through_descriptor(), to.path_through_descriptor());
    copy_attributes(&from, &path, there.dev() == found.dev())?;
    // Owners and access control lists have an effect on it.
    if found.is_symlink() { Ok(()) } else { to.change_mode(found.mode()) }
}

/// Metadata of an entry, kept so that a change can be taken back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeptMetadata {
    owners: (u32, u32),
    mode: u32,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    modified: (i64, i64),
}

impl KeptMetadata {
    /// Metadata that the entry has.
    pub(crate) fn of(entry: &HeldEntry) -> io::Result<Self> {
        let found = entry.metadata()?;
        Ok(KeptMetadata {
            owners: (found.uid(), found.gid()),
            mode: found.mode(),
            attributes: attributes(&entry.path_through_descriptor()),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }

    /// Gives the entry this metadata again.
    pub(crate) fn apply(&self, entry: &HeldEntry) -> io::Result<()> {
        let found = entry.metadata()?;
        if (found.uid(), found.gid()) != self.owners {
            entry.set_owners(self.owners.0, self.owners.1)?;
        }
        set_attributes(&self.attributes, &entry.path_through_descriptor(), |_| true)?;
        entry.change_mode(self.mode)?;
        entry.set_times(&modified_at(self.modified))
    }
}

/// Access and modification times of `found`.
pub(crate) fn times_of(found: &Metadata) -> Timestamps {
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    Timestamps {
        last_access: time(found.atime(), found.atime_nsec()),
        last_modification: time(found.mtime(), found.mtime_nsec()),
    }
}

/// Modification time alone: seconds and nanoseconds.
pub(crate) fn modified_at((seconds, nanoseconds): (i64, i64)) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ },
    }
}

/// Bytes of an attribute's value that all file systems with attributes have room for.
const SHORT: usize = 512;

/// Attribute that is set for a moment, to see whether a value is too long. No copy gets it.
const PROBE: &str = "user.runahead-probe";

/// Limit in bytes of the list of attributes' names, and of one attribute (xattr(7)).
const ATTRIBUTES_MAX: usize = 64 << 10;

/// Returns the names and values of extended attributes, sorted. Of a symbolic link, its own.
fn attributes(of: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0u8; ATTRIBUTES_MAX];
    let len = rustix::fs::llistxattr(of, &mut names[..]).unwrap_or(0);
    if len == 0 {
        return Vec::new();
    }
    let mut value = vec![0u8; ATTRIBUTES_MAX];
    let names = names[..len].split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty() && *name != PROBE.as_bytes());
    let mut all: Vec<_> = names
        .filter_map(|name| {
            let len = rustix::fs::lgetxattr(of, name, &mut value[..]).ok()?;
            Some((name.to_vec(), value[..len].to_vec()))
        })
        .collect();
    all.sort();
    all
}

/// True if two files have the same extended attributes.
pub(crate) fn have_same_attributes(a: &Path, b: &Path) -> bool {
    attributes(a) == attributes(b)
}

/// Gives `to` the extended attributes of `from`, access control lists among them. Those that `from`
/// lacks are removed, unless its file system could not have kept them.
fn copy_attributes(from: &Path, to: &Path, is_one_file_system: bool) -> io::Result<()> {
    set_attributes(&attributes(from), to, |(name, value)| {
        is_one_file_system || can_keep(from, name, value)
    })
}

/// True if the file at `path` can have this attribute, which it lacks.
fn can_keep(path: &Path, name: &[u8], value: &[u8]) -> bool {
    // To set an access control list would change the permissions. Nor may all set attributes.
    if !name.starts_with(b"user.") || value.len() <= SHORT {
        return rustix::fs::lgetxattr(path, name, &mut [0u8; 0]) == Err(Errno::NODATA);
    }
    let flags = rustix::fs::XattrFlags::empty();
    let is_set = rustix::fs::lsetxattr(path, PROBE, value, flags).is_ok();
    is_set && rustix::fs::lremovexattr(path, PROBE).is_ok()
}

/// Gives the entry at `to` these attributes. Others of it are removed if `is_removed` says so.
fn set_attributes(
    wanted: &[(Vec<u8>, Vec<u8>)],
    to: &Path,
    is_removed: impl Fn(&(Vec<u8>, Vec<u8>)) -> bool,
) -> io::Result<()> {
    let there = attributes(to);
    for (name, value) in wanted.iter().filter(|attribute| !there.contains(attribute)) {
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::lsetxattr(to, &name[..], value, flags) {
            // The kernel's security modules set theirs anew.
            Err(_) if !is_users(name) => {}
            set => set?,
        }
    }
    let is_extra = |name: &[u8]| is_users(name) && !wanted.iter().any(|(other, _)| other == name);
    for attribute in there.iter().filter(|(name, _)| is_extra(name)) {
        if is_removed(attribute) {
            rustix::fs::lremovexattr(to, &attribute.0[..])?;
        }
    }
    Ok(())
}

/// True if attributes of this name are set by users, or by root alone, and not by the kernel.
fn is_users(name: &[u8]) -> bool {
    [&b"user."[..], b"trusted.", b"system.posix_acl_"].iter().any(|kind| name.starts_with(kind))
}
