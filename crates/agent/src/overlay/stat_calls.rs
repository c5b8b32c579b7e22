//! Calls that read metadata by name.

use linux_raw_sys::general as k;
use runahead_abi::overlay::{Origin, ReadKind};

use super::call_results::{self, Call, CallResult, answer_attempt, answer_call, copy_to_program};
use super::change_filter;
use super::inode_numbers;
use super::kernel_calls::{Stat, lower_syscall, syscall};
use super::layer::Layer;
use super::link_index::IndexPath;
use super::lower_layer;
use super::path_walk::{self, WalkOptions};
use super::permission_checks;
use super::process_credentials;
use super::recorded_calls;
use super::view_entry::{Resolved, ViewEntry};
use crate::plane::{self, Verdict};
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result, nr};

/// Path argument of a call.
#[derive(Clone, Copy)]
pub(super) struct PathArgument {
    pub dir: Fd,
    /// Index of the argument that is the path's address.
    pub argument: usize,
    pub follow: bool,
}

impl PathArgument {
    fn lookup(&self) -> WalkOptions {
        WalkOptions { follow: self.follow, check: self.follow, ..path_walk::NO_FOLLOW }
    }
}

/// Makes the call with the path by which the kernel finds the entry of the view.
pub(super) fn redirect(layer: Layer, call: &Call, name: PathArgument) -> CallResult {
    if change_filter::filter(layer).is_empty() {
        return Ok(Verdict::NATIVE);
    }
    let mut room = call_results::path_buffer();
    let text = call_results::read_path(call.args[name.argument], &mut room)?;
    let found = path_walk::resolve(layer, name.dir, text, name.lookup())?;
    redirect_resolved(layer, call, name.argument, &found)
}

/// Handles chdir(2).
pub(super) fn change_directory(layer: Layer, call: &Call, name: PathArgument) -> CallResult {
    let mut room = call_results::path_buffer();
    let text = call_results::read_path(call.args[name.argument], &mut room)?;
    let kind = ReadKind::Existence;
    let found = recorded_calls::resolve(layer, name.dir, text, name.lookup(), kind)?;
    let Some(found) = found else { return Ok(Verdict::NATIVE) };
    permission_checks::may_search(layer, &found)?;
    redirect_resolved(layer, call, name.argument, &found)
}

/// Does the same as [`redirect`] for a path that was resolved.
fn redirect_resolved(layer: Layer, call: &Call, argument: usize, found: &Resolved) -> CallResult {
    let mut args = call.args;
    let ret = match found.entry {
        ViewEntry::Absent => return Err(Errno(sys::ENOENT)),
        ViewEntry::Merged(lower, _) if !upper_answers(call, &lower) => {
            args[argument] = found.path.lower_address();
            // SAFETY: what the program asked for, of a name of ours.
            unsafe { lower_layer::attempt_lower(layer, call, call.nr, &args) }
        }
        ViewEntry::Upper(_) | ViewEntry::Merged(..) => {
            args[argument] = found.path.upper_address();
            // SAFETY: what the program asked for, of a name of ours.
            unsafe { call.attempt(call.nr, &args) }
        }
        ViewEntry::Indexed(stat) => {
            let copy = IndexPath::new(layer, &stat);
            args[argument] = copy.address();
            // SAFETY: what the program asked for, of a name of ours.
            unsafe { call.attempt(call.nr, &args) }
        }
        _ if found.kernel_agrees => return Ok(Verdict::NATIVE),
        _ => {
            args[argument] = found.path.lower_address();
            // SAFETY: what the program asked for, of a name of ours.
            unsafe { lower_layer::attempt_lower(layer, call, call.nr, &args) }
        }
    };
    Ok(answer_attempt(call, ret))
}

/// True if a call about a merged directory is answered by the upper one: it has the extended
/// attributes, and the owner's permissions.
fn upper_answers(call: &Call, lower: &Stat) -> bool {
    match call.nr {
        nr::GETXATTR | nr::LGETXATTR | nr::LISTXATTR | nr::LLISTXATTR => true,
        nr::ACCESS | nr::FACCESSAT | nr::FACCESSAT2 => {
            let user = process_credentials::user();
            // An immutable directory cannot be written to, whatever its copy allows.
            user != 0 && user == lower.owner && !lower.is_protected()
        }
        _ => false,
    }
}

