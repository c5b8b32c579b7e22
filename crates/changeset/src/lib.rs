//! Changes of a try (`docs/guide/try.md`): store, comparison, commit and undo.
//!
//! No agent is needed: everything is read from the directory that one has left
//! ([`runahead_abi::overlay`]).
//!
//! | module | contents |
//! |---|---|
//! | [`store`] | where tries are kept |
//! | `try_selection` | which try is meant, by its name or the working directory |
//! | `time_names` | names of tries, which sort by time |
//! | [`try_changes`] | the changes of a try, and conflicts with other processes |
//! | [`chosen_paths`] | paths that a user gives to choose some of the changes |
//! | `chosen_changes` | some of the changes, and what cannot be chosen alone |
//! | [`running_processes`] | processes of the try that have not ended |
//! | [`diff`] | the changes line by line |
//! | [`commit`] | the commit, in steps that can be resumed |
//! | `readable_entry` | entries that their owner may not read, made readable for a commit |
//! | `recorded_origins` | what names led to before their first change |
//! | `linked_names` | names of one file |
//! | `needed_room` | room on other file systems, before a commit |
//! | `printed_name` | names of files for terminals, patch(1) and JSON |
//! | [`recorded_reads`] | what the try has read, and what of that has changed |
//! | `install` | the move of one entry into place |
//! | `copied_entry` | copies of entries on other file systems |
//! | `entry_metadata` | owners, permissions, attributes and times |
//! | `held_tree` | directories held by descriptors, and their entries |
//! | `widened_directory` | directories of an upper tree that are widened for a while |
//! | `widened_modes` | notes of permissions that are widened |
//! | `narrowed_modes` | permissions set back that a killed process has left widened |
//!
//! Invariant: a file has its real name only when it is complete. A name that another process has
//! changed meanwhile is not touched unless the user asks for it.

mod chosen_changes;
pub mod chosen_paths;
pub mod commit;
mod copied_entry;
pub mod diff;
mod entry_metadata;
mod held_tree;
mod install;
mod linked_names;
mod narrowed_modes;
mod needed_room;
mod printed_name;
mod readable_entry;
mod recorded_origins;
pub mod recorded_reads;
pub mod running_processes;
pub mod store;
mod time_names;
pub mod try_changes;
mod try_selection;
mod widened_directory;
mod widened_modes;

pub use chosen_paths::ChosenPaths;
pub use commit::{CommitOutcome, UndoOutcome};
pub use printed_name::printed_name;
pub use recorded_reads::ReadComparison;
pub use store::{Store, Try, TryMetadata};
pub use try_changes::{Change, ChangeKind, Changes, FileType};

use std::path::{Path, PathBuf};

/// Error with the operation, its object and the reason.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {what} {path}: {error}", path = path.display())]
    Io {
        /// Operation, as a verb.
        what: &'static str,
        /// Path that the operation was on.
        path: PathBuf,
        /// Error of the kernel.
        error: std::io::Error,
    },
    /// A file of a try is damaged.
    #[error("{path} is damaged: {why}", path = path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        why: String,
    },
    /// No try has this name.
    #[error("no try is called {0}; see runahead try list")]
    Unknown(String),
    /// More than one try has a name that starts so.
    #[error("more than one try has a name that starts with {0}; give more of the name")]
    Ambiguous(String),
    /// There are no tries.
    #[error("there is no try; start one with runahead try -- COMMAND")]
    NoTries,
    /// Selection of a try where all were begun elsewhere.
    #[error(
        "no try was begun in {directory} or above it; give the name of another: {elsewhere}",
        directory = printed_name(directory)
    )]
    NoneHere {
        /// The working directory.
        directory: PathBuf,
        /// Names and directories of other tries.
        elsewhere: String,
    },
    /// A process of the try has not ended.
    #[error("try {id} is still running{processes}; wait for its end, or end its processes, first")]
    Running {
        /// The try.
        id: String,
        /// Processes of the try, in parentheses, or nothing.
        processes: String,
    },
    /// The user has no home directory, or it is not there.
    #[error(
        "no directory for tries: XDG_STATE_HOME is no absolute path, and HOME no directory; set one, or give --state DIR"
    )]
    NoHome,
    /// The path of the directory is too long for agents.
    #[error("the path {path} is too long for tries; give --state DIR with a shorter one", path = .0.display())]
    TooLong(PathBuf),
    /// The try has changed the directory where tries are kept.
    #[error("the try has changed {path}, where tries are kept; it can only be undone", path = .0.display())]
    ChangesItsStore(PathBuf),
    /// The try has nested tries, which would be lost.
    #[error("try {id} has nested tries; commit or undo them first: {inside}")]
    Undecided {
        /// The try.
        id: String,
        /// Names of the nested tries.
        inside: String,
    },
    /// A file system is too full for the commit.
    #[error(
        "nothing was committed: {needed} bytes would be copied to the file system of {directory}, which has {free} free; \
         make room and commit again, or undo the try",
        directory = directory.display()
    )]
    NoRoom {
        /// Directory on the file system.
        directory: PathBuf,
        /// Size in bytes of what the commit copies there.
        needed: u64,
        /// Free bytes.
        free: u64,
    },
    /// A step of the commit would fail. Text with the names and reasons.
    #[error("nothing was committed: {0}; mend that and commit again, or undo the try")]
    Refused(String),
    /// A step of the commit failed, and all that were done were taken back.
    #[error("nothing was committed: {0}; what was done was taken back")]
    TakenBack(Box<Error>),
    /// A step of the commit failed, and what was done could not be taken back.
    #[error(
        "the commit of try {id} stopped: {error}; and not all was taken back: {back}; \
         see runahead try status {id}, then finish it with runahead try commit {id} or take it back with undo {id}"
    )]
    Stopped {
        /// The try.
        id: String,
        /// Reason why the commit stopped.
        error: Box<Error>,
        /// Reason why a step was not taken back.
        back: Box<Error>,
    },
    /// The commit was interrupted, and can only be resumed.
    #[error(
        "the commit of try {0} was interrupted and cannot be taken back; finish it with runahead try commit {0}"
    )]
    HalfCommitted(String),
    /// Paths were given, and an earlier commit of the try was interrupted.
    #[error(
        "a commit of try {0} was interrupted: finish it with runahead try commit {0}, or take it back with undo {0}, \
         before you give a PATH"
    )]
    Interrupted(String),
    /// No change is at or below a given path.
    #[error(
        "nothing was done: nothing in try {id} is at or below {path}; see runahead try status {id}",
        path = printed_name(path)
    )]
    NothingThere {
        /// The try.
        id: String,
        /// The path.
        path: PathBuf,
    },
    /// A given path is in a directory that is committed or undone as a whole.
    #[error(
        "nothing was done: {path} is in a directory that the try has {done}; give that instead: {directory}",
        path = printed_name(path), directory = printed_name(directory)
    )]
    NotAlone {
        /// The path.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
        /// Change of the directory, as a participle.
        done: &'static str,
    },
    /// Names of a file were chosen, and others of it were not.
    #[error(
        "nothing was done: {path} is a name of one file with {others}; give these too",
        path = printed_name(path)
    )]
    NotAllNames {
        /// A name that was chosen.
        path: PathBuf,
        /// Names that were not.
        others: String,
    },
}

/// Result of an operation on tries.
pub type Result<T> = std::result::Result<T, Error>;

/// Returns a conversion of an I/O error on `path` to an [`Error`].
fn io_error(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::Io { what, path: path.to_owned(), error }
}
