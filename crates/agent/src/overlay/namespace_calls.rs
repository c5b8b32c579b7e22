//! Calls that make, remove and rename names.

use linux_raw_sys::general as k;
use runahead_abi::overlay::Origin;

use super::directory_cache::{self, Directory};
use super::kernel_calls::{self, Open, Stat, make};
use super::layer::Layer;
use super::path_walk::{self, Place, Thing};
use super::view_path::Name;
use super::{change_filter, copy_up, dirent_records, inode_numbers, permission_checks, whiteouts};
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result, nr};

/// Bytes of a directory's entries that are looked at together.
const ENTRIES_BYTES: usize = 2048;

/// Something is about to be made at a place where nothing is: its directory is in the upper tree when this returns.
pub(super) fn prepare(layer: Layer, place: &mut Place) -> Result<()> {
    permission_checks::may_make(place)?;
    copy_up::bring_parent(layer, place)?;
    if place.parent == Directory::Upper {
        return Ok(());
    }
    change_filter::note(&place.name);
    match whiteouts::is_gone(&place.name) {
        true => Ok(()),
        false => whiteouts::record(layer, &place.name, &Origin::ABSENT),
    }
}

/// Makes something at a place by `work`, which gets the path for the kernel.
pub(super) fn make_at(
    layer: Layer,
    place: &mut Place,
    work: impl FnOnce(u64) -> Result<u64>,
) -> Result<u64> {
    match place.thing {
        Thing::Absent => {}
        Thing::Outside => return work(place.name.real()),
        _ => return Err(Errno(sys::EEXIST)),
    }
    prepare(layer, place)?;
    work(place.name.upper())
}

/// mkdir(2).
pub(super) fn make_directory(layer: Layer, place: &mut Place, mode: u32) -> Result<u64> {
    let made = make_at(layer, place, |path| kernel_calls::mkdir(path, mode))?;
    if matches!(place.thing, Thing::Absent) {
        directory_cache::remember(layer, place.name.hash(), Directory::Upper);
    }
    Ok(made)
}

/// mknod(2). A device would be one in the real tree, too.
pub(super) fn make_node(layer: Layer, place: &mut Place, mode: u32) -> Result<u64> {
    match mode & k::S_IFMT {
        0 | k::S_IFREG | k::S_IFIFO | k::S_IFSOCK => {}
        k::S_IFCHR | k::S_IFBLK => return Err(Errno(sys::EPERM)),
        _ => return Err(Errno(sys::EINVAL)),
    }
    no_slash(place)?;
    make_at(layer, place, |path| make!(nr::MKNOD, path, mode, 0))
}

/// symlink(2), of a text of ours.
pub(super) fn make_link(layer: Layer, place: &mut Place, text: u64) -> Result<u64> {
    no_slash(place)?;
    make_at(layer, place, |path| kernel_calls::symlink(text, path))
}

/// What has a slash at its end is no file that can be made.
fn no_slash(place: &Place) -> Result<()> {
    match place.is_directory && matches!(place.thing, Thing::Absent) {
        true => Err(Errno(sys::ENOENT)),
        false => Ok(()),
    }
}

