//! Calls that create, remove and rename names.

use linux_raw_sys::general as k;
use runahead_abi::overlay::Origin;

use super::directory_cache::{self, DirectoryState};
use super::kernel_calls::{self, OpenFile, Stat, syscall};
use super::layer::Layer;
use super::view_entry::{LastComponent, Resolved, ViewEntry};
use super::view_path::ViewPath;
use super::whiteouts;
use super::{
    change_filter, copy_up, dirent_records, entry_lookup, inode_numbers, kernel_protections,
    link_index, mount_checks, path_walk, permission_checks,
};
use crate::sys::{self, AT_FDCWD, Errno, Fd, Result, nr};

/// Size in bytes of one read of a directory's records.
const ENTRIES_BYTES: usize = 2048;

/// Kind of an entry that is about to be created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NewEntry {
    Directory,
    Other,
}

/// Prepares the creation of an absent entry: copies up the parent directory and marks the change.
///
/// A name without an origin was absent. A directory's origin is recorded: those without one are in
/// the upper tree because something below them was changed.
pub(super) fn prepare_create(layer: Layer, found: &mut Resolved, kind: NewEntry) -> Result<()> {
    permission_checks::may_create(found)?;
    copy_up::copy_up_parent(layer, found)?;
    if found.parent == DirectoryState::Upper {
        return Ok(());
    }
    change_filter::mark_changed(&found.path);
    match kind {
        NewEntry::Directory => record_absence(layer, found),
        NewEntry::Other => Ok(()),
    }
}

fn record_absence(layer: Layer, found: &Resolved) -> Result<()> {
    match whiteouts::is_whiteout(&found.path) {
        true => Ok(()),
        false => whiteouts::record_origin(layer, &found.path, &Origin::ABSENT),
    }
}

/// Creates an entry by `work`, which gets the address of the path for the kernel.
pub(super) fn create_at(
    layer: Layer,
    found: &mut Resolved,
    kind: NewEntry,
    work: impl FnOnce(u64) -> Result<u64>,
) -> Result<u64> {
    match found.entry {
        ViewEntry::Absent => {}
        ViewEntry::Outside => return work(found.path.lower_address()),
        _ => return Err(Errno(sys::EEXIST)),
    }
    prepare_create(layer, found, kind)?;
    work(found.path.upper_address())
}

/// Handles mkdir(2).
pub(super) fn make_directory(layer: Layer, found: &mut Resolved, mode: u32) -> Result<u64> {
    let kind = NewEntry::Directory;
    let made = create_at(layer, found, kind, |path| kernel_calls::mkdir(path, mode))?;
    if matches!(found.entry, ViewEntry::Absent) {
        directory_cache::cache_state(layer, found.path.hash(), DirectoryState::Upper);
    }
    Ok(made)
}

/// Handles mknod(2). Devices are refused: they would act outside the try.
pub(super) fn make_node(layer: Layer, found: &mut Resolved, mode: u32) -> Result<u64> {
    let is_device = match mode & k::S_IFMT {
        0 | k::S_IFREG | k::S_IFIFO | k::S_IFSOCK => false,
        k::S_IFCHR | k::S_IFBLK => true,
        k::S_IFDIR => return Err(Errno(sys::EPERM)),
        _ => return Err(Errno(sys::EINVAL)),
    };
    reject_trailing_slash(found)?;
    if is_device {
        if !matches!(found.entry, ViewEntry::Absent) {
            return Err(Errno(sys::EEXIST));
        }
        permission_checks::may_create(found)?;
        return Err(Errno(sys::EPERM));
    }
    create_at(layer, found, NewEntry::Other, |path| syscall!(nr::MKNOD, path, mode, 0))
}

/// Handles symlink(2). `text` is an address in the agent's memory.
pub(super) fn make_symlink(layer: Layer, found: &mut Resolved, text: u64) -> Result<u64> {
    reject_trailing_slash(found)?;
    create_at(layer, found, NewEntry::Other, |path| kernel_calls::symlink(text, path))
}

