//! What a try has changed (`docs/guide/try.md`): where it is kept, what it comes to, and how it becomes real or is dropped. Without an
//! agent: the tree that one has left below a directory ([`runahead_abi::overlay`]) is all that this needs.
//!
//! | module | what it does |
//! |---|---|
//! | [`store`] | where tries are kept, and how they are found |
//! | [`changes`] | what one would change, and what somebody else has changed meanwhile |
//! | [`diff`] | the same, line by line |
//! | [`commit`] | makes it so, in steps that can be taken up again |
//! | `origins` | what names led to when they were first changed |
//! | `install` | puts one thing into its place |
//!
//! Invariant: nothing of a file stands under its real name before all of it does, and no name that somebody else has changed meanwhile
//! is touched unless that is asked for.

pub mod changes;
pub mod commit;
pub mod diff;
mod install;
mod origins;
pub mod store;

pub use changes::{Change, ChangeKind, Changes, FileType};
pub use commit::CommitOutcome;
pub use store::{Meta, Store, Try};

use std::path::{Path, PathBuf};

/// What could not be done, on what, and why.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call failed.
    #[error("cannot {what} {path}: {error}", path = path.display())]
    Io {
        /// What was to be done.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// The kernel's reason.
        error: std::io::Error,
    },
    /// A file of ours is not as we write it.
    #[error("{path} is not as it was written: {why}", path = path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such try.
    #[error("no try is called {0}; see runahead try list")]
    Unknown(String),
    /// More than one is called so.
    #[error("more than one try is called {0}...; give more of its name")]
    Ambiguous(String),
    /// There is none at all.
    #[error("there is no try; start one with runahead try -- COMMAND")]
    NoTries,
    /// Its command has not ended.
    #[error("try {0} is still running; wait for its end, or end its command, first")]
    Running(String),
    /// The user has no home.
    #[error(
        "neither XDG_STATE_HOME nor HOME says where tries are to be kept; set one, or give --state DIR"
    )]
    NoHome,
    /// The path of the directory has no room for an agent.
    #[error("the path of {path} is longer than tries can have; give --state DIR with a shorter one", path = .0.display())]
    TooLong(PathBuf),
    /// It would change what tries are kept in.
    #[error("it has changed {path}, in which tries are kept: undo it", path = .0.display())]
    ChangesItsStore(PathBuf),
    /// What it would be of would be gone.
    #[error("try {id} has tries inside it; commit or undo them first: {inside}")]
    Undecided {
        /// The try.
        id: String,
        /// Those.
        inside: String,
    },
    /// It is only to be taken up again.
    #[error("try {0} is half committed: finish that with runahead try commit {0}")]
    HalfCommitted(String),
}

/// What became of something.
pub type Result<T> = std::result::Result<T, Error>;

/// Makes an error of what could not be done with a path.
fn io_error(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::Io { what, path: path.to_owned(), error }
}
