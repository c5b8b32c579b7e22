//! Calls that change a file's metadata. Landlock does not deny them; the seccomp filter allows them
//! only from the agent.

use linux_raw_sys::general as k;

use super::call_results::{self, Call, CallResult, answer_call};
use super::descriptor_cache::UpperFile;
use super::kernel_calls::{self, Stat};
use super::layer::Layer;
use super::path_walk::{self, WalkOptions};
use super::view_entry::{Resolved, ViewEntry};
use super::{
    attribute_permissions, change_filter, copy_up, descriptor_paths, inode_numbers, whiteouts,
};
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result, nr};

/// Object whose attributes a call changes.
enum AttributeTarget {
    /// Path at this argument, relative to a directory.
    Name { dir: Fd, argument: usize, follow: bool },
    /// Descriptor.
    Descriptor(Fd),
}

/// Handles all calls of this kind.
pub(super) fn change(layer: Layer, call: &Call) -> CallResult {
    let a = call.args;
    let at = |flags: u64| AttributeTarget::Name {
        dir: call.fd(0),
        argument: 1,
        follow: flags as u32 & k::AT_SYMLINK_NOFOLLOW == 0,
    };
    let path = |follow| AttributeTarget::Name { dir: AT_FDCWD, argument: 0, follow };
    let whose = match call.nr {
        nr::FCHMOD | nr::FCHOWN | nr::FSETXATTR | nr::FREMOVEXATTR => {
            AttributeTarget::Descriptor(call.fd(0))
        }
        nr::CHMOD | nr::CHOWN | nr::UTIME | nr::UTIMES | nr::SETXATTR | nr::REMOVEXATTR => {
            path(true)
        }
        nr::LCHOWN | nr::LSETXATTR | nr::LREMOVEXATTR => path(false),
        nr::UTIMENSAT | nr::FUTIMESAT if a[1] == 0 => AttributeTarget::Descriptor(call.fd(0)),
        nr::FCHMODAT | nr::FUTIMESAT => at(0),
        nr::UTIMENSAT | nr::FCHMODAT2 => at(a[3]),
        nr::FCHOWNAT => at(a[4]),
        _ => return Err(Errno(sys::ENOSYS)),
    };
    match whose {
        AttributeTarget::Descriptor(fd) => answer_call(call, change_descriptor(layer, call, fd)),
        AttributeTarget::Name { dir, argument, follow } => {
            let mut room = call_results::path_buffer();
            let text = call_results::read_path(a[argument], &mut room)?;
            let flags = match call.nr {
                nr::UTIMENSAT | nr::FCHMODAT2 => a[3],
                nr::FCHOWNAT => a[4],
                _ => 0,
            };
            if text.is_empty() && flags as u32 & k::AT_EMPTY_PATH != 0 {
                return answer_call(call, change_descriptor(layer, call, dir));
            }
            let look = WalkOptions { follow, ..path_walk::NO_FOLLOW };
            let found = path_walk::resolve(layer, dir, text, look)?;
            answer_call(call, change_resolved(layer, call, argument, found))
        }
    }
}

/// Makes a call with the token that the seccomp filter recognizes.
fn call_with_token(layer: Layer, number: u64, mut args: [u64; 6]) -> Result<u64> {
    args[5] = layer.token();
    // SAFETY: what the program asked for; a name is one of ours.
    sys::check(unsafe { sys::raw(number, args) })
}

fn change_resolved(layer: Layer, call: &Call, argument: usize, mut found: Resolved) -> Result<u64> {
    match found.entry {
        ViewEntry::Absent => return Err(Errno(sys::ENOENT)),
        ViewEntry::Outside if layer.is_nested_try(found.path.as_bytes()) => {
            let mut args = call.args;
            args[argument] = found.path.lower_address();
            return call_with_token(layer, call.nr, args);
        }
        ViewEntry::Outside | ViewEntry::Unchecked => {
            match descriptor_paths::descriptor_of_path(found.path.as_bytes()) {
                Some(fd) => return change_descriptor(layer, call, fd),
                None => return Err(Errno(sys::EPERM)),
            }
        }
        _ => {}
    }
    copy_up_permitted(layer, call, &mut found)?;
    let mut args = call.args;
    args[argument] = found.path.upper_address();
    let changed = call_with_token(layer, call.nr, args);
    forget_permissions(layer, &found);
    changed
}

/// Has all processes look up a directory anew whose permissions may have changed.
fn forget_permissions(layer: Layer, found: &Resolved) {
    if Resolved::directory(found).is_ok() {
        change_filter::filter(layer).invalidate_directories();
    }
}

