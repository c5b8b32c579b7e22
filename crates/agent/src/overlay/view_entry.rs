//! Entries of the view, and results of resolving a path.

use super::directory_cache::DirectoryState;
use super::kernel_calls::Stat;
use super::view_path::ViewPath;
use crate::sys::{self, Errno, Result};

/// Entry that a path leads to.
#[derive(Clone, Copy)]
pub(super) enum ViewEntry {
    /// Entry outside the view: in `/proc`, `/sys`, `/dev`, or of a nested try.
    Outside,
    /// Entry of the lower tree that was not looked up. It may be a symbolic link, or absent.
    Unchecked,
    /// Entry of a directory that is only in the upper tree, not looked up
    /// ([`super::path_walk::WalkOptions::unchecked_in_upper`]).
    UncheckedUpper,
    /// No entry.
    Absent,
    /// Entry of the lower tree.
    Lower(Stat),
    /// File of the lower tree that was copied up by another name: the copy in the index is shown
    /// ([`super::link_index`]). The metadata is the lower file's.
    Indexed(Stat),
    /// Entry of the upper tree: no directory, or one that the lower tree does not show.
    Upper(Stat),
    /// Directory of both trees: its lower and its upper metadata.
    Merged(Stat, Stat),
}

/// Kind of a path's last component (`last_type` in the kernel's fs/namei.c).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LastComponent {
    Name,
    Dot,
    DotDot,
    Root,
}

impl ViewEntry {
    /// State of the entry as a directory, or ENOENT or ENOTDIR.
    pub(super) fn directory(&self) -> Result<DirectoryState> {
        match self {
            ViewEntry::Lower(stat) if stat.is_directory() => Ok(DirectoryState::Lower),
            ViewEntry::Upper(stat) if stat.is_directory() => Ok(DirectoryState::Upper),
            ViewEntry::Merged(..) => Ok(DirectoryState::Merged),
            ViewEntry::Absent => Err(Errno(sys::ENOENT)),
            _ => Err(Errno(sys::ENOTDIR)),
        }
    }
}

/// Result of resolving a path.
pub(super) struct Resolved {
    /// Path without symbolic links, except possibly the last component.
    pub path: ViewPath,
    pub entry: ViewEntry,
    pub last: LastComponent,
    /// State of the parent directory, unless the path is the root directory.
    pub parent: DirectoryState,
    /// True if the program's path ends in a slash, `.` or `..`.
    pub must_be_directory: bool,
    /// True if a symbolic link of the upper tree was followed.
    pub via_upper_symlink: bool,
    /// True if the kernel resolves the program's path to the same path.
    ///
    /// That holds if the path has no symbolic link and no `..`, and does not start from a directory
    /// in the upper tree. The kernel would resolve `..` in the tree of the current directory.
    pub kernel_agrees: bool,
}

impl Resolved {
    /// State of the entry as a directory, or ENOENT or ENOTDIR.
    pub(super) fn directory(found: &Self) -> Result<DirectoryState> {
        found.entry.directory()
    }

    /// Metadata of the entry; the upper one for a merged directory.
    pub(super) fn stat(&self) -> Option<&Stat> {
        match &self.entry {
            ViewEntry::Lower(stat)
            | ViewEntry::Indexed(stat)
            | ViewEntry::Upper(stat)
            | ViewEntry::Merged(_, stat) => Some(stat),
            _ => None,
        }
    }
}