/// Fails with ENOENT if a file would be created by a path with a trailing slash.
pub(super) fn reject_trailing_slash(found: &Resolved) -> Result<()> {
    match found.must_be_directory && matches!(found.entry, ViewEntry::Absent) {
        true => Err(Errno(sys::ENOENT)),
        false => Ok(()),
    }
}

/// Handles unlink(2) and rmdir(2).
pub(super) fn remove(layer: Layer, found: &mut Resolved, directory: bool) -> Result<u64> {
    match found.entry {
        ViewEntry::Absent => return Err(Errno(sys::ENOENT)),
        ViewEntry::Outside if directory => return kernel_calls::rmdir(found.path.lower_address()),
        ViewEntry::Outside => return kernel_calls::unlink(found.path.lower_address()),
        _ => {}
    }
    match found.last {
        LastComponent::Root if directory => return Err(Errno(sys::EBUSY)),
        LastComponent::Dot if directory => return Err(Errno(sys::EINVAL)),
        LastComponent::DotDot if directory => return Err(Errno(sys::ENOTEMPTY)),
        _ => {}
    }
    let is_directory = Resolved::directory(found).is_ok();
    if found.must_be_directory && !directory {
        return Err(Errno(if is_directory { sys::EISDIR } else { sys::ENOTDIR }));
    }
    permission_checks::may_remove(layer, found)?;
    match (directory, is_directory) {
        (true, false) => return Err(Errno(sys::ENOTDIR)),
        (false, true) => return Err(Errno(sys::EISDIR)),
        _ => permission_checks::check_not_mounted(layer, found)?,
    }
    if let (true, ViewEntry::Lower(_) | ViewEntry::Merged(..)) = (directory, &found.entry) {
        check_empty(layer, &found.path)?;
    }
    // The upper directory keeps the parent's time of change.
    copy_up::copy_up_parent(layer, found)?;
    match found.entry {
        ViewEntry::Merged(lower, upper) => {
            kernel_calls::rmdir(found.path.upper_address())?;
            inode_numbers::forget(layer, &upper);
            whiteouts::add_whiteout(layer, &found.path, &lower.origin())?;
        }
        ViewEntry::Lower(stat) | ViewEntry::Indexed(stat) => {
            whiteouts::add_whiteout(layer, &found.path, &stat.origin())?;
        }
        // The lower entry stays covered.
        _ if directory => _ = kernel_calls::rmdir(found.path.upper_address())?,
        _ => {
            whiteout_covered(layer, found)?;
            kernel_calls::unlink(found.path.upper_address())?;
        }
    }
    link_index::count_removed_name(layer, &found.entry);
    if !matches!(found.entry, ViewEntry::Upper(_)) {
        touch_parent(layer, found);
    }
    if directory {
        change_filter::filter(layer).invalidate_directories();
    }
    Ok(0)
}

/// Sets the parent's modification time to now: a whiteout alone does not change the upper
/// directory.
fn touch_parent(layer: Layer, found: &mut Resolved) {
    if found.parent == DirectoryState::Merged {
        let times = [0, k::UTIME_OMIT.into(), 0, k::UTIME_NOW.into()];
        let token = layer.token();
        let _ = found
            .path
            .with_parent(|parent| kernel_calls::set_times(parent.upper_address(), &times, token));
    }
}

/// Adds a whiteout for the lower entry that an upper entry covers.
fn whiteout_covered(layer: Layer, found: &Resolved) -> Result<()> {
    if found.parent == DirectoryState::Upper || whiteouts::is_whiteout(&found.path) {
        return Ok(());
    }
    match Stat::lower(&found.path) {
        Ok(stat) => whiteouts::add_whiteout(layer, &found.path, &stat.origin()),
        Err(_) => Ok(()),
    }
}

/// Calls `each` with the names in an open directory of the lower tree.
fn each_entry(
    layer: Layer,
    directory: Fd,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut entries = [0u8; ENTRIES_BYTES];
    loop {
        let len = kernel_calls::getdents_lower(layer, directory, &mut entries)?;
        if len == 0 {
            return Ok(());
        }
        let mut rest = &entries[..len];
        while let Some((entry, behind)) = dirent_records::split_first(rest) {
            if !matches!(entry, b"." | b"..") {
                each(entry)?;
            }
            rest = behind;
        }
    }
}