/// Copies up the entry, if the program may make the change.
fn copy_up_permitted(layer: Layer, call: &Call, found: &mut Resolved) -> Result<()> {
    attribute_permissions::may_change(layer, call, found)?;
    let (ViewEntry::Lower(stat) | ViewEntry::Indexed(stat) | ViewEntry::Merged(stat, _)) =
        found.entry
    else {
        return Ok(());
    };
    if !stat.is_directory() {
        return copy_up::copy_up_file(layer, found, true);
    }
    whiteouts::record_origin(layer, &found.path, &stat.origin())?;
    copy_up::copy_up_directory(layer, &found.path)
}

/// Changes the file of a descriptor.
///
/// A file in the upper tree or without a name is changed directly. Others are changed in the upper
/// tree, by path.
fn change_descriptor(layer: Layer, call: &Call, fd: Fd) -> Result<u64> {
    let is_cached = layer == Layer::top() && fd != AT_FDCWD;
    let file = is_cached.then(|| UpperFile::of(fd));
    if let Some(file) = &file
        && file.is_known()
        && !change_filter::filter(layer).has_copies_without_rights()
    {
        return call_with_token(layer, call.nr, call.args);
    }
    let mut room = call_results::path_buffer();
    let path = match fd {
        AT_FDCWD => sys::getcwd(&mut room).map(|len| len.saturating_sub(1)),
        fd => descriptor_paths::path_of_descriptor(fd, &mut room),
    };
    let len = path.map_err(|_| Errno(sys::EBADF))?.min(room.len() - 1);
    let path = &room[..len];
    if let Some(file) = file
        && layer.strip_upper(path).is_some()
    {
        file.note();
    }
    let same = |stat: &Stat, other: &Stat| stat.origin().file == other.origin().file;
    if let Some(viewed) = layer.strip_upper(path)
        && change_filter::filter(layer).has_copies_without_rights()
        && let Ok(found) = path_walk::resolve(layer, AT_FDCWD, viewed, path_walk::NO_FOLLOW)
        && let (ViewEntry::Upper(stat), Ok(of_fd)) = (&found.entry, Stat::of_fd(fd))
        && same(stat, &of_fd)
    {
        attribute_permissions::may_change(layer, call, &found)?;
    }
    let is_elsewhere = |found: &Resolved| {
        let of_fd = Stat::of_lower_fd(layer, fd);
        match (&found.entry, of_fd) {
            (ViewEntry::Lower(stat) | ViewEntry::Merged(stat, _), Ok(of_fd)) => !same(stat, &of_fd),
            _ => true,
        }
    };
    if path.first() == Some(&b'/')
        && layer.strip_upper(path).is_none()
        && !layer.is_in_index(path)
        && !layer.is_nested_try(path)
    {
        if let Ok(mut found) = path_walk::resolve(layer, AT_FDCWD, path, path_walk::NO_FOLLOW)
            && !matches!(found.entry, ViewEntry::Outside)
        {
            if let ViewEntry::Upper(stat) = &found.entry
                && let Ok(of_fd) = Stat::of_lower_fd(layer, fd)
                && inode_numbers::file_in_view(layer, stat) == of_fd.origin().file
            {
                // It was copied up after it was opened.
                attribute_permissions::may_change(layer, call, &found)?;
                return change_by_path(layer, call, found.path.upper_address());
            }
            if !is_elsewhere(&found) {
                copy_up_permitted(layer, call, &mut found)?;
                let changed = change_by_path(layer, call, found.path.upper_address());
                forget_permissions(layer, &found);
                return changed;
            }
        }
        if path.starts_with(b"/proc/") || path.starts_with(b"/sys/") {
            return Err(Errno(sys::EPERM));
        }
        // The view removed or replaced the file and the lower tree still has it, unchanged. The
        // change would be visible to no other process.
        if let (Ok(there), Ok(of_fd)) = (Stat::of_path(path.as_ptr() as u64), Stat::of_fd(fd))
            && same(&there, &of_fd)
        {
            return Ok(0);
        }
    }
    call_with_token(layer, call.nr, call.args)
}

/// Makes the call of a descriptor by path.
fn change_by_path(layer: Layer, call: &Call, path: u64) -> Result<u64> {
    let token = layer.token();
    let [_, b, c, d, e, _] = call.args;
    match call.nr {
        nr::FCHMOD => kernel_calls::chmod(path, b as u32, token),
        nr::FCHMODAT2 => kernel_calls::chmod(path, c as u32, token),
        nr::FCHOWN => kernel_calls::chown(path, b as u32, c as u32, token),
        nr::FCHOWNAT => kernel_calls::chown(path, c as u32, d as u32, token),
        nr::FSETXATTR => call_with_token(layer, nr::LSETXATTR, [path, b, c, d, e, 0]),
        nr::FREMOVEXATTR => call_with_token(layer, nr::LREMOVEXATTR, [path, b, 0, 0, 0, 0]),
        number => {
            let flags = match number {
                nr::UTIMENSAT => u64::from(k::AT_SYMLINK_NOFOLLOW),
                _ => 0,
            };
            call_with_token(layer, number, [AT_FDCWD as u64, path, c, flags, 0, 0])
        }
    }
}
