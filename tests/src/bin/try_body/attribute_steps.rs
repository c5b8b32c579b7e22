//! Steps that change permissions, owners, times, extended attributes and access control lists.

use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use crate::step_context::{Context, Kind, Result, done};

/// Access control lists in the kernel's form (linux/posix_acl_xattr.h): owner rwx, user 65534 rw or
/// rwx, group r-x, mask rwx, others nothing or r-x.
const LISTS: [&[(u16, u16, u32)]; 2] = [
    &[(1, 7, NO_ID), (2, 6, 65534), (4, 5, NO_ID), (16, 7, NO_ID), (32, 0, NO_ID)],
    &[(1, 7, NO_ID), (2, 7, 65534), (4, 4, NO_ID), (16, 6, NO_ID), (32, 5, NO_ID)],
];
/// Attribute that holds the access control list of what is made in a directory.
const DEFAULT_LIST: &str = "system.posix_acl_default";

const NO_ID: u32 = u32::MAX;

pub const KINDS: &[Kind] = &[
    Kind { name: "chmod", run: chmod },
    Kind { name: "chmod", run: chmod },
    Kind { name: "chown", run: |context| owner(context, AtFlags::empty()) },
    Kind { name: "lchown", run: |context| owner(context, AtFlags::SYMLINK_NOFOLLOW) },
    Kind { name: "chgrp", run: group },
    Kind { name: "set-attribute", run: set_attribute },
    Kind { name: "set-link-attribute", run: set_link_attribute },
    Kind { name: "remove-attribute", run: remove_attribute },
    Kind { name: "attribute", run: get_attribute },
    Kind { name: "attributes", run: list_attributes },
    Kind { name: "access-list", run: |context| set_list(context, "system.posix_acl_access") },
    Kind { name: "default-list", run: |context| set_list(context, DEFAULT_LIST) },
    Kind { name: "remove-default-list", run: remove_list },
    Kind { name: "set-times", run: |context| set_times(context, AtFlags::empty()) },
    Kind { name: "set-link-times", run: |context| set_times(context, AtFlags::SYMLINK_NOFOLLOW) },
    Kind { name: "touch", run: touch },
    Kind { name: "umask", run: umask },
];

fn chmod(context: &mut Context) -> Result {
    // An ordinary user keeps all rights to a directory: without them it cannot be renamed in a try,
    // or files in it are committed in place (docs/guide/try.md).
    let path = context.path();
    let modes = [0o644, 0o600, 0o755, 0o444, 0, 0o4755, 0o2755, 0o1777, 0o500];
    let mode = context.one_of(&modes);
    let is_user = !rustix::process::geteuid().is_root();
    let is_kept = is_user && std::fs::metadata(&path).is_ok_and(|found| found.is_dir());
    let mode = if is_kept { mode | 0o700 } else { mode };
    done(rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty()))
}

fn owner(context: &mut Context, flags: AtFlags) -> Result {
    let path = context.path();
    let user = Uid::from_raw(context.one_of(&[0, 65534, 1234]));
    let group = context.one_of(&[None, Some(Gid::from_raw(2000))]);
    done(rustix::fs::chownat(CWD, path, Some(user), group, flags))
}

fn group(context: &mut Context) -> Result {
    let path = context.path();
    let group = Gid::from_raw(context.one_of(&[2000, 2001, 65534, 77]));
    done(rustix::fs::chownat(CWD, path, None, Some(group), AtFlags::SYMLINK_NOFOLLOW))
}

fn set_attribute(context: &mut Context) -> Result {
    let path = context.path();
    let name = context.one_of(&["user.one", "user.two"]);
    let flags = context.one_of(&[XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE]);
    done(rustix::fs::setxattr(path, name, &context.random.bytes(40), flags))
}

fn set_link_attribute(context: &mut Context) -> Result {
    let path = context.path();
    let name = context.one_of(&["user.one", "trusted.one"]);
    done(rustix::fs::lsetxattr(path, name, b"value", XattrFlags::empty()))
}

fn remove_attribute(context: &mut Context) -> Result {
    let path = context.path();
    done(rustix::fs::removexattr(path, context.one_of(&["user.one", "user.two"])))
}

fn get_attribute(context: &mut Context) -> Result {
    let path = context.path();
    let mut value = [0; 100];
    let count = rustix::fs::getxattr(path, context.one_of(&["user.one", "user.two"]), &mut value)?;
    Ok(String::from_utf8_lossy(&value[..count]).into_owned())
}

fn list_attributes(context: &mut Context) -> Result {
    let mut names = [0; 500];
    let count = rustix::fs::llistxattr(context.path(), &mut names)?;
    let text = String::from_utf8_lossy(&names[..count]).into_owned();
    let mut names: Vec<&str> = text.split_terminator('\0').collect();
    names.sort_unstable();
    Ok(names.join(" "))
}

/// Bytes of an access control list as an extended attribute.
pub fn list_bytes(list: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in list {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set_list(context: &mut Context, name: &str) -> Result {
    let path = if name == DEFAULT_LIST { directory_path(context) } else { context.path() };
    let list = LISTS[context.number(2) as usize];
    done(rustix::fs::setxattr(path, name, &list_bytes(list), XattrFlags::empty()))
}

fn remove_list(context: &mut Context) -> Result {
    done(rustix::fs::removexattr(directory_path(context), DEFAULT_LIST))
}

/// Random path that leads to a directory, if to anything: what else is given a default access
/// control list fails in ways of its own.
fn directory_path(context: &mut Context) -> String {
    let path = context.path();
    format!("{}/.", path.trim_end_matches('/'))
}

fn set_times(context: &mut Context, flags: AtFlags) -> Result {
    let path = context.path();
    let at = |tv_sec| Timespec { tv_sec, tv_nsec: 123_456_789 };
    let omitted = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ };
    let last_modification = match context.number(4) {
        0 => omitted,
        year => at(year as i64 * 31_000_000),
    };
    let times = Timestamps { last_access: at(9), last_modification };
    done(rustix::fs::utimensat(CWD, path, &times, flags))
}

fn touch(context: &mut Context) -> Result {
    let path = context.path();
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW as _ };
    let times = Timestamps { last_access: now, last_modification: now };
    done(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()))
}

fn umask(context: &mut Context) -> Result {
    let mask = context.one_of(&[0o022, 0o077, 0, 0o002]);
    let before = rustix::process::umask(Mode::from_raw_mode(mask));
    Ok(format!("{:o}", before.bits()))
}
