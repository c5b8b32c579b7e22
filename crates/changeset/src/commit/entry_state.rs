//! Identity and attributes of an entry, as the journal of a commit has them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// Identity and attributes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EntryState {
    /// Device and inode number.
    pub(super) file: (u64, u64),
    /// Type and permissions.
    pub(super) mode: u32,
    /// Size in bytes.
    pub(super) size: u64,
    /// Modification time: seconds and nanoseconds.
    pub(super) modified: (i64, i64),
    /// Time of change: seconds and nanoseconds.
    pub(super) changed: (i64, i64),
}

impl EntryState {
    pub(super) fn of(found: &Metadata) -> Self {
        EntryState {
            file: (found.dev(), found.ino()),
            mode: found.mode(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// True if this is a directory.
    pub(super) fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    /// True if `now` is the same entry with the same contents. The time of change is not compared:
    /// a rename sets it. Nor are a directory's entries.
    pub(super) fn is_still(&self, now: &EntryState) -> bool {
        self.file == now.file && self.has_contents_of(now)
    }

    /// True if `other` may be a copy of this entry: a file of this size and time.
    pub(super) fn has_contents_of(&self, other: &EntryState) -> bool {
        let contents = |of: &EntryState| (of.mode, of.size, of.modified);
        match self.is_directory() {
            true => other.is_directory(),
            false => contents(self) == contents(other),
        }
    }
}
