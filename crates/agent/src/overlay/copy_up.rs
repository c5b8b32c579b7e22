//! Copy-up: directories and copies of files that the upper tree gets before a change.
//!
//! A copy is made in the temporary directory and renamed when it is complete, so other processes
//! see the whole copy or the original. If two processes copy the same file at once, the second copy
//! is dropped.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::overlay::TEMPORARY;

use super::change_filter;
use super::directory_cache::{self, DirectoryState};
use super::entry_lookup;
use super::entry_rights;
use super::inode_numbers;
use super::kernel_calls::{self, OpenFile, Stat, lower_syscall, syscall};
use super::layer::Layer;
use super::link_index::{self, IndexPath};
use super::process_credentials;
use super::view_entry::{Resolved, ViewEntry};
use super::view_path::{self, ViewPath};
use super::whiteouts;
use crate::path_text;
use crate::sys::{self, Errno, Fd, Result, nr};

/// Request of ioctl(2) that shares the data of a file (linux/fs.h).
const FICLONE: u64 = 0x4004_9409;
/// Size in bytes of one read where the kernel cannot copy.
const COPY_BYTES: usize = 64 << 10;
/// Largest list of extended attributes' names, and largest attribute, that are copied, in bytes.
const ATTRIBUTES_MAX: usize = 4096;
const ATTRIBUTE_MAX: usize = 16 << 10;

/// Copies up a directory and its parents, without their contents.
pub(super) fn copy_up_directory(layer: Layer, directory: &ViewPath) -> Result<()> {
    let mut here = DirectoryState::Merged;
    let mut above = ViewPath::root(layer);
    for piece in directory.as_bytes().split(|byte| *byte == b'/').filter(|piece| !piece.is_empty())
    {
        above.push(piece)?;
        match entry_lookup::lookup_entry(&above, here)? {
            ViewEntry::Lower(stat) if stat.is_directory() => {
                make_upper_directory(layer, &mut above, &stat)?;
                here = DirectoryState::Merged;
            }
            ViewEntry::Merged(..) => here = DirectoryState::Merged,
            ViewEntry::Upper(stat) if stat.is_directory() => return Ok(()),
            ViewEntry::Absent => return Err(Errno(sys::ENOENT)),
            _ => return Err(Errno(sys::ENOTDIR)),
        }
    }
    Ok(())
}

/// Copies up the parent directory.
pub(super) fn copy_up_parent(layer: Layer, found: &mut Resolved) -> Result<()> {
    if found.parent == DirectoryState::Lower {
        found.path.with_parent(|parent| copy_up_directory(layer, parent))?;
        found.parent = DirectoryState::Merged;
    }
    Ok(())
}

/// Creates the upper directory with the lower one's metadata. Its parent is in the upper tree.
fn make_upper_directory(layer: Layer, name: &mut ViewPath, lower: &Stat) -> Result<()> {
    let token = layer.token();
    change_filter::mark_changed(name);
    // The parent's times stay: in the view nothing was changed there.
    let before = name.with_parent(|parent| Stat::of_path(parent.upper_address()))?;
    let made =
        in_writable_directory(name, token, |name| kernel_calls::mkdir(name.upper_address(), 0o700));
    match made {
        Ok(_) => {
            let path = name.upper_address();
            set_metadata(name, path, lower, token)?;
            record_copy(layer, path, lower);
            name.with_parent(|parent| {
                kernel_calls::set_times(parent.upper_address(), &before.times(), token)
            })?;
        }
        Err(Errno(sys::EEXIST)) => {}
        Err(errno) => return Err(errno),
    }
    directory_cache::cache_state(layer, name.hash(), DirectoryState::Merged);
    Ok(())
}