/// unlink(2), or rmdir(2).
pub(super) fn remove(layer: Layer, place: &mut Place, directory: bool) -> Result<u64> {
    match place.thing {
        Thing::Absent => return Err(Errno(sys::ENOENT)),
        Thing::Outside if directory => return kernel_calls::rmdir(place.name.real()),
        Thing::Outside => return kernel_calls::unlink(place.name.real()),
        _ if place.name.is_root() => return Err(Errno(sys::EBUSY)),
        _ => {}
    }
    match (directory, place.directory().is_ok()) {
        (true, false) => return Err(Errno(sys::ENOTDIR)),
        (false, true) => return Err(Errno(sys::EISDIR)),
        (false, false) if place.is_directory => return Err(Errno(sys::ENOTDIR)),
        _ => {}
    }
    permission_checks::may_remove(place)?;
    if let (true, Thing::Lower(_) | Thing::Merged(..)) = (directory, &place.thing) {
        check_empty(layer, &place.name)?;
    }
    // (Its time of change is kept there.)
    copy_up::bring_parent(layer, place)?;
    match place.thing {
        Thing::Merged(lower, upper) => {
            kernel_calls::rmdir(place.name.upper())?;
            inode_numbers::forget(layer, &upper);
            whiteouts::mark(layer, &place.name, &lower.origin())?;
        }
        Thing::Lower(stat) => whiteouts::mark(layer, &place.name, &stat.origin())?,
        // What it covers is to stay covered.
        _ if directory => _ = kernel_calls::rmdir(place.name.upper())?,
        _ => {
            hide_covered(layer, place)?;
            kernel_calls::unlink(place.name.upper())?;
        }
    }
    match &place.thing {
        Thing::Upper(stat) => inode_numbers::forget(layer, stat),
        _ => touch_parent(layer, place),
    }
    if directory {
        change_filter::filter(layer).directory_went();
    }
    Ok(0)
}

/// The directory that the place is in has been changed just now, which its part of the upper tree does not know if only a mark was made.
fn touch_parent(layer: Layer, place: &mut Place) {
    if place.parent == Directory::Merged {
        let times = [0, k::UTIME_OMIT.into(), 0, k::UTIME_NOW.into()];
        let token = layer.token();
        let _ = place.name.above(|parent| kernel_calls::set_times(parent.upper(), &times, token));
    }
}

/// What the real tree has under the name of something in the upper tree is gone when this returns.
fn hide_covered(layer: Layer, place: &Place) -> Result<()> {
    if place.parent == Directory::Upper || whiteouts::is_gone(&place.name) {
        return Ok(());
    }
    match Stat::real(&place.name) {
        Ok(stat) => whiteouts::mark(layer, &place.name, &stat.origin()),
        Err(_) => Ok(()),
    }
}

/// Calls `each` with the entries of an open directory of the real tree.
fn each_entry(
    layer: Layer,
    directory: Fd,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut told = [0u8; ENTRIES_BYTES];
    loop {
        let len = kernel_calls::list(layer, directory, &mut told)?;
        if len == 0 {
            return Ok(());
        }
        let mut rest = &told[..len];
        while let Some((entry, behind)) = dirent_records::split(rest) {
            if !matches!(entry, b"." | b"..") {
                each(entry)?;
            }
            rest = behind;
        }
    }
}

/// The real tree's directory has nothing in the view. (Of the upper tree's the kernel says so.)
fn check_empty(layer: Layer, name: &Name) -> Result<()> {
    let directory = Open::real(name, k::O_RDONLY | k::O_DIRECTORY)?;
    let mut inside = Name::root(layer);
    copy_name(name, &mut inside)?;
    let len = inside.len();
    each_entry(layer, directory.0, |entry| {
        inside.push(entry)?;
        let is_there =
            !(change_filter::filter(layer).has(inside.hash()) && whiteouts::is_gone(&inside));
        inside.cut(len);
        if is_there { Err(Errno(sys::ENOTEMPTY)) } else { Ok(()) }
    })
}

fn copy_name(from: &Name, to: &mut Name) -> Result<()> {
    let mut pieces = from.text().split(|byte| *byte == b'/').filter(|piece| !piece.is_empty());
    pieces.try_for_each(|piece| to.push(piece))
}