/// Handles access(2), faccessat(2) and faccessat2(2).
pub(super) fn access(layer: Layer, call: &Call, name: PathArgument) -> CallResult {
    if call.nr == nr::FACCESSAT2 && call.args[3] as u32 & k::AT_EMPTY_PATH != 0 {
        let first: u8 = sys::copy_in(call.args[1])?;
        if first == 0 {
            return Ok(Verdict::NATIVE);
        }
    }
    let mut room = call_results::path_buffer();
    let text = call_results::read_path(call.args[name.argument], &mut room)?;
    let kind = ReadKind::Existence;
    let found = recorded_calls::resolve(layer, name.dir, text, name.lookup(), kind)?;
    let Some(found) = found else { return Ok(Verdict::NATIVE) };
    redirect_resolved(layer, call, name.argument, &found)
}

/// Handles readlink(2) and readlinkat(2).
pub(super) fn read_link(layer: Layer, call: &Call, name: PathArgument) -> CallResult {
    let mut room = call_results::path_buffer();
    let text = call_results::read_path(call.args[name.argument], &mut room)?;
    if text.is_empty() && call.nr == nr::READLINKAT {
        return Ok(Verdict::NATIVE);
    }
    let look = WalkOptions { check: false, ..path_walk::NO_FOLLOW };
    let found = recorded_calls::resolve(layer, name.dir, text, look, ReadKind::Entry)?;
    let Some(found) = found else { return Ok(Verdict::NATIVE) };
    if !matches!(found.entry, ViewEntry::Outside) {
        return redirect_resolved(layer, call, name.argument, &found);
    }
    // The kernel may report a path in the upper tree.
    let mut link = call_results::path_buffer();
    let path =
        if found.kernel_agrees { call.args[name.argument] } else { found.path.lower_address() };
    let len = sys::readlinkat(name.dir, path, &mut link)?;
    let Some(viewed) = layer.view_of_upper(&link[..len]) else {
        return redirect_resolved(layer, call, name.argument, &found);
    };
    let [to, room] = [call.args[name.argument + 1], call.args[name.argument + 2]];
    if room as i32 <= 0 {
        return Err(Errno(sys::EINVAL));
    }
    let text = &viewed[..viewed.len().min(room as usize)];
    copy_to_program(text, to)?;
    answer_call(call, Ok(text.len() as u64))
}

/// Offsets in bytes of the mode in the results of stat(2) and statx(2).
const MODE_AT: u64 = core::mem::offset_of!(k::stat, st_mode) as u64;
const STATX_MODE_AT: u64 = core::mem::offset_of!(k::statx, stx_mode) as u64;

