//! Moves one entry into place, completely or not at all.

use std::fs::{self, File, FileTimes, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};

use crate::{Result, io_error};

/// Moves the entry at `from` to `to`, where nothing is, or a file that it replaces.
pub(crate) fn install(from: &Path, to: &Path) -> Result<()> {
    let found = match fs::symlink_metadata(from) {
        Ok(found) => found,
        // An earlier commit moved it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("examine", from)(error)),
    };
    if found.file_type().is_socket() {
        return fs::remove_file(from).map_err(io_error("remove", from));
    }
    let there = fs::symlink_metadata(to).ok().filter(Metadata::is_file);
    // Replacing the file would break its other links, or change its owner.
    let keeps = |there: &Metadata| there.nlink() > 1 || there.uid() != found.uid();
    let replaced = match &there {
        Some(there) if found.is_file() && keeps(there) => write_into(from, to, &found),
        _ => in_writable_directory(to, || move_into_place(from, to, &found)),
    };
    match replaced {
        // The user may write to the file and not create another in its directory.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && there.is_some() => {
            write_into(from, to, &found).map_err(io_error("write", to))
        }
        other => other.map_err(io_error("move a file to", to)),
    }
}

/// Runs `work` in the directory of `path`. If the user owns the directory and may not write to it,
/// the permissions are widened meanwhile: the try may have changed them.
pub(crate) fn in_writable_directory(
    path: &Path,
    work: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    const ALL: u32 = 0o700;
    let done = work();
    let Some(parent) = path.parent() else { return done };
    match (&done, fs::metadata(parent)) {
        (Err(error), Ok(found))
            if error.kind() == ErrorKind::PermissionDenied
                && found.uid() == rustix::process::geteuid().as_raw()
                && found.mode() & ALL != ALL =>
        {
            fs::set_permissions(parent, fs::Permissions::from_mode(found.mode() | ALL))?;
            let done = work();
            fs::set_permissions(parent, found.permissions())?;
            done
        }
        _ => done,
    }
}

fn move_into_place(from: &Path, to: &Path, found: &Metadata) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {
            let beside = temporary_sibling(to);
            remove_all(&beside)?;
            copy_whole(from, &beside, found)?;
            fs::rename(&beside, to)?;
            remove_all(from)
        }
        renamed => renamed,
    }
}

/// Returns a temporary name in the same directory.
fn temporary_sibling(path: &Path) -> PathBuf {
    let mut name = b".".to_vec();
    let last = path.file_name().unwrap_or_default().as_bytes();
    // Names have at most 255 bytes.
    name.extend_from_slice(&last[..last.len().min(200)]);
    name.extend_from_slice(b".runahead-try");
    path.with_file_name(std::ffi::OsStr::from_bytes(&name))
}

fn remove_all(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Copies an entry with everything below it.
fn copy_whole(from: &Path, to: &Path, found: &Metadata) -> io::Result<()> {
    match found.file_type() {
        kind if kind.is_symlink() => symlink(fs::read_link(from)?, to)?,
        kind if kind.is_dir() => {
            fs::create_dir(to)?;
            crate::store::make_owner_writable(from);
            for entry in fs::read_dir(from)? {
                let name = entry?.file_name();
                let inner = from.join(&name);
                copy_whole(&inner, &to.join(&name), &fs::symlink_metadata(&inner)?)?;
            }
        }
        kind if kind.is_fifo() => {
            rustix::fs::mknodat(CWD, to, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        }
        kind if kind.is_file() => {
            let (mut source, mut target) = (File::open(from)?, File::create_new(to)?);
            io::copy(&mut source, &mut target)?;
        }
        _ => return Ok(()),
    }
    copy_metadata(from, to, found)?;
    set_times(to, found)
}

/// Copies owner, permissions and extended attributes of `from` to `to`.
pub(crate) fn copy_metadata(from: &Path, to: &Path, found: &Metadata) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(to, Some(found.uid()), Some(found.gid()))?;
    }
    if !found.is_symlink() {
        copy_attributes(from, to);
        fs::set_permissions(to, fs::Permissions::from_mode(found.mode() & 0o7777))?;
    }
    Ok(())
}

/// Sets the times at `path` to those of `found`.
fn set_times(path: &Path, found: &Metadata) -> io::Result<()> {
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    let times = Timestamps {
        last_access: time(found.atime(), found.atime_nsec()),
        last_modification: time(found.mtime(), found.mtime_nsec()),
    };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Sets the modification time at `path`: seconds and nanoseconds.
pub(crate) fn set_modified(path: &Path, (seconds, nanoseconds): (i64, i64)) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ },
    };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Limit in bytes of the list of attributes' names, and of one attribute (xattr(7)).
const ATTRIBUTES_MAX: usize = 64 << 10;

/// Returns the names and values of extended attributes, sorted.
fn attributes(of: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0u8; ATTRIBUTES_MAX];
    let len = rustix::fs::llistxattr(of, &mut names[..]).unwrap_or(0);
    if len == 0 {
        return Vec::new();
    }
    let mut value = vec![0u8; ATTRIBUTES_MAX];
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
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

/// Copies extended attributes as far as the user may set them.
fn copy_attributes(from: &Path, to: &Path) {
    for (name, value) in attributes(from) {
        let flags = rustix::fs::XattrFlags::empty();
        let _ = rustix::fs::lsetxattr(to, &name[..], &value, flags);
    }
}

/// Overwrites the contents of the file `to`, which stays the same inode. An interrupted write is
/// repeated.
fn write_into(from: &Path, to: &Path, found: &Metadata) -> io::Result<()> {
    let (mut source, mut target) = (File::open(from)?, File::options().write(true).open(to)?);
    target.set_len(0)?;
    io::copy(&mut source, &mut target)?;
    let there = target.metadata()?;
    if there.mode() != found.mode() {
        // Fails if another user owns the file; then the try could not change the permissions
        // either.
        let mode = fs::Permissions::from_mode(found.mode() & 0o7777);
        let _ = fs::set_permissions(to, mode);
    }
    let times = FileTimes::new().set_modified(found.modified()?);
    let _ = target.set_times(times);
    fs::remove_file(from)
}
