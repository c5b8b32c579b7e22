//! Everything that can go wrong, as types.
//!
//! Invariant: an error's text is one sentence that names what failed, on what, and (where one
//! exists) the remedy. [`Failure`] concerns one row, which the report then shows as failed;
//! everything else ends the program.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use runahead_harness::{Interrupted, System};

/// Why nothing more can be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The slow storage.
    #[error(transparent)]
    Testbed(#[from] runahead_testbed::Error),
    /// One row; see [`Failure`].
    #[error(transparent)]
    Failure(#[from] Failure),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] System),
    /// A program of the harness itself is missing.
    #[error("{program} is not installed: apt-get install {package}")]
    NoProgram {
        /// Its name.
        program: String,
        /// Debian's package of it.
        package: String,
    },
    /// A program of the harness itself failed.
    #[error("{program} failed ({status}) on {}: {message}", .path.display())]
    Helper {
        /// Its name.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// On what.
        path: PathBuf,
        /// Its own last words.
        message: String,
    },
    /// What rows work on could not be made.
    #[error("{} could not be made: {message}", .path.display())]
    NotMade {
        /// Where it was to be.
        path: PathBuf,
        /// Why, in the words of the program that was to make it.
        message: String,
    },
    /// There is no tree to work on.
    #[error(
        "no source tree: /usr/src/linux-source-*.tar.xz is missing; apt-get install linux-source xz-utils"
    )]
    NoSource,
    /// Nor anything that could stand in for one.
    #[error(
        "no tree of at least {0} files on this machine; as root, apt-get install linux-source xz-utils"
    )]
    NoTree(usize),
    /// The program under test.
    #[error(
        "there is no runahead at {}: build it (cargo build --release), give --runahead PATH, or measure --without-runahead",
        .0.display()
    )]
    NoRunahead(PathBuf),
    /// Not enough memory file system.
    #[error(
        "{} has {free_mib} MiB free and {need_mib} MiB are needed; make room there (in memory: mount -o remount,size=...)",
        .path.display()
    )]
    NoSpace {
        /// A tmpfs.
        path: PathBuf,
        /// What is free.
        free_mib: u64,
        /// What is needed.
        need_mib: u64,
    },
    /// Not a row's name.
    #[error("there is no row {0}; see `runahead-bench list`")]
    NoRow(String),
    /// A report that this version did not write.
    #[error("{} is not a report of this version ({source}); remove it, or give another --out", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Where it stops making sense.
        source: serde_json::Error,
    },
    /// Results of two machines do not belong in one table.
    #[error(
        "{} was measured with other settings or on another machine: measure all rows, or give another --out",
        .0.display()
    )]
    OtherMachine(PathBuf),
    /// Ctrl-C, SIGTERM or SIGHUP.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl Error {
    /// See [`runahead_harness::system`].
    pub fn system(what: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        runahead_harness::system(what, path)
    }
}

/// Why a row has no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The one thing that must never happen.
    #[error("{what} DIFFERS from plain: plain {plain}, {kind} {other}; both are kept in {}", .kept.display())]
    Differs {
        /// Standard output, exit status, ...
        what: &'static str,
        /// What ran.
        kind: &'static str,
        /// What plain gave.
        plain: String,
        /// What the other gave.
        other: String,
        /// Where the outputs are.
        kept: PathBuf,
    },
    /// The command does not work by itself.
    #[error("plain `{command}` failed with {exit}: {message}")]
    Plain {
        /// Its name.
        command: String,
        /// Exit status or signal.
        exit: String,
        /// Its last words.
        message: String,
    },
    /// A run that did not end.
    #[error("{kind} did not end within {} s and was killed", .limit.as_secs())]
    TimedOut {
        /// What ran.
        kind: &'static str,
        /// How long it was given.
        limit: Duration,
    },
    /// Nothing was measured but the command itself.
    #[error("runahead ran the command natively: {0}")]
    Native(String),
    /// The command is not installed.
    #[error("{program} is not installed: apt-get install {package}")]
    NotInstalled {
        /// Its name.
        program: String,
        /// Debian's package of it.
        package: &'static str,
    },
    /// What a row builds is not there.
    #[error(
        "there is no redis_*.orig.tar.gz in {}: run scripts/setup, or fetch it there with apt-get source --download-only redis",
        .0.display()
    )]
    NotFetched(PathBuf),
    /// A module of Python's that Debian has no package of.
    #[error("there is no {module} in {}: run scripts/setup, or pip install --target there", .path.display())]
    NoModule {
        /// Its name.
        module: &'static str,
        /// Where it is looked for.
        path: PathBuf,
    },
    /// A command that was to go on.
    #[error("{kind} ended too early ({exit})")]
    Ended {
        /// What ran.
        kind: &'static str,
        /// How it ended.
        exit: String,
    },
    /// A row needs little memory for a command, and nobody can set that.
    #[error("no control group can limit its memory: {0}")]
    NoControl(String),
    /// A row needs memory to be swapped out, and it cannot be.
    #[error("no memory can be swapped out: {0}")]
    NoSwap(String),
    /// Shadows with a planted fault, or a runahead that cannot have one.
    #[error("runahead did not stop shadows that hint only rubbish: {0}")]
    NotStopped(String),
    /// A server that does not do what it is asked.
    #[error("the server does not answer: {0}")]
    Server(String),
    /// A program that did not tell what it measured.
    #[error("{0} gave no figure")]
    NoFigure(&'static str),
    /// The recorded run and the real one went different ways.
    #[error("the recording of `{0}` shows no access to the storage under test")]
    NothingRecorded(String),
}