/// All that is in the view at and below a directory is in the upper tree when this returns.
fn bring_tree(layer: Layer, name: &mut Name, parent: Directory) -> Result<()> {
    let lower = match path_walk::thing(name, parent)? {
        Thing::Lower(stat) | Thing::Merged(stat, _) => stat,
        _ => return Ok(()),
    };
    whiteouts::record(layer, name, &lower.origin())?;
    copy_up::bring_directory(layer, name)?;
    let directory = Open::real(name, k::O_RDONLY | k::O_DIRECTORY)?;
    let len = name.len();
    each_entry(layer, directory.0, |entry| {
        name.push(entry)?;
        let brought = match path_walk::thing(name, Directory::Merged) {
            Ok(Thing::Lower(stat)) if !stat.is_directory() => {
                change_filter::note(name);
                copy_up::bring_entry(layer, name, &stat)
            }
            Ok(Thing::Lower(_) | Thing::Merged(..)) => bring_tree(layer, name, Directory::Merged),
            Ok(_) => Ok(()),
            Err(errno) => Err(errno),
        };
        name.cut(len);
        brought
    })
}

/// What is at the place, with all below it, is in the upper tree when this returns, and covers nothing.
fn bring_whole(layer: Layer, place: &mut Place) -> Result<()> {
    match place.thing {
        Thing::Lower(stat) if stat.is_directory() => {
            bring_tree(layer, &mut place.name, place.parent)?;
            place.parent = path_walk::again_above(layer, place)?;
            whiteouts::mark(layer, &place.name, &stat.origin())
        }
        Thing::Merged(stat, _) => {
            bring_tree(layer, &mut place.name, place.parent)?;
            whiteouts::mark(layer, &place.name, &stat.origin())
        }
        _ => {
            copy_up::bring_file(layer, place, true)?;
            hide_covered(layer, place)
        }
    }
}

/// renameat2(2).
pub(super) fn rename(layer: Layer, from: &mut Place, to: &mut Place, flags: u32) -> Result<u64> {
    let exchange = flags & k::RENAME_EXCHANGE != 0;
    if flags & !(k::RENAME_NOREPLACE | k::RENAME_EXCHANGE) != 0 {
        return Err(Errno(sys::EINVAL));
    }
    match (&from.thing, &to.thing) {
        (Thing::Outside, Thing::Outside) => {
            return kernel_calls::rename(from.name.real(), to.name.real(), flags);
        }
        (Thing::Outside, _) if flags == 0 && layer.keeps(from.name.text()) => {
            return take_over(layer, from, to);
        }
        (Thing::Outside, _) | (_, Thing::Outside) => return Err(Errno(sys::EXDEV)),
        (Thing::Absent, _) => return Err(Errno(sys::ENOENT)),
        _ => {}
    }
    let is_there = !matches!(to.thing, Thing::Absent);
    let (from_directory, to_directory) = (from.directory().is_ok(), to.directory().is_ok());
    if from.name.is_root() || to.name.is_root() {
        return Err(Errno(sys::EBUSY));
    }
    if is_there && flags & k::RENAME_NOREPLACE != 0 {
        return Err(Errno(sys::EEXIST));
    }
    if !is_there && exchange {
        return Err(Errno(sys::ENOENT));
    }
    // A slash at the end is for directories.
    if !from_directory && (from.is_directory || to.is_directory && !exchange)
        || exchange && !to_directory && to.is_directory
    {
        return Err(Errno(sys::ENOTDIR));
    }
    let (old, new) = (from.name.text(), to.name.text());
    if old == new {
        return Ok(0);
    }
    let is_below = |a: &[u8], b: &[u8]| a.strip_prefix(b).is_some_and(|rest| rest[0] == b'/');
    if from_directory && is_below(new, old) {
        return Err(Errno(sys::EINVAL));
    }
    if is_below(old, new) {
        return Err(Errno(if exchange { sys::EINVAL } else { sys::ENOTEMPTY }));
    }
    match (from_directory, to_directory) {
        (true, false) if is_there && !exchange => return Err(Errno(sys::ENOTDIR)),
        (false, true) if !exchange => return Err(Errno(sys::EISDIR)),
        _ => {}
    }
    permission_checks::may_remove(from)?;
    if is_there {
        permission_checks::may_remove(to)?
    } else {
        permission_checks::may_make(to)?
    }
    if !exchange
        && let Thing::Lower(_) | Thing::Merged(..) = &to.thing
        && to_directory
    {
        check_empty(layer, &to.name)?;
    }
    bring_whole(layer, from)?;
    if exchange {
        bring_whole(layer, to)?;
    } else {
        make_room(layer, to, to_directory)?;
    }
    let renamed = kernel_calls::rename(from.name.upper(), to.name.upper(), flags);
    if let (Ok(_), false, Thing::Upper(covered)) = (&renamed, exchange, &to.thing) {
        inode_numbers::forget(layer, covered);
    }
    if from_directory || to_directory {
        change_filter::filter(layer).directory_went();
    }
    renamed
}