/// Handles stat(2), lstat(2), fstat(2), newfstatat(2) and statx(2).
pub(super) fn stat(layer: Layer, call: &Call) -> CallResult {
    let a = call.args;
    let (dir, argument, flags) = match call.nr {
        nr::FSTAT => return inode_numbers::fstat(layer, call),
        nr::STAT => (AT_FDCWD, 0, 0),
        nr::LSTAT => (AT_FDCWD, 0, k::AT_SYMLINK_NOFOLLOW),
        nr::NEWFSTATAT => (call.fd(0), 1, a[3] as u32),
        _ => (call.fd(0), 1, a[2] as u32),
    };
    // The kernel accepts a null address as an empty path.
    let may_be_empty = flags & k::AT_EMPTY_PATH != 0;
    if may_be_empty && a[1] == 0 {
        return inode_numbers::fstat(layer, call);
    }
    let follow = flags & k::AT_SYMLINK_NOFOLLOW == 0;
    let mut room = call_results::path_buffer();
    let text = call_results::read_path(a[argument], &mut room)?;
    if may_be_empty && text.is_empty() {
        return inode_numbers::fstat(layer, call);
    }
    let look = WalkOptions { follow, check: false, ..path_walk::NO_FOLLOW };
    let first = WalkOptions { unchecked_in_upper: true, ..look };
    let found = recorded_calls::resolve_to_examine(layer, dir, text, first)?;
    let Some(mut found) = found else { return Ok(Verdict::NATIVE) };
    // The kernel's result is right, unless it is about a symbolic link.
    let (at, path) = match found.entry {
        ViewEntry::Unchecked if found.kernel_agrees => (dir, a[argument]),
        ViewEntry::Unchecked => (AT_FDCWD, found.path.lower_address()),
        _ => (AT_FDCWD, found.path.upper_address()),
    };
    let (number, args) = without_following(call, at, path);
    let ret = match found.entry {
        // SAFETY: what the program asked for, of its name or one of ours.
        ViewEntry::Unchecked => Some(unsafe { lower_layer::lower_syscall(layer, number, args) }),
        // SAFETY: what the program asked for, of a name of ours.
        ViewEntry::UncheckedUpper => Some(sys::check(unsafe { sys::raw(number, args) })),
        _ => None,
    };
    if let Some(ret) = ret {
        if !follow || ret.is_err() || !result_is_symlink(call)? {
            if let ViewEntry::Unchecked = found.entry {
                let origin = || match result_origin(call)? {
                    Some(origin) => Ok(origin),
                    None => Stat::lower(&found.path).map(|stat| stat.origin()),
                };
                recorded_calls::record_result(&found, || ret.and_then(|_| origin()));
            }
            if ret.is_ok() {
                inode_numbers::restore_inode(layer, call)?;
            }
            return answer_call(call, ret);
        }
        found = recorded_calls::resolve_following(layer, dir, text, look, ReadKind::Entry)?;
    }
    match found.entry {
        ViewEntry::Merged(..) => answer_call(call, stat_merged(layer, call, &found)),
        ViewEntry::Upper(_) | ViewEntry::Indexed(_) => {
            let (mut args, copy) = (a, IndexPath::of(&found));
            args[argument] = copy.as_ref().map_or(found.path.upper_address(), IndexPath::address);
            // SAFETY: what the program asked for, of a name of ours.
            let ret = sys::check(unsafe { sys::raw(call.nr, args) })?;
            inode_numbers::restore_inode(layer, call)?;
            answer_call(call, Ok(ret))
        }
        _ => stat_lower(layer, call, argument, &found),
    }
}

/// Answers for an entry of the lower tree, with the link count of the view.
fn stat_lower(layer: Layer, call: &Call, argument: usize, found: &Resolved) -> CallResult {
    let is_outside = matches!(found.entry, ViewEntry::Outside | ViewEntry::Absent);
    if is_outside || change_filter::filter(layer).links.is_empty() {
        return redirect_resolved(layer, call, argument, found);
    }
    let mut args = call.args;
    if !found.kernel_agrees {
        args[argument] = found.path.lower_address();
    }
    // SAFETY: what the program asked for, of its name or one of ours.
    let ret = unsafe { lower_layer::lower_syscall(layer, call.nr, args) }?;
    inode_numbers::restore_inode(layer, call)?;
    answer_call(call, Ok(ret))
}

/// Number and arguments of the call that does the same at `path`, and follows no symbolic link.
fn without_following(call: &Call, dir: Fd, path: u64) -> (u64, [u64; 6]) {
    let a = call.args;
    let no_follow = u64::from(k::AT_SYMLINK_NOFOLLOW);
    match call.nr {
        nr::STAT | nr::LSTAT => (nr::LSTAT, [path, a[1], 0, 0, 0, 0]),
        nr::STATX => (nr::STATX, [dir as u64, path, a[2] | no_follow, a[3], a[4], 0]),
        _ => (nr::NEWFSTATAT, [dir as u64, path, a[2], a[3] | no_follow, 0, 0]),
    }
}

/// True if the result that the kernel just wrote is about a symbolic link.
fn result_is_symlink(call: &Call) -> Result<bool> {
    let at = match call.nr {
        nr::STATX => call.args[4] + STATX_MODE_AT,
        nr::STAT | nr::LSTAT => call.args[1] + MODE_AT,
        _ => call.args[2] + MODE_AT,
    };
    let mode: u16 = match plane::has_threads() {
        // SAFETY: the kernel has just written there, and no other thread can have taken it away.
        false => unsafe { (at as *const u16).read_unaligned() },
        true => sys::copy_in(at)?,
    };
    Ok(u32::from(mode) & k::S_IFMT == k::S_IFLNK)
}

/// Origin of the entry that a result is about which the kernel just wrote; `None` if it has not all
/// of that.
fn result_origin(call: &Call) -> Result<Option<Origin>> {
    if call.nr != nr::STATX {
        return inode_numbers::origin_of_result(call).map(Some);
    }
    let result: k::statx = inode_numbers::read_result(call.args[4])?;
    let is_whole = result.stx_mask & k::STATX_BASIC_STATS == k::STATX_BASIC_STATS;
    Ok(is_whole.then(|| Stat::from(&result).origin()))
}

