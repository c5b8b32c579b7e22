//! Copies of entries, for file systems that they cannot be moved to.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};

use crate::entry_metadata::{copy_metadata, times_of};
use crate::held_tree::{HeldEntry, HeldTree};
use crate::readable_entry::ReadableEntry;

/// Files that were copied to another file system, by device and inode number of their copies in the
/// upper tree: what further names of them become links to.
#[derive(Debug, Default)]
pub(crate) struct CopiedFiles(BTreeMap<(u64, u64), PathBuf>);

impl CopiedFiles {
    /// Records that names of the upper file become links to `path`.
    pub(crate) fn add(&mut self, upper: &Metadata, path: &Path) {
        self.0.insert((upper.dev(), upper.ino()), path.to_owned());
    }

    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records files with several names at and below `from` that were copied to `to` before.
    pub(crate) fn recall(&mut self, from: &HeldEntry, to: &HeldEntry) -> io::Result<()> {
        let found = from.metadata()?;
        let Ok(there) = to.metadata() else { return Ok(()) };
        if found.is_dir() && there.is_dir() {
            let (from, to) = (from.hold_widened()?, to.hold_widened()?);
            for name in from.names()? {
                self.recall(&from.entry(&name), &to.entry(&name))?;
            }
        } else if found.nlink() > 1 && found.dev() != there.dev() {
            self.add(&found, &to.path());
        }
        Ok(())
    }

    fn of(&self, upper: &Metadata) -> Option<&Path> {
        self.0.get(&(upper.dev(), upper.ino())).map(PathBuf::as_path)
    }

    /// Records that everything at and below `from` was renamed to `to`.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) {
        for path in self.0.values_mut() {
            if let Ok(below) = path.strip_prefix(from) {
                *path = if below == Path::new("") { to.to_owned() } else { to.join(below) };
            }
        }
    }
}

/// Copies an entry with everything below it to `to`, which lies in the tree `lower`.
pub(crate) fn copy_whole(
    from: &HeldEntry,
    to: &HeldEntry,
    lower: &HeldTree,
    copied: &mut CopiedFiles,
) -> io::Result<()> {
    let found = from.metadata()?;
    // The link count says nothing of names that were moved before.
    if let Some(other) = copied.of(&found) {
        match lower.entry(other).and_then(|other| other.link_to(to)) {
            // It has got its own name since then.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            linked => return linked,
        }
    }
    let _readable = ReadableEntry::new(from, &found)?;
    match found.file_type() {
        kind if kind.is_symlink() => to.create_symlink(&from.read_link()?)?,
        kind if kind.is_dir() => {
            to.create_directory()?;
            let (from, to) = (from.hold_widened()?, to.hold()?);
            for name in from.names()? {
                copy_whole(&from.entry(&name), &to.entry(&name), lower, copied)?;
            }
        }
        kind if kind.is_fifo() => to.create_node(FileType::Fifo)?,
        kind if kind.is_socket() => to.create_node(FileType::Socket)?,
        kind if kind.is_file() => copy_contents(&from.open(OFlags::RDONLY)?, &to.create_file()?)?,
        _ => return Ok(()),
    }
    if !found.is_dir() && found.nlink() > 1 {
        copied.add(&found, &to.path());
    }
    copy_metadata(from, to, &found)?;
    to.set_times(&times_of(&found))
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

/// True if two files have the same contents.
pub(crate) fn have_same_contents(mut a: impl Read, mut b: impl Read) -> io::Result<bool> {
    const PIECE: usize = 64 << 10;
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
