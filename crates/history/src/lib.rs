//! The memory of earlier runs: what a run of a command read, in order, as a file and as a thing to
//! check a later run against.
//!
//! | module | what it does |
//! |---|---|
//! | [`recorder`] | collects the accesses of a run, each once |
//! | [`follower`] | tells where in a recorded run a later one is, and when it is another |
//! | [`format`] | the bytes of the file |
//! | [`file`] | reads and writes it |
//! | [`merge`] | what a later run changes in the record of earlier ones |
//! | [`session`] | records the current run, and replays an earlier one |
//! | [`store`] | the files that are kept automatically, for each command and for each program |
//!
//! Invariant: a recorded run names paths and ranges of files to be read, and nothing else; whatever
//! bytes a file holds, what comes out is an error or a bounded list of these, all paths absolute.
#![forbid(unsafe_code)]

pub mod file;
pub mod follower;
pub mod format;
pub mod merge;
pub mod recorder;
pub mod session;
pub mod store;

pub use file::HistoryError;
pub use follower::{Follower, Match};
pub use recorder::{PathState, Recorder};
pub use store::{Keys, Store};

use runahead_abi::HintKind;
use runahead_abi::hint_record::NO_FOLLOW;

/// Most accesses that a run can have; the rest of a longer one is not recorded.
pub const ACCESSES_MAX: usize = 1 << 20;
/// Most paths.
pub const PATHS_MAX: usize = 1 << 18;
/// Most programs that are started in a run.
pub const PROGRAMS_MAX: usize = 1 << 18;
/// Most bytes in all paths together.
pub const PATH_BYTES_MAX: usize = 32 << 20;
/// Longest range of one access, in bytes.
pub const RANGE_MAX: u64 = 8 << 20;

/// Identifies a command line: see [`store::key`].
pub type CommandKey = [u8; 16];

/// Kind of an access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccessKind {
    /// It was looked up.
    Lookup,
    /// It was looked up, and not followed where it is a symbolic link.
    LookupNoFollow,
    /// It is a directory, and its entries were read.
    List,
    /// It is a symbolic link, whose text was read.
    Link,
    /// It was executed.
    Execute,
    /// Bytes of it were read or mapped.
    Data {
        /// The first.
        offset: u64,
        /// Number of bytes, from 1 to [`RANGE_MAX`].
        length: u64,
    },
    /// Bytes of a mapping of it were used. No run tells of that before it ends.
    Touched {
        /// The first.
        offset: u64,
        /// Number of bytes, from 1 to [`RANGE_MAX`].
        length: u64,
    },
}

impl AccessKind {
    /// Kind of a hint's access, with the flags that matter. `None`: it is no access, or no file can
    /// have such a range.
    pub fn of_hint(kind: HintKind, flags: u32, offset: u64, length: u64) -> Option<Self> {
        Some(match kind {
            HintKind::Lookup if flags & NO_FOLLOW != 0 => AccessKind::LookupNoFollow,
            HintKind::Lookup => AccessKind::Lookup,
            HintKind::Listing => AccessKind::List,
            HintKind::Link => AccessKind::Link,
            HintKind::Program => AccessKind::Execute,
            HintKind::Cancel => return None,
            HintKind::Data => {
                let end = offset.checked_add(length)?;
                let sound = (1..=RANGE_MAX).contains(&length) && end <= i64::MAX as u64;
                return sound.then_some(AccessKind::Data { offset, length });
            }
        })
    }

    /// The kind and flags of the hint that stands for it.
    pub fn hint(self) -> (HintKind, u32) {
        match self {
            AccessKind::Lookup => (HintKind::Lookup, 0),
            AccessKind::LookupNoFollow => (HintKind::Lookup, NO_FOLLOW),
            AccessKind::List => (HintKind::Listing, 0),
            AccessKind::Link => (HintKind::Link, NO_FOLLOW),
            AccessKind::Execute => (HintKind::Program, 0),
            AccessKind::Data { .. } | AccessKind::Touched { .. } => (HintKind::Data, 0),
        }
    }

    /// First byte and number of bytes, if it is an access to file data.
    pub fn range(self) -> Option<(u64, u64)> {
        match self {
            AccessKind::Data { offset, length } | AccessKind::Touched { offset, length } => {
                Some((offset, length))
            }
            _ => None,
        }
    }

    /// Bytes of file data.
    pub fn bytes(self) -> u64 {
        self.range().map_or(0, |(_, length)| length)
    }

    /// A run that does it says so at once.
    pub fn is_reported(self) -> bool {
        !matches!(self, AccessKind::Touched { .. })
    }
}

/// Attributes by which a file is known to be the one that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Size in bytes.
    pub size: u64,
    /// Time of its last change, in nanoseconds since 1970.
    pub mtime: i64,
    /// Its number in its file system.
    pub inode: u64,
}

/// A path that a run used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedPath {
    /// Absolute, without NUL.
    pub path: Vec<u8>,
    /// The identity under which the program reached it first (`runahead_abi::Identity`).
    pub key: u64,
    /// `None`: there was nothing of that name, or it was not looked at.
    pub attributes: Option<Attributes>,
}

/// First access of its kind in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Index of the [`Place`].
    pub path: u32,
    /// Kind of the access.
    pub kind: AccessKind,
}

/// A recorded run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Key of the command that ran.
    pub command: CommandKey,
    /// Each path once.
    pub paths: Vec<RecordedPath>,
    /// Accesses, in the order in which they were made.
    pub accesses: Vec<Access>,
    /// Number of accesses made before each program was started, in order. Never falls, and never
    /// exceeds the number of accesses.
    pub programs: Vec<u32>,
    /// Accesses that later runs have not made: index of each, ascending, and how many runs in a
    /// row.
    pub unused: Vec<(u32, u8)>,
    /// Command line and directory, for people.
    pub origin: Origin,
}

/// Command line and directory of a record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The command line, cut to [`Origin::BYTES_MAX`] bytes; empty in a record that is of more than
    /// one.
    pub line: Vec<Vec<u8>>,
    /// The working directory.
    pub directory: Vec<u8>,
}

impl Origin {
    /// Bytes of words and directory that are kept.
    pub const BYTES_MAX: usize = 4096;

    /// Origin of the command `line` run in `directory`.
    pub fn new<'a>(line: impl IntoIterator<Item = &'a [u8]>, directory: &[u8]) -> Self {
        let directory = directory[..directory.len().min(Origin::BYTES_MAX)].to_owned();
        let mut left = Origin::BYTES_MAX - directory.len();
        let mut words = Vec::new();
        for word in line {
            let cut = &word[..word.len().min(left)];
            left -= cut.len();
            words.push(cut.to_owned());
            if left == 0 {
                break;
            }
        }
        Origin { line: words, directory }
    }
}

impl Run {
    /// The place of an access.
    pub fn path_of(&self, access: &Access) -> &RecordedPath {
        &self.paths[access.path as usize]
    }
}