/// Runs `make` in the parent's upper directory. Where its owner may not write to it, the
/// permissions are widened meanwhile: something below it may be writable.
fn in_writable_directory<R>(
    name: &mut ViewPath,
    token: u64,
    mut make: impl FnMut(&ViewPath) -> Result<R>,
) -> Result<R> {
    const ALL: u32 = 0o700;
    let made = make(name);
    if !matches!(made, Err(Errno(sys::EACCES))) {
        return made;
    }
    let parent = name.with_parent(|parent| Stat::of_path(parent.upper_address()))?;
    if parent.owner != process_credentials::user() || parent.mode() & ALL == ALL {
        return made;
    }
    name.with_parent(|parent_name| {
        kernel_calls::chmod(parent_name.upper_address(), parent.mode() | ALL, token)
    })?;
    let made = make(name);
    name.with_parent(|parent_name| {
        kernel_calls::chmod(parent_name.upper_address(), parent.mode(), token)
    })?;
    made
}

/// Sets the owner and the group at `path` as in `like`, as far as the kernel lets this process.
/// With the capabilities for that it may set both; without, a group that it belongs to.
fn set_owner(path: u64, like: &Stat, token: u64) -> Result<()> {
    const UNCHANGED: u32 = u32::MAX;
    if process_credentials::copies_owners() {
        return kernel_calls::chown(path, like.owner, like.group, token).map(drop);
    }
    let _ = kernel_calls::chown(path, UNCHANGED, like.group, token);
    Ok(())
}

/// Records what the copy at address `copy` was copied from.
fn record_copy(layer: Layer, copy: u64, original: &Stat) {
    if let Ok(copy) = Stat::of_path(copy) {
        inode_numbers::record_copy(layer, &copy, original);
        entry_rights::record_copy(layer, &copy, original);
    }
}

/// Gives the copy at address `to` the metadata of the lower entry.
fn set_metadata(from: &ViewPath, to: u64, like: &Stat, token: u64) -> Result<()> {
    set_owner(to, like, token)?;
    copy_attributes(from, to, token);
    if like.kind() != k::S_IFLNK {
        kernel_calls::chmod(to, like.mode(), token)?;
    }
    kernel_calls::set_times(to, &like.times(), token).map(drop)
}

static COPIES: AtomicU32 = AtomicU32::new(0);

/// Name in the temporary directory for a copy that is not complete.
struct TemporaryCopy {
    path: [u8; view_path::UPPER_PREFIX_MAX + 48],
}

