//! History of earlier runs: records what a run of a command read, in order, as a file, and checks a
//! later run against it.
//!
//! | module | what it does |
//! |---|---|
//! | [`recorder`] | collects the accesses of a run, each once |
//! | [`follower`] | follows a later run through a recorded one |
//! | [`format`] | the bytes of the file |
//! | [`run_file`] | reads and writes it |
//! | [`merge`] | merges a later run into the record of earlier ones |
//! | [`run_log`] | the log of a run, written while its command runs |
//! | [`pending_runs`] | logs that are not yet merged into the records |
//! | [`session`] | records the current run, and replays an earlier one |
//! | [`store`] | the files that are kept automatically, for each command and for each program |
//!
//! Invariant: a recorded run names paths and ranges of files to be read, and nothing else. Whatever
//! bytes a file holds, decoding it gives an error or a bounded list of these, with absolute paths.
#![forbid(unsafe_code)]

pub mod follower;
pub mod format;
pub mod merge;
pub mod pending_runs;
pub mod recorder;
pub mod run_file;
pub mod run_log;
pub mod session;
pub mod store;

pub use follower::{Follower, Match};
pub use recorder::{PathState, Recorder};
pub use run_file::HistoryError;
pub use store::{Keys, Store};

use runahead_abi::HintKind;
use runahead_abi::hint_record::NO_FOLLOW;
use serde::{Deserialize, Serialize};

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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum AccessKind {
    /// The path was looked up.
    Lookup,
    /// The path was looked up without following it if it is a symbolic link.
    LookupNoFollow,
    /// The entries of the directory were read.
    List,
    /// The text of the symbolic link was read.
    Link,
    /// The file was executed.
    Execute,
    /// Bytes of the file were read or mapped.
    Data {
        /// The first.
        offset: u64,
        /// Number of bytes, from 1 to [`RANGE_MAX`].
        length: u64,
    },
    /// Bytes of a mapping of the file were used. A run reports this only when it ends.
    Touched {
        /// The first.
        offset: u64,
        /// Number of bytes, from 1 to [`RANGE_MAX`].
        length: u64,
    },
}

impl AccessKind {
    /// Kind of a hint's access, with the flags that matter. `None` if it is no access, or if no
    /// file can have such a range.
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

    /// True if a run reports the access at once.
    pub fn is_reported(self) -> bool {
        !matches!(self, AccessKind::Touched { .. })
    }
}

/// Attributes by which a file is known to be the one that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attributes {
    /// Size in bytes.
    pub size: u64,
    /// Time of its last change, in nanoseconds since 1970.
    pub mtime: i64,
    /// Inode number.
    pub inode: u64,
}

/// A path that a run used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedPath {
    /// Absolute, without NUL.
    pub path: Vec<u8>,
    /// The identity under which the program reached it first (`runahead_estimators::Identity`).
    pub key: u64,
    /// Attributes of the file. `None` if there was none of that name, or if it was not examined.
    pub attributes: Option<Attributes>,
}

/// First access of its kind in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Index of the [`RecordedPath`].
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
    /// Command line, cut to [`Origin::BYTES_MAX`] bytes; empty in a record of several command
    /// lines.
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
    /// Path of an access.
    pub fn path_of(&self, access: &Access) -> &RecordedPath {
        &self.paths[access.path as usize]
    }
}