/// Answers for a merged directory: identity from the lower one, what may have changed from the
/// upper one.
fn stat_merged(layer: Layer, call: &Call, found: &Resolved) -> Result<u64> {
    let (real, upper) = (found.path.lower_address(), found.path.upper_address());
    let ViewEntry::Merged(of_lower, _) = found.entry else { return Err(Errno(sys::ENOTDIR)) };
    let has_owner =
        process_credentials::copies_owners() || of_lower.owner == process_credentials::user();
    if call.nr == nr::STATX {
        let [_, _, flags, mask, to, _] = call.args;
        let flags = flags as u32 & !k::AT_EMPTY_PATH;
        // SAFETY: integers, for which zero is valid.
        let mut all: [k::statx; 2] = unsafe { core::mem::zeroed() };
        let [lower, upper_stat] = &mut all;
        let (to_real, to_upper) = (core::ptr::from_mut(lower), core::ptr::from_mut(upper_stat));
        lower_syscall!(layer, nr::STATX, AT_FDCWD, real, flags, mask, to_real)?;
        syscall!(nr::STATX, AT_FDCWD, upper, flags, mask, to_upper)?;
        let [mut lower, upper_stat] = all;
        lower.stx_nlink = 1;
        lower.stx_mode = upper_stat.stx_mode;
        lower.stx_size = upper_stat.stx_size;
        lower.stx_mtime = upper_stat.stx_mtime;
        lower.stx_ctime = upper_stat.stx_ctime;
        if has_owner {
            (lower.stx_uid, lower.stx_gid) = (upper_stat.stx_uid, upper_stat.stx_gid);
        }
        // SAFETY: integers, all of which have been written.
        let bytes = unsafe {
            core::slice::from_raw_parts((&raw const lower).cast::<u8>(), size_of::<k::statx>())
        };
        return copy_to_program(bytes, to).map(|()| 0);
    }
    let to = call.args[if call.nr == nr::NEWFSTATAT { 2 } else { 1 }];
    // SAFETY: integers, for which zero is valid.
    let mut all: [k::stat; 2] = unsafe { core::mem::zeroed() };
    let [lower, upper_stat] = &mut all;
    let (to_real, to_upper) = (core::ptr::from_mut(lower), core::ptr::from_mut(upper_stat));
    lower_syscall!(layer, nr::LSTAT, real, to_real)?;
    syscall!(nr::LSTAT, upper, to_upper)?;
    let [mut lower, upper_stat] = all;
    lower.st_nlink = 1;
    lower.st_mode = upper_stat.st_mode;
    lower.st_size = upper_stat.st_size;
    (lower.st_mtime, lower.st_mtime_nsec) = (upper_stat.st_mtime, upper_stat.st_mtime_nsec);
    (lower.st_ctime, lower.st_ctime_nsec) = (upper_stat.st_ctime, upper_stat.st_ctime_nsec);
    if has_owner {
        (lower.st_uid, lower.st_gid) = (upper_stat.st_uid, upper_stat.st_gid);
    }
    // SAFETY: integers, all of which have been written.
    let bytes = unsafe {
        core::slice::from_raw_parts((&raw const lower).cast::<u8>(), size_of::<k::stat>())
    };
    copy_to_program(bytes, to).map(|()| 0)
}

/// Handles getcwd(2): the kernel may report a directory of the upper tree.
pub(super) fn getcwd(layer: Layer, call: &Call) -> CallResult {
    if change_filter::filter(layer).is_empty() {
        return Ok(Verdict::NATIVE);
    }
    let mut current = call_results::path_buffer();
    let len = sys::getcwd(&mut current)?;
    let text = &current[..len.saturating_sub(1)];
    let Some(viewed) = layer.view_of_upper(text) else { return Ok(Verdict::NATIVE) };
    let [to, room, ..] = call.args;
    let len = viewed.len() + 1;
    if room < len as u64 {
        return Err(Errno(sys::ERANGE));
    }
    let mut ended = call_results::path_buffer();
    ended[..viewed.len()].copy_from_slice(viewed);
    copy_to_program(&ended[..len], to)?;
    answer_call(call, Ok(len as u64))
}