/// Fails with ENOTEMPTY if the view shows an entry of the lower directory. The kernel checks the
/// upper one.
fn check_empty(layer: Layer, name: &ViewPath) -> Result<()> {
    let directory = OpenFile::lower(name, k::O_RDONLY | k::O_DIRECTORY)?;
    let mut inside = name.copy()?;
    let len = inside.len();
    each_entry(layer, directory.0, |entry| {
        inside.push(entry)?;
        let is_there =
            !(change_filter::filter(layer).has(inside.hash()) && whiteouts::is_whiteout(&inside));
        inside.truncate(len);
        if is_there { Err(Errno(sys::ENOTEMPTY)) } else { Ok(()) }
    })
}

/// Copies up a directory with everything that the view shows below it. Fails with EPERM at an
/// entry below it that the commit could not remove.
fn copy_up_tree(layer: Layer, name: &mut ViewPath, parent: DirectoryState) -> Result<()> {
    let lower = match entry_lookup::lookup_entry(name, parent)? {
        ViewEntry::Lower(stat) | ViewEntry::Merged(stat, _) => stat,
        _ => return Ok(()),
    };
    whiteouts::record_origin(layer, name, &lower.origin())?;
    copy_up::copy_up_directory(layer, name)?;
    let directory = OpenFile::lower(name, k::O_RDONLY | k::O_DIRECTORY)?;
    let len = name.len();
    each_entry(layer, directory.0, |entry| {
        name.push(entry)?;
        let brought =
            match entry_lookup::lookup_entry(name, DirectoryState::Merged) {
                Ok(
                    ViewEntry::Lower(stat) | ViewEntry::Indexed(stat) | ViewEntry::Merged(stat, _),
                ) if stat.is_protected() => Err(Errno(sys::EPERM)),
                Ok(ViewEntry::Lower(stat) | ViewEntry::Indexed(stat)) if !stat.is_directory() => {
                    change_filter::mark_changed(name);
                    copy_up::copy_up_entry(layer, name, &stat)
                }
                Ok(ViewEntry::Lower(_) | ViewEntry::Merged(..)) => {
                    copy_up_tree(layer, name, DirectoryState::Merged)
                }
                Ok(_) => Ok(()),
                Err(errno) => Err(errno),
            };
        name.truncate(len);
        brought
    })
}

/// Copies up an entry with everything below it, and adds whiteouts for what it would cover.
fn copy_up_whole(layer: Layer, found: &mut Resolved) -> Result<()> {
    match found.entry {
        ViewEntry::Lower(stat) if stat.is_directory() => {
            copy_up_tree(layer, &mut found.path, found.parent)?;
            found.parent = path_walk::parent_state(layer, found)?;
            whiteouts::add_whiteout(layer, &found.path, &stat.origin())
        }
        ViewEntry::Merged(stat, _) => {
            copy_up_tree(layer, &mut found.path, found.parent)?;
            whiteouts::add_whiteout(layer, &found.path, &stat.origin())
        }
        _ => {
            copy_up::copy_up_file(layer, found, true)?;
            whiteout_covered(layer, found)
        }
    }
}