/// What a try inside this one has made, with all below it, becomes this one's, as that is committed.
fn take_over(layer: Layer, from: &Place, to: &mut Place) -> Result<u64> {
    let is_directory = Stat::of(from.name.real())?.is_directory();
    let (is_there, to_directory) = (!matches!(to.thing, Thing::Absent), to.directory().is_ok());
    match (is_directory, to_directory) {
        _ if to.name.is_root() => return Err(Errno(sys::EBUSY)),
        (true, false) if is_there => return Err(Errno(sys::ENOTDIR)),
        (false, true) => return Err(Errno(sys::EISDIR)),
        _ => {}
    }
    match is_there {
        true => permission_checks::may_remove(to)?,
        false => permission_checks::may_make(to)?,
    }
    if let (true, Thing::Lower(_) | Thing::Merged(..)) = (to_directory, &to.thing) {
        check_empty(layer, &to.name)?;
    }
    make_room(layer, to, to_directory)?;
    let renamed = kernel_calls::rename(from.name.real(), to.name.upper(), 0);
    if let (Ok(_), Thing::Upper(covered)) = (&renamed, &to.thing) {
        inode_numbers::forget(layer, covered);
    }
    if is_directory {
        change_filter::filter(layer).directory_went();
    }
    renamed
}

/// Something else is about to take the place in the upper tree.
fn make_room(layer: Layer, to: &mut Place, is_directory: bool) -> Result<()> {
    match to.thing {
        Thing::Absent => prepare(layer, to),
        Thing::Merged(lower, upper) => {
            kernel_calls::rmdir(to.name.upper())?;
            inode_numbers::forget(layer, &upper);
            whiteouts::mark(layer, &to.name, &lower.origin())
        }
        Thing::Lower(stat) => {
            copy_up::bring_parent(layer, to)?;
            change_filter::note(&to.name);
            match is_directory {
                true => whiteouts::mark(layer, &to.name, &stat.origin()),
                // It is covered from the moment when the other is there.
                false => whiteouts::record(layer, &to.name, &stat.origin()),
            }
        }
        _ => Ok(()),
    }
}

/// linkat(2).
pub(super) fn link(layer: Layer, from: &mut Place, to: &mut Place) -> Result<u64> {
    match from.thing {
        Thing::Absent => return Err(Errno(sys::ENOENT)),
        // A descriptor's name: of a file without one (O_TMPFILE, open(2)).
        Thing::Outside => {
            let path = from.name.real();
            let follow = k::AT_SYMLINK_FOLLOW;
            return make_at(layer, to, |new| {
                make!(nr::LINKAT, AT_FDCWD, path, AT_FDCWD, new, follow)
            });
        }
        _ if !matches!(to.thing, Thing::Absent) => return Err(Errno(sys::EEXIST)),
        _ => {}
    }
    no_slash(to)?;
    permission_checks::may_make(to)?;
    if from.directory().is_ok() {
        return Err(Errno(sys::EPERM));
    }
    copy_up::bring_file(layer, from, true)?;
    let old = from.name.upper();
    make_at(layer, to, |new| kernel_calls::link(old, new))
}
