//! Calls that look at what is at a name.

use linux_raw_sys::general as k;

use super::call_results::{self, Call, Done, answer, done, give};
use super::change_filter;
use super::inode_numbers;
use super::kernel_calls::{make, make_below};
use super::layer::Layer;
use super::lower_layer;
use super::path_walk::{self, Look, Place, Thing};
use super::permission_checks;
use crate::plane::{self, Verdict};
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result, nr};

/// A name that a call gives.
#[derive(Clone, Copy)]
pub(super) struct Given {
    pub dir: Fd,
    /// Which argument is its address.
    pub argument: usize,
    pub follow: bool,
}

/// Makes the call with the name in place of the program's by which the kernel finds what is in the view there.
pub(super) fn redirect(layer: Layer, call: &Call, name: Given) -> Done {
    if change_filter::filter(layer).is_empty() {
        return Ok(Verdict::NATIVE);
    }
    let mut room = call_results::room();
    let text = call_results::given(call.args[name.argument], &mut room)?;
    let place = path_walk::find(
        layer,
        name.dir,
        text,
        Look { follow: name.follow, thing: name.follow, ..path_walk::ITSELF },
    )?;
    at_place(layer, call, name.argument, &place)
}

/// [`redirect`], once the name has been found.
fn at_place(layer: Layer, call: &Call, argument: usize, place: &Place) -> Done {
    let mut args = call.args;
    let ret = match place.thing {
        Thing::Absent => return Err(Errno(sys::ENOENT)),
        Thing::Upper(_) => {
            args[argument] = place.name.upper();
            // SAFETY: what the program asked for, of a name of ours.
            unsafe { call.attempt(call.nr, &args) }
        }
        _ if place.as_named => return Ok(Verdict::NATIVE),
        _ => {
            args[argument] = place.name.real();
            // SAFETY: the same.
            unsafe { lower_layer::attempt(layer, call, call.nr, &args) }
        }
    };
    Ok(answer(call, ret))
}

/// access(2) and its kin. (A directory of both trees is the user's own in the upper one; the real one says who may what.)
pub(super) fn access(layer: Layer, call: &Call, name: Given) -> Done {
    if call.nr == nr::FACCESSAT2 && call.args[3] as u32 & k::AT_EMPTY_PATH != 0 {
        let first: u8 = sys::copy_in(call.args[1])?;
        if first == 0 {
            return Ok(Verdict::NATIVE);
        }
    }
    redirect(layer, call, name)
}

/// readlink(2) and readlinkat(2).
pub(super) fn read_link(layer: Layer, call: &Call, name: Given) -> Done {
    if change_filter::filter(layer).is_empty() {
        return Ok(Verdict::NATIVE);
    }
    let mut room = call_results::room();
    let text = call_results::given(call.args[name.argument], &mut room)?;
    if text.is_empty() && call.nr == nr::READLINKAT {
        return Ok(Verdict::NATIVE);
    }
    let place = path_walk::find(layer, name.dir, text, Look { thing: false, ..path_walk::ITSELF })?;
    if !matches!(place.thing, Thing::Outside) {
        return at_place(layer, call, name.argument, &place);
    }
    // The kernel may tell of a file in the upper tree.
    let mut link = call_results::room();
    let path = if place.as_named { call.args[name.argument] } else { place.name.real() };
    let len = sys::readlinkat(name.dir, path, &mut link)?;
    let Some(viewed) = layer.viewed(&link[..len]) else {
        return at_place(layer, call, name.argument, &place);
    };
    let [to, room] = [call.args[name.argument + 1], call.args[name.argument + 2]];
    if room as i32 <= 0 {
        return Err(Errno(sys::EINVAL));
    }
    let told = &viewed[..viewed.len().min(room as usize)];
    give(told, to)?;
    done(call, Ok(told.len() as u64))
}

/// Bytes from the front of what stat(2) and statx(2) tell to the mode.
const MODE_AT: u64 = core::mem::offset_of!(k::stat, st_mode) as u64;
const STATX_MODE_AT: u64 = core::mem::offset_of!(k::statx, stx_mode) as u64;

/// stat(2) and its kin.
pub(super) fn stat(layer: Layer, call: &Call) -> Done {
    let a = call.args;
    let (dir, argument, flags) = match call.nr {
        nr::FSTAT => return inode_numbers::of_descriptor(layer, call),
        nr::STAT => (AT_FDCWD, 0, 0),
        nr::LSTAT => (AT_FDCWD, 0, k::AT_SYMLINK_NOFOLLOW),
        nr::NEWFSTATAT => (call.fd(0), 1, a[3] as u32),
        _ => (call.fd(0), 1, a[2] as u32),
    };
    if change_filter::filter(layer).is_empty() {
        return Ok(Verdict::NATIVE);
    }
    if flags & k::AT_EMPTY_PATH != 0 {
        // (The kernel takes no address for an empty name, too.)
        let first: u8 = if a[1] == 0 { 0 } else { sys::copy_in(a[1])? };
        if first == 0 {
            return inode_numbers::of_descriptor(layer, call);
        }
    }
    let follow = flags & k::AT_SYMLINK_NOFOLLOW == 0;
    let mut room = call_results::room();
    let text = call_results::given(a[argument], &mut room)?;
    let mut place =
        path_walk::find(layer, dir, text, Look { follow, thing: false, ..path_walk::ITSELF })?;
    if let Thing::Unlooked = place.thing {
        if !follow {
            return at_place(layer, call, argument, &place);
        }
        // The kernel tells of the same, if it is no symbolic link.
        let path = if place.as_named { a[argument] } else { place.name.real() };
        let ret = stat_itself(layer, call, dir, path)?;
        if !is_link(call)? {
            return done(call, Ok(ret));
        }
        place = path_walk::find(layer, dir, text, path_walk::FOLLOWED)?;
    }
    match place.thing {
        Thing::Merged(..) => done(call, stat_merged(layer, call, &place)),
        Thing::Upper(_) => {
            let mut args = a;
            args[argument] = place.name.upper();
            // SAFETY: what the program asked for, of a name of ours.
            let ret = sys::check(unsafe { sys::raw(call.nr, args) })?;
            inode_numbers::told(layer, call)?;
            done(call, Ok(ret))
        }
        _ => at_place(layer, call, argument, &place),
    }
}