/// Handles renameat2(2).
pub(super) fn rename(
    layer: Layer,
    from: &mut Resolved,
    to: &mut Resolved,
    flags: u32,
) -> Result<u64> {
    let exchange = flags & k::RENAME_EXCHANGE != 0;
    if flags & !(k::RENAME_NOREPLACE | k::RENAME_EXCHANGE) != 0 {
        return Err(Errno(sys::EINVAL));
    }
    match (&from.entry, &to.entry) {
        (ViewEntry::Outside, ViewEntry::Outside) => {
            return kernel_calls::rename(from.path.lower_address(), to.path.lower_address(), flags);
        }
        (ViewEntry::Outside, _) if flags == 0 && layer.is_nested_try(from.path.as_bytes()) => {
            return adopt_from_nested_try(layer, from, to);
        }
        (ViewEntry::Outside, _) | (_, ViewEntry::Outside) => return Err(Errno(sys::EXDEV)),
        _ => {}
    }
    mount_checks::check_one_mount(from, to)?;
    if from.last != LastComponent::Name {
        return Err(Errno(sys::EBUSY));
    }
    if to.last != LastComponent::Name {
        let keeps = flags & k::RENAME_NOREPLACE != 0;
        return Err(Errno(if keeps { sys::EEXIST } else { sys::EBUSY }));
    }
    if let ViewEntry::Absent = from.entry {
        return Err(Errno(sys::ENOENT));
    }
    let is_there = !matches!(to.entry, ViewEntry::Absent);
    let (from_directory, to_directory) =
        (Resolved::directory(from).is_ok(), Resolved::directory(to).is_ok());
    if is_there && flags & k::RENAME_NOREPLACE != 0 {
        return Err(Errno(sys::EEXIST));
    }
    if !is_there && exchange {
        return Err(Errno(sys::ENOENT));
    }
    // A trailing slash is for directories only.
    if !from_directory && (from.must_be_directory || to.must_be_directory && !exchange)
        || exchange && !to_directory && to.must_be_directory
    {
        return Err(Errno(sys::ENOTDIR));
    }
    let (old, new) = (from.path.as_bytes(), to.path.as_bytes());
    if old == new || link_index::are_one_file(layer, &from.entry, &to.entry) {
        return Ok(0);
    }
    let is_below = |a: &[u8], b: &[u8]| a.strip_prefix(b).is_some_and(|rest| rest[0] == b'/');
    if from_directory && is_below(new, old) {
        return Err(Errno(sys::EINVAL));
    }
    if is_below(old, new) {
        return Err(Errno(if exchange { sys::EINVAL } else { sys::ENOTEMPTY }));
    }
    permission_checks::may_remove(layer, from)?;
    if is_there {
        permission_checks::may_remove(layer, to)?
    } else {
        permission_checks::may_create(to)?
    }
    match (from_directory, to_directory) {
        (true, false) if is_there && !exchange => return Err(Errno(sys::ENOTDIR)),
        (false, true) if !exchange => return Err(Errno(sys::EISDIR)),
        _ => {}
    }
    if parent_of(from) != parent_of(to) {
        permission_checks::may_move(layer, from)?;
        if exchange {
            permission_checks::may_move(layer, to)?;
        }
    }
    permission_checks::check_not_mounted(layer, from)?;
    permission_checks::check_not_mounted(layer, to)?;
    if !exchange
        && let ViewEntry::Lower(_) | ViewEntry::Merged(..) = &to.entry
        && to_directory
    {
        check_empty(layer, &to.path)?;
    }
    copy_up_whole(layer, from)?;
    if exchange {
        copy_up_whole(layer, to)?;
        for (found, other_is_directory) in [(&*from, to_directory), (&*to, from_directory)] {
            if other_is_directory && found.parent != DirectoryState::Upper {
                record_absence(layer, found)?;
            }
        }
    } else {
        clear_destination(layer, to, from_directory, to_directory)?;
    }
    let renamed = kernel_calls::rename(from.path.upper_address(), to.path.upper_address(), flags);
    if renamed.is_ok() && !exchange {
        link_index::count_removed_name(layer, &to.entry);
    }
    if from_directory || to_directory {
        change_filter::filter(layer).invalidate_directories();
    }
    renamed
}

