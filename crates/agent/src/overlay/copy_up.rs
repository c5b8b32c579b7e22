//! What comes into the upper tree before it is changed: directories, and copies of files.
//!
//! A copy is made under another name and gets its own when it is complete, so that whoever looks sees all of it or the
//! original. Of two who copy the same file at once the second's copy is dropped.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::overlay::TEMPORARY;

use super::change_filter;
use super::directory_cache::{self, Directory};
use super::inode_numbers;
use super::kernel_calls::{self, Open, Stat, make};
use super::layer::Layer;
use super::path_walk::{self, Place, Thing};
use super::permission_checks;
use super::view_path::{self, Name};
use super::whiteouts;
use crate::path_text;
use crate::sys::{self, Errno, Fd, Result, nr};

/// ioctl(2): share the data of a file (linux/fs.h).
const FICLONE: u64 = 0x4004_9409;
/// Bytes that are copied at once where the kernel does not copy.
const PIECE: usize = 64 << 10;
/// Bytes of a list of attributes' names, and of one attribute, that are copied.
const ATTRIBUTES_MAX: usize = 4096;
const ATTRIBUTE_MAX: usize = 16 << 10;

/// The directory of that path is in the upper tree when this returns.
pub(super) fn bring_directory(layer: Layer, directory: &Name) -> Result<()> {
    let mut here = Directory::Merged;
    let mut above = Name::root(layer);
    for piece in directory.text().split(|byte| *byte == b'/').filter(|piece| !piece.is_empty()) {
        above.push(piece)?;
        match path_walk::thing(&above, here)? {
            Thing::Lower(stat) if stat.is_directory() => {
                make_directory(layer, &mut above, &stat)?;
                here = Directory::Merged;
            }
            Thing::Merged(..) => here = Directory::Merged,
            Thing::Upper(stat) if stat.is_directory() => return Ok(()),
            Thing::Absent => return Err(Errno(sys::ENOENT)),
            _ => return Err(Errno(sys::ENOTDIR)),
        }
    }
    Ok(())
}

/// The directory that the place is in is in the upper tree when this returns.
pub(super) fn bring_parent(layer: Layer, place: &mut Place) -> Result<()> {
    if place.parent == Directory::Lower {
        place.name.above(|parent| bring_directory(layer, parent))?;
        place.parent = Directory::Merged;
    }
    Ok(())
}

/// Makes the upper tree's part of a directory, as the real one is, in one that has its part.
fn make_directory(layer: Layer, name: &mut Name, lower: &Stat) -> Result<()> {
    let token = layer.token();
    change_filter::note(name);
    // Nothing was changed there, as far as anybody can see.
    let before = name.above(|parent| Stat::of(parent.upper()))?;
    let made = in_shut_directory(name, token, |name| kernel_calls::mkdir(name.upper(), 0o700));
    match made {
        Ok(_) => {
            dress(name.upper(), lower, token)?;
            inode_numbers::note(layer, name.upper(), lower);
            name.above(|parent| kernel_calls::set_times(parent.upper(), &before.times(), token))?;
        }
        Err(Errno(sys::EEXIST)) => {}
        Err(errno) => return Err(errno),
    }
    directory_cache::remember(layer, name.hash(), Directory::Merged);
    Ok(())
}

/// Makes something in the upper tree's part of a directory, in which its owner may not make anything: there is something below it
/// that may be changed.
fn in_shut_directory<R>(
    name: &mut Name,
    token: u64,
    mut make: impl FnMut(&Name) -> Result<R>,
) -> Result<R> {
    const ALL: u32 = 0o700;
    let made = make(name);
    if !matches!(made, Err(Errno(sys::EACCES))) {
        return made;
    }
    let parent = name.above(|parent| Stat::of(parent.upper()))?;
    if parent.owner != permission_checks::user() || parent.mode() & ALL == ALL {
        return made;
    }
    name.above(|parent_name| kernel_calls::chmod(parent_name.upper(), parent.mode() | ALL, token))?;
    let made = make(name);
    name.above(|parent_name| kernel_calls::chmod(parent_name.upper(), parent.mode(), token))?;
    made
}