impl TemporaryCopy {
    fn new(layer: Layer) -> Self {
        let mut path = [0u8; view_path::UPPER_PREFIX_MAX + 48];
        let mut at = 0;
        let (mut thread, mut count) = ([b'_'; 10], [b'_'; 10]);
        path_text::decimal(sys::gettid(), &mut thread);
        path_text::decimal(COPIES.fetch_add(1, Relaxed), &mut count);
        let directory = layer.directory();
        for part in [directory, b"/", TEMPORARY.as_bytes(), b"/", &thread, b"-", &count] {
            path[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        TemporaryCopy { path }
    }

    fn address(&self) -> u64 {
        self.path.as_ptr() as u64
    }

    /// Renames the copy to its path, or drops it if another process has put something there
    /// meanwhile.
    fn publish(&self, layer: Layer, to: u64) -> Result<()> {
        match kernel_calls::rename(self.address(), to, k::RENAME_NOREPLACE) {
            Err(Errno(sys::EEXIST)) => {
                if let Ok(stat) = Stat::of_path(self.address()) {
                    inode_numbers::forget(layer, &stat);
                }
                kernel_calls::unlink(self.address()).map(drop)
            }
            // The file system does not know that flag.
            Err(Errno(sys::EINVAL)) => match kernel_calls::link(self.address(), to) {
                Ok(_) | Err(Errno(sys::EEXIST)) => kernel_calls::unlink(self.address()).map(drop),
                Err(errno) => Err(errno),
            },
            other => other.map(drop),
        }
    }
}

/// Copies up a file of the lower tree that is no directory. Without `data` the copy is empty.
pub(super) fn copy_up_file(layer: Layer, found: &mut Resolved, data: bool) -> Result<()> {
    let (ViewEntry::Lower(stat) | ViewEntry::Indexed(stat)) = found.entry else { return Ok(()) };
    change_filter::mark_changed(&found.path);
    copy_up_parent(layer, found)?;
    whiteouts::record_origin(layer, &found.path, &stat.origin())?;
    copy(layer, &mut found.path, &stat, data)?;
    found.entry = entry_lookup::lookup_entry(&found.path, found.parent)?;
    Ok(())
}

/// Copies up an entry of the lower tree whose parent directory is in the upper tree.
pub(super) fn copy_up_entry(layer: Layer, name: &mut ViewPath, stat: &Stat) -> Result<()> {
    whiteouts::record_origin(layer, name, &stat.origin())?;
    copy(layer, name, stat, true)
}

/// Copies a file of the lower tree to the same path of the upper tree, whose parent directory
/// exists.
fn copy(layer: Layer, name: &mut ViewPath, stat: &Stat, data: bool) -> Result<()> {
    if link_index::has_copy(layer, stat) {
        return link_to_index(layer, name, stat);
    }
    let unfinished = TemporaryCopy::new(layer);
    let token = layer.token();
    let made = match stat.kind() {
        k::S_IFREG => copy_regular(name, &unfinished, stat, data, token),
        k::S_IFLNK => copy_link(name, &unfinished, stat, token),
        k::S_IFIFO => syscall!(nr::MKNOD, unfinished.address(), k::S_IFIFO | 0o600, 0)
            .and_then(|_| set_metadata(name, unfinished.address(), stat, token)),
        // A socket belongs to its process, a device to the kernel: neither can be copied.
        _ => Err(Errno(sys::EPERM)),
    };
    match made {
        Ok(()) => {
            record_copy(layer, unfinished.address(), stat);
            if link_index::add(layer, unfinished.address(), stat) {
                let linked = link_to_index(layer, name, stat);
                let _ = kernel_calls::unlink(unfinished.address());
                return linked;
            }
            place(layer, name, |name| unfinished.publish(layer, name.upper_address()))
        }
        Err(errno) => {
            let _ = kernel_calls::unlink(unfinished.address());
            Err(errno)
        }
    }
}

/// Runs `make`, which gives a name to a copy. The parent's times stay: in the view nothing was made
/// there.
fn place(
    layer: Layer,
    name: &mut ViewPath,
    make: impl FnMut(&ViewPath) -> Result<()>,
) -> Result<()> {
    let token = layer.token();
    let before = name.with_parent(|parent| Stat::of_path(parent.upper_address()))?;
    in_writable_directory(name, token, make)?;
    name.with_parent(|parent| {
        kernel_calls::set_times(parent.upper_address(), &before.times(), token)
    })
    .map(drop)
}

/// Makes the name in the upper tree a link to the indexed copy. The name's parent directory is in
/// the upper tree.
fn link_to_index(layer: Layer, name: &mut ViewPath, stat: &Stat) -> Result<()> {
    let copy = IndexPath::new(layer, stat);
    place(layer, name, |name| match kernel_calls::link(copy.address(), name.upper_address()) {
        // Another process has made the link.
        Ok(_) | Err(Errno(sys::EEXIST)) => Ok(()),
        Err(errno) => Err(errno),
    })
}

fn copy_link(from: &ViewPath, to: &TemporaryCopy, stat: &Stat, token: u64) -> Result<()> {
    let mut text = [0u8; runahead_abi::PATH_MAX];
    let room = text.len() - 1;
    kernel_calls::readlink_lower(from, &mut text[..room])?;
    kernel_calls::symlink(text.as_ptr() as u64, to.address())?;
    set_metadata(from, to.address(), stat, token)
}

fn copy_regular(
    from: &ViewPath,
    to: &TemporaryCopy,
    stat: &Stat,
    data: bool,
    token: u64,
) -> Result<()> {
    let target = OpenFile::at(to.address(), k::O_WRONLY | k::O_CREAT | k::O_EXCL, 0o600)?;
    // A file that may be written and not read can still be truncated.
    if data {
        let source = OpenFile::lower(from, k::O_RDONLY | k::O_NONBLOCK)?;
        copy_data(source.0, target.0, stat.size())?;
    }
    set_metadata(from, to.address(), stat, token)
}

/// Copies the data of a file of `bytes` bytes. Holes stay holes where the file system reports
/// them (lseek(2), `SEEK_DATA`).
fn copy_data(from: Fd, to: Fd, bytes: u64) -> Result<()> {
    if bytes == 0 || syscall!(nr::IOCTL, to, FICLONE, from).is_ok() {
        return Ok(());
    }
    let mut at = 0;
    loop {
        let data = match syscall!(nr::LSEEK, from, at, k::SEEK_DATA) {
            Ok(data) => data,
            // What is left is a hole.
            Err(Errno(sys::ENXIO)) => break,
            Err(_) => return copy_range(from, to, at, u64::MAX),
        };
        let hole = syscall!(nr::LSEEK, from, data, k::SEEK_HOLE)?;
        copy_range(from, to, data, hole)?;
        at = hole;
    }
    if at == bytes {
        return Ok(());
    }
    let end = syscall!(nr::LSEEK, from, 0, k::SEEK_END)?;
    syscall!(nr::FTRUNCATE, to, end).map(drop)
}

/// Copies the bytes from offset `at` to offset `end`, or to the end of the file.
fn copy_range(from: Fd, to: Fd, mut at: u64, end: u64) -> Result<()> {
    while at < end {
        let (mut read_at, mut write_at) = (at, at);
        let most = (end - at).min(1 << 30);
        let (source, target) = (&raw mut read_at, &raw mut write_at);
        match syscall!(nr::COPY_FILE_RANGE, from, source, to, target, most, 0) {
            Ok(0) => return Ok(()),
            Ok(copied) => at += copied,
            Err(Errno(sys::EINTR)) => {}
            Err(Errno(sys::EXDEV | sys::EINVAL | sys::EOPNOTSUPP | sys::ENOSYS | sys::EBADF)) => {
                break;
            }
            Err(errno) => return Err(errno),
        }
    }
    syscall!(nr::LSEEK, to, at, k::SEEK_SET)?;
    let mut piece = [0u8; COPY_BYTES];
    while at < end {
        let most = (end - at).min(COPY_BYTES as u64);
        match syscall!(nr::PREAD64, from, piece.as_mut_ptr(), most, at) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                kernel_calls::write_all(to, &piece[..read as usize])?;
                at += read;
            }
            Err(Errno(sys::EINTR)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Gives the copy at address `to` the extended attributes of the lower file, as far as the user
/// may set them, and removes those that it has inherited from its directory. Access control lists
/// are attributes (acl(5)).
fn copy_attributes(from: &ViewPath, to: u64, token: u64) {
    fn each(list: &[u8]) -> impl Iterator<Item = &[u8]> {
        list.split_inclusive(|byte| *byte == 0)
    }
    let (mut names, mut extra) = ([0u8; ATTRIBUTES_MAX + 1], [0u8; ATTRIBUTES_MAX + 1]);
    let (layer, path) = (from.layer(), from.lower_address());
    let of_lower = lower_syscall!(layer, nr::LLISTXATTR, path, names.as_mut_ptr(), ATTRIBUTES_MAX);
    let of_copy = syscall!(nr::LLISTXATTR, to, extra.as_mut_ptr(), ATTRIBUTES_MAX);
    let wanted = &names[..of_lower.unwrap_or(0) as usize];
    for attribute in each(&extra[..of_copy.unwrap_or(0) as usize]) {
        if !each(wanted).any(|name| name == attribute) {
            let _ = syscall!(nr::LREMOVEXATTR, to, attribute.as_ptr(), 0, 0, 0, token);
        }
    }
    let mut value = [0u8; ATTRIBUTE_MAX];
    for attribute in each(wanted) {
        let (name, room) = (attribute.as_ptr(), value.as_mut_ptr());
        let len = lower_syscall!(layer, nr::LGETXATTR, path, name, room, ATTRIBUTE_MAX);
        if let Ok(len) = len {
            let _ = syscall!(nr::LSETXATTR, to, name, value.as_ptr(), len, 0, token);
        }
    }
}