/// The call, of the name itself, where a symbolic link may be.
fn stat_itself(layer: Layer, call: &Call, dir: Fd, path: u64) -> Result<u64> {
    let a = call.args;
    match call.nr {
        nr::STATX => {
            let flags = a[2] as u32 | k::AT_SYMLINK_NOFOLLOW;
            make_below!(layer, nr::STATX, dir, path, flags, a[3], a[4])
        }
        nr::STAT => make_below!(layer, nr::LSTAT, path, a[1]),
        _ => {
            let flags = a[3] as u32 | k::AT_SYMLINK_NOFOLLOW;
            make_below!(layer, nr::NEWFSTATAT, dir, path, a[2], flags)
        }
    }
}

/// What the kernel has just told the program is of a symbolic link.
fn is_link(call: &Call) -> Result<bool> {
    let at = match call.nr {
        nr::STATX => call.args[4] + STATX_MODE_AT,
        nr::STAT => call.args[1] + MODE_AT,
        _ => call.args[2] + MODE_AT,
    };
    let mode: u16 = match plane::has_threads() {
        // SAFETY: the kernel has just written there, and no other thread can have taken it away.
        false => unsafe { (at as *const u16).read_unaligned() },
        true => sys::copy_in(at)?,
    };
    Ok(u32::from(mode) & k::S_IFMT == k::S_IFLNK)
}

/// Of a directory of both trees: what it is comes from the real one, what was changed from the upper one.
fn stat_merged(layer: Layer, call: &Call, place: &Place) -> Result<u64> {
    let (real, upper) = (place.name.real(), place.name.upper());
    let is_root = permission_checks::user() == 0;
    if call.nr == nr::STATX {
        let [_, _, flags, mask, to, _] = call.args;
        let flags = flags as u32 & !k::AT_EMPTY_PATH;
        // SAFETY: integers, for which zero is valid.
        let mut all: [k::statx; 2] = unsafe { core::mem::zeroed() };
        let [told, changed] = &mut all;
        let (to_real, to_upper) = (core::ptr::from_mut(told), core::ptr::from_mut(changed));
        make_below!(layer, nr::STATX, AT_FDCWD, real, flags, mask, to_real)?;
        make!(nr::STATX, AT_FDCWD, upper, flags, mask, to_upper)?;
        let [mut told, changed] = all;
        told.stx_nlink = 1;
        told.stx_mode = changed.stx_mode;
        told.stx_size = changed.stx_size;
        told.stx_mtime = changed.stx_mtime;
        told.stx_ctime = changed.stx_ctime;
        if is_root {
            (told.stx_uid, told.stx_gid) = (changed.stx_uid, changed.stx_gid);
        }
        // SAFETY: integers, all of which have been written.
        let bytes = unsafe {
            core::slice::from_raw_parts((&raw const told).cast::<u8>(), size_of::<k::statx>())
        };
        return give(bytes, to).map(|()| 0);
    }
    let to = call.args[if call.nr == nr::NEWFSTATAT { 2 } else { 1 }];
    // SAFETY: integers, for which zero is valid.
    let mut all: [k::stat; 2] = unsafe { core::mem::zeroed() };
    let [told, changed] = &mut all;
    let (to_real, to_upper) = (core::ptr::from_mut(told), core::ptr::from_mut(changed));
    make_below!(layer, nr::LSTAT, real, to_real)?;
    make!(nr::LSTAT, upper, to_upper)?;
    let [mut told, changed] = all;
    told.st_nlink = 1;
    told.st_mode = changed.st_mode;
    told.st_size = changed.st_size;
    (told.st_mtime, told.st_mtime_nsec) = (changed.st_mtime, changed.st_mtime_nsec);
    (told.st_ctime, told.st_ctime_nsec) = (changed.st_ctime, changed.st_ctime_nsec);
    if is_root {
        (told.st_uid, told.st_gid) = (changed.st_uid, changed.st_gid);
    }
    // SAFETY: integers, all of which have been written.
    let bytes = unsafe {
        core::slice::from_raw_parts((&raw const told).cast::<u8>(), size_of::<k::stat>())
    };
    give(bytes, to).map(|()| 0)
}

/// getcwd(2): the kernel may tell of a directory in the upper tree.
pub(super) fn working_directory(layer: Layer, call: &Call) -> Done {
    if change_filter::filter(layer).is_empty() {
        return Ok(Verdict::NATIVE);
    }
    let mut told = call_results::room();
    let len = sys::getcwd(&mut told)?;
    let text = &told[..len.saturating_sub(1)];
    let Some(viewed) = layer.viewed(text) else { return Ok(Verdict::NATIVE) };
    let [to, room, ..] = call.args;
    let len = viewed.len() + 1;
    if room < len as u64 {
        return Err(Errno(sys::ERANGE));
    }
    let mut ended = call_results::room();
    ended[..viewed.len()].copy_from_slice(viewed);
    give(&ended[..len], to)?;
    done(call, Ok(len as u64))
}