/// Owner, permissions and times, as far as they can be given.
fn dress(path: u64, like: &Stat, token: u64) -> Result<()> {
    if permission_checks::user() == 0 {
        kernel_calls::chown(path, like.owner, like.group, token)?;
    }
    kernel_calls::chmod(path, like.mode(), token)?;
    kernel_calls::set_times(path, &like.times(), token).map(drop)
}

static COPIES: AtomicU32 = AtomicU32::new(0);

/// A name for what is not complete.
struct Unfinished {
    path: [u8; view_path::FRONT_MAX + 48],
}

impl Unfinished {
    fn new(layer: Layer) -> Self {
        let mut path = [0u8; view_path::FRONT_MAX + 48];
        let mut at = 0;
        let (mut thread, mut count) = ([b'_'; 10], [b'_'; 10]);
        path_text::decimal(sys::gettid(), &mut thread);
        path_text::decimal(COPIES.fetch_add(1, Relaxed), &mut count);
        let held = layer.held();
        for part in [held, b"/", TEMPORARY.as_bytes(), b"/", &thread, b"-", &count] {
            path[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Unfinished { path }
    }

    fn at(&self) -> u64 {
        self.path.as_ptr() as u64
    }

    /// It gets its name, if nobody has put anything there meanwhile.
    fn finish(&self, layer: Layer, to: u64) -> Result<()> {
        match kernel_calls::rename(self.at(), to, k::RENAME_NOREPLACE) {
            Err(Errno(sys::EEXIST)) => {
                if let Ok(stat) = Stat::of(self.at()) {
                    inode_numbers::forget(layer, &stat);
                }
                kernel_calls::unlink(self.at()).map(drop)
            }
            // A file system without that flag.
            Err(Errno(sys::EINVAL)) => match kernel_calls::link(self.at(), to) {
                Ok(_) | Err(Errno(sys::EEXIST)) => kernel_calls::unlink(self.at()).map(drop),
                Err(errno) => Err(errno),
            },
            other => other.map(drop),
        }
    }
}

/// The file at the place, which is the real tree's and no directory, is in the upper tree when this returns; without its data
/// if that is not wanted.
pub(super) fn bring_file(layer: Layer, place: &mut Place, data: bool) -> Result<()> {
    let Thing::Lower(stat) = place.thing else { return Ok(()) };
    change_filter::note(&place.name);
    bring_parent(layer, place)?;
    whiteouts::record(layer, &place.name, &stat.origin())?;
    copy(layer, &mut place.name, &stat, data)?;
    place.thing = path_walk::thing(&place.name, place.parent)?;
    Ok(())
}

/// The same, of an entry that is known to be of the real tree, in a directory that is in the upper tree.
pub(super) fn bring_entry(layer: Layer, name: &mut Name, stat: &Stat) -> Result<()> {
    whiteouts::record(layer, name, &stat.origin())?;
    copy(layer, name, stat, true)
}

/// Copies a file of the real tree to the same path of the upper tree, whose directory is there.
fn copy(layer: Layer, name: &mut Name, stat: &Stat, data: bool) -> Result<()> {
    let unfinished = Unfinished::new(layer);
    let token = layer.token();
    let made = match stat.kind() {
        k::S_IFREG => copy_regular(name, &unfinished, stat, data, token),
        k::S_IFLNK => copy_link(name, &unfinished, stat, token),
        k::S_IFIFO => make!(nr::MKNOD, unfinished.at(), k::S_IFIFO | 0o600, 0)
            .and_then(|_| dress(unfinished.at(), stat, token)),
        // A socket is its process's, a device the kernel's: neither has a copy.
        _ => Err(Errno(sys::EPERM)),
    };
    match made {
        Ok(()) => {
            inode_numbers::note(layer, unfinished.at(), stat);
            // Nothing is made there, as far as anybody can see.
            let before = name.above(|parent| Stat::of(parent.upper()))?;
            in_shut_directory(name, token, |name| unfinished.finish(layer, name.upper()))?;
            name.above(|parent| kernel_calls::set_times(parent.upper(), &before.times(), token))
                .map(drop)
        }
        Err(errno) => {
            let _ = kernel_calls::unlink(unfinished.at());
            Err(errno)
        }
    }
}

fn copy_link(from: &Name, to: &Unfinished, stat: &Stat, token: u64) -> Result<()> {
    let mut text = [0u8; runahead_abi::PATH_MAX];
    let room = text.len() - 1;
    kernel_calls::read_link(from, &mut text[..room])?;
    kernel_calls::symlink(text.as_ptr() as u64, to.at())?;
    if permission_checks::user() == 0 {
        kernel_calls::chown(to.at(), stat.owner, stat.group, token)?;
    }
    kernel_calls::set_times(to.at(), &stat.times(), token).map(drop)
}

fn copy_regular(from: &Name, to: &Unfinished, stat: &Stat, data: bool, token: u64) -> Result<()> {
    let target = Open::at(to.at(), k::O_WRONLY | k::O_CREAT | k::O_EXCL, 0o600)?;
    let source = match Open::real(from, k::O_RDONLY | k::O_NONBLOCK) {
        Ok(source) => {
            if data {
                copy_data(source.0, target.0, stat.size())?;
            }
            Some(source)
        }
        // It may be written to, and not read: then it can be emptied.
        Err(errno) if data => return Err(errno),
        Err(_) => None,
    };
    if permission_checks::user() == 0 {
        kernel_calls::chown(to.at(), stat.owner, stat.group, token)?;
    }
    if let Some(source) = source {
        copy_attributes(source.0, target.0, token);
    }
    kernel_calls::chmod(to.at(), stat.mode(), token)?;
    kernel_calls::set_times(to.at(), &stat.times(), token).map(drop)
}

fn copy_data(from: Fd, to: Fd, bytes: u64) -> Result<()> {
    if bytes == 0 || make!(nr::IOCTL, to, FICLONE, from).is_ok() {
        return Ok(());
    }
    loop {
        match make!(nr::COPY_FILE_RANGE, from, 0, to, 0, 1u64 << 30, 0) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno(sys::EINTR)) => {}
            Err(Errno(sys::EXDEV | sys::EINVAL | sys::EOPNOTSUPP | sys::ENOSYS | sys::EBADF)) => {
                break;
            }
            Err(errno) => return Err(errno),
        }
    }
    let mut piece = [0u8; PIECE];
    loop {
        match make!(nr::READ, from, piece.as_mut_ptr(), PIECE) {
            Ok(0) => return Ok(()),
            Ok(read) => kernel_calls::write(to, &piece[..read as usize])?,
            Err(Errno(sys::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Extended attributes, as far as the user may give them: those of the system are made anew.
fn copy_attributes(from: Fd, to: Fd, token: u64) {
    let mut names = [0u8; ATTRIBUTES_MAX + 1];
    let list = make!(nr::FLISTXATTR, from, names.as_mut_ptr(), ATTRIBUTES_MAX).unwrap_or(0);
    if list == 0 {
        return;
    }
    let mut value = [0u8; ATTRIBUTE_MAX];
    for attribute in names[..list as usize].split_inclusive(|byte| *byte == 0) {
        let name = attribute.as_ptr();
        if let Ok(len) = make!(nr::FGETXATTR, from, name, value.as_mut_ptr(), ATTRIBUTE_MAX) {
            let _ = make!(nr::FSETXATTR, to, name, value.as_ptr(), len, 0, token);
        }
    }
}