/// Moves an entry from a nested try into this one, when the nested one is committed.
fn adopt_from_nested_try(layer: Layer, from: &Resolved, to: &mut Resolved) -> Result<u64> {
    let is_directory = Stat::of_path(from.path.lower_address())?.is_directory();
    let (is_there, to_directory) =
        (!matches!(to.entry, ViewEntry::Absent), Resolved::directory(to).is_ok());
    match (is_directory, to_directory) {
        _ if to.path.is_root() => return Err(Errno(sys::EBUSY)),
        (true, false) if is_there => return Err(Errno(sys::ENOTDIR)),
        (false, true) => return Err(Errno(sys::EISDIR)),
        _ => {}
    }
    match is_there {
        true => permission_checks::may_remove(layer, to)?,
        false => permission_checks::may_create(to)?,
    }
    if let (true, ViewEntry::Lower(_) | ViewEntry::Merged(..)) = (to_directory, &to.entry) {
        check_empty(layer, &to.path)?;
    }
    clear_destination(layer, to, is_directory, to_directory)?;
    let renamed = kernel_calls::rename(from.path.lower_address(), to.path.upper_address(), 0);
    if renamed.is_ok() {
        link_index::count_removed_name(layer, &to.entry);
    }
    if is_directory {
        change_filter::filter(layer).invalidate_directories();
    }
    renamed
}

/// Clears the destination of a rename: removes or hides what is there.
fn clear_destination(
    layer: Layer,
    to: &mut Resolved,
    from_directory: bool,
    is_directory: bool,
) -> Result<()> {
    let kind = if from_directory { NewEntry::Directory } else { NewEntry::Other };
    match to.entry {
        ViewEntry::Absent => prepare_create(layer, to, kind),
        ViewEntry::Merged(lower, upper) => {
            kernel_calls::rmdir(to.path.upper_address())?;
            inode_numbers::forget(layer, &upper);
            whiteouts::add_whiteout(layer, &to.path, &lower.origin())
        }
        ViewEntry::Lower(stat) | ViewEntry::Indexed(stat) => {
            copy_up::copy_up_parent(layer, to)?;
            change_filter::mark_changed(&to.path);
            match is_directory {
                true => whiteouts::add_whiteout(layer, &to.path, &stat.origin()),
                // The renamed entry covers it.
                false => whiteouts::record_origin(layer, &to.path, &stat.origin()),
            }
        }
        _ => Ok(()),
    }
}

/// Path of the directory of an entry.
fn parent_of(found: &Resolved) -> &[u8] {
    let path = found.path.as_bytes();
    &path[..path.len() - found.path.file_name().len()]
}

/// Handles linkat(2).
pub(super) fn link(layer: Layer, from: &mut Resolved, to: &mut Resolved) -> Result<u64> {
    match from.entry {
        ViewEntry::Absent => return Err(Errno(sys::ENOENT)),
        // The path of a descriptor, whose file has no name (`O_TMPFILE`, open(2)).
        ViewEntry::Outside => {
            let path = from.path.lower_address();
            if !matches!(to.entry, ViewEntry::Absent) {
                return Err(Errno(sys::EEXIST));
            }
            reject_trailing_slash(to)?;
            mount_checks::check_mount_of_descriptor(layer, path, to)?;
            let follow = k::AT_SYMLINK_FOLLOW;
            return create_at(layer, to, NewEntry::Other, |new| {
                syscall!(nr::LINKAT, AT_FDCWD, path, AT_FDCWD, new, follow)
            });
        }
        // The commit of a nested try joins names of that one's upper tree to files of the view.
        _ if layer.is_nested_try(to.path.as_bytes()) => {}
        _ if !matches!(to.entry, ViewEntry::Absent) => return Err(Errno(sys::EEXIST)),
        _ => {
            reject_trailing_slash(to)?;
            mount_checks::check_one_mount(from, to)?;
            kernel_protections::may_link(layer, from)?;
            permission_checks::may_create(to)?;
            permission_checks::check_changeable(layer, from)?;
        }
    }
    if Resolved::directory(from).is_ok() {
        return Err(Errno(sys::EPERM));
    }
    copy_up::copy_up_file(layer, from, true)?;
    let old = from.path.upper_address();
    let made = create_at(layer, to, NewEntry::Other, |new| kernel_calls::link(old, new));
    if let (Ok(_), ViewEntry::Upper(stat)) = (&made, &from.entry) {
        link_index::count_added_name(layer, stat);
    }
    made
}
