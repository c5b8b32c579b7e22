//! Moves one entry into place, completely or not at all.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Metadata};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};

use crate::widened_directory::WidenedDirectory;
use crate::{Result, io_error};

/// Files that were copied to another file system, by device and inode number of their copies in the
/// upper tree: what further names of them become links to.
#[derive(Debug, Default)]
pub(crate) struct CopiedFiles(BTreeMap<(u64, u64), PathBuf>);

impl CopiedFiles {
    /// Records that names of the upper file become links to `path`.
    pub(crate) fn add(&mut self, upper: &Metadata, path: &Path) {
        self.0.insert((upper.dev(), upper.ino()), path.to_owned());
    }

    fn of(&self, upper: &Metadata) -> Option<&Path> {
        self.0.get(&(upper.dev(), upper.ino())).map(PathBuf::as_path)
    }

    /// Records that everything at and below `from` was renamed to `to`.
    fn rename(&mut self, from: &Path, to: &Path) {
        for path in self.0.values_mut() {
            if let Ok(below) = path.strip_prefix(from) {
                *path = if below == Path::new("") { to.to_owned() } else { to.join(below) };
            }
        }
    }
}

/// Moves the entry at `from` to `to`, where nothing is, or a file that it replaces.
pub(crate) fn install(from: &Path, to: &Path, copied: &mut CopiedFiles) -> Result<()> {
    let found = match fs::symlink_metadata(from) {
        Ok(found) => found,
        // An earlier commit moved it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("examine", from)(error)),
    };
    let there = fs::symlink_metadata(to).ok().filter(Metadata::is_file);
    // Replacing the file would change an owner that the try could not change.
    let keeps = |there: &Metadata| !could_change_owner(there);
    let replaced = match &there {
        Some(there) if found.is_file() && keeps(there) => write_into(from, to, &found),
        _ => in_writable_directory(to, || move_into_place(from, to, &found, copied)),
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
    mut work: impl FnMut() -> io::Result<()>,
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

/// True if a process of the try could set the file's owners, so that the copy has those that the
/// command asked for. Else the copy belongs to the user.
pub(crate) fn could_change_owner(there: &Metadata) -> bool {
    let user = rustix::process::geteuid();
    user.is_root() || (there.uid() == user.as_raw() && is_own_group(there.gid()))
}

/// True if this process belongs to the group.
fn is_own_group(group: u32) -> bool {
    let is_it = |own: rustix::process::Gid| own.as_raw() == group;
    is_it(rustix::process::getegid())
        || rustix::process::getgroups().is_ok_and(|groups| groups.into_iter().any(is_it))
}

fn move_into_place(
    from: &Path,
    to: &Path,
    found: &Metadata,
    copied: &mut CopiedFiles,
) -> io::Result<()> {
    // A directory that moves to another one is written to: its entry `..` changes.
    let widened = found.is_dir().then(|| WidenedDirectory::new(from));
    let moved = fs::rename(from, to);
    if let (Ok(()), Some(widened)) = (&moved, widened) {
        widened.restore_at(to);
    }
    match moved {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {
            let beside = temporary_sibling(to);
            remove_all(&beside)?;
            let placed =
                copy_whole(from, &beside, found, copied).and_then(|()| rename_over(&beside, to));
            if placed.is_err() {
                let _ = remove_all(&beside);
            }
            placed?;
            copied.rename(&beside, to);
            remove_all(from)
        }
        renamed => renamed,
    }
}

/// Renames an entry. If both are names of one file, which rename(2) leaves alone, the old one is
/// removed.
fn rename_over(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    match fs::remove_file(from) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Returns a temporary name in the same directory.
pub(crate) fn temporary_sibling(path: &Path) -> PathBuf {
    let mut name = b".".to_vec();
    let last = path.file_name().unwrap_or_default().as_bytes();
    // Names have at most 255 bytes.
    name.extend_from_slice(&last[..last.len().min(200)]);
    name.extend_from_slice(b".runahead-try");
    path.with_file_name(std::ffi::OsStr::from_bytes(&name))
}

fn remove_all(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {
            crate::store::make_tree_writable(path);
            fs::remove_dir_all(path)
        }
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Copies an entry with everything below it.
fn copy_whole(
    from: &Path,
    to: &Path,
    found: &Metadata,
    copied: &mut CopiedFiles,
) -> io::Result<()> {
    // The link count says nothing of names that were moved before.
    if let Some(other) = copied.of(found) {
        return fs::hard_link(other, to);
    }
    match found.file_type() {
        kind if kind.is_symlink() => symlink(fs::read_link(from)?, to)?,
        kind if kind.is_dir() => {
            fs::create_dir(to)?;
            let _widened = WidenedDirectory::new(from);
            for entry in fs::read_dir(from)? {
                let name = entry?.file_name();
                let inner = from.join(&name);
                copy_whole(&inner, &to.join(&name), &fs::symlink_metadata(&inner)?, copied)?;
            }
        }
        kind if kind.is_fifo() || kind.is_socket() => {
            let kind = if kind.is_fifo() { FileType::Fifo } else { FileType::Socket };
            rustix::fs::mknodat(CWD, to, kind, Mode::RUSR | Mode::WUSR, 0)?;
        }
        kind if kind.is_file() => copy_contents(&File::open(from)?, &File::create_new(to)?)?,
        _ => return Ok(()),
    }
    if !found.is_dir() && found.nlink() > 1 {
        copied.add(found, to);
    }
    copy_metadata(from, to, found)?;
    set_times(to, found)
}

/// Copies the contents to an empty file. Holes stay holes where the file system reports them.
pub(crate) fn copy_contents(mut source: &File, mut target: &File) -> io::Result<()> {
    use rustix::fs::{SeekFrom, seek};
    let mut at = 0;
    loop {
        let data = match seek(source, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => {
                source.seek(io::SeekFrom::Start(at))?;
                target.seek(io::SeekFrom::Start(at))?;
                return io::copy(&mut source, &mut target).map(drop);
            }
        };
        let hole = seek(source, SeekFrom::Hole(data))?;
        source.seek(io::SeekFrom::Start(data))?;
        target.seek(io::SeekFrom::Start(data))?;
        io::copy(&mut source.take(hole - data), &mut target)?;
        at = hole;
    }
    target.set_len(source.metadata()?.len())
}

/// Copies owner, permissions and extended attributes of `from` to `to`.
pub(crate) fn copy_metadata(from: &Path, to: &Path, found: &Metadata) -> io::Result<()> {
    let there = fs::symlink_metadata(to)?;
    if could_change_owner(&there) && (there.uid(), there.gid()) != (found.uid(), found.gid()) {
        std::os::unix::fs::lchown(to, Some(found.uid()), Some(found.gid()))?;
    }
    if !found.is_symlink() {
        copy_attributes(from, to, there.dev() == found.dev())?;
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

/// True if two files have the same contents.
pub(crate) fn have_same_contents(a: &Path, b: &Path) -> io::Result<bool> {
    const PIECE: usize = 64 << 10;
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    let (mut from_a, mut from_b) = (Vec::new(), Vec::new());
    loop {
        from_a.clear();
        from_b.clear();
        a.by_ref().take(PIECE as u64).read_to_end(&mut from_a)?;
        b.by_ref().take(PIECE as u64).read_to_end(&mut from_b)?;
        if from_a != from_b || from_a.is_empty() {
            return Ok(from_a == from_b);
        }
    }
}

/// Gives `to` the extended attributes of `from`, access control lists among them. Those that `from`
/// lacks are removed if `is_one_file_system`: another one may be unable to keep them.
fn copy_attributes(from: &Path, to: &Path, is_one_file_system: bool) -> io::Result<()> {
    let (wanted, there) = (attributes(from), attributes(to));
    for (name, value) in wanted.iter().filter(|attribute| !there.contains(attribute)) {
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::lsetxattr(to, &name[..], value, flags) {
            // The kernel's security modules set theirs anew.
            Err(_) if !is_users(name) => {}
            set => set?,
        }
    }
    let is_extra = |name: &[u8]| is_users(name) && !wanted.iter().any(|(other, _)| other == name);
    for (name, _) in there.iter().filter(|(name, _)| is_one_file_system && is_extra(name)) {
        rustix::fs::lremovexattr(to, &name[..])?;
    }
    Ok(())
}

/// True if an ordinary user may set attributes of this name.
fn is_users(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_")
}

/// Overwrites the contents of the file `to`, which stays the same inode. An interrupted write is
/// repeated.
fn write_into(from: &Path, to: &Path, found: &Metadata) -> io::Result<()> {
    let (source, target) = (File::open(from)?, File::options().write(true).open(to)?);
    target.set_len(0)?;
    copy_contents(&source, &target)?;
    // Fails if another user owns the file; then the try could not change them either.
    let owned = copy_metadata(from, to, found);
    if could_change_owner(&target.metadata()?) {
        owned?;
    }
    let times = FileTimes::new().set_modified(found.modified()?);
    let _ = target.set_times(times);
    fs::remove_file(from)
}
