//! Errors of the benchmark.
//!
//! Invariant: the text of an error is one sentence that names what failed, on what, and the remedy
//! if there is one. [`Failure`] concerns one row, which the report then shows as failed; every
//! other error ends the program.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runahead_harness::{Interrupted, System};

/// Reason why nothing more can be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Harness(#[from] runahead_harness::Error),
    #[error(transparent)]
    Testbed(#[from] runahead_testbed::Error),
    #[error(transparent)]
    Failure(#[from] Failure),
    /// Data or figures of a program that works, but not as it should.
    #[error("{} could not be made: {message}", .path.display())]
    NotMade { path: PathBuf, message: String },
    #[error(
        "no source tree: /usr/src/linux-source-*.tar.xz is missing; apt-get install linux-source xz-utils"
    )]
    NoSource,
    #[error(
        "no tree of at least {0} files on this machine; as root, apt-get install linux-source xz-utils"
    )]
    NoTree(usize),
    #[error("there is no row {0}; see `runahead-bench list`")]
    NoRow(String),
    #[error(
        "the everyday rows need a Debian system: make one with scripts/everyday-root DIR, and give --root DIR"
    )]
    NoSystem,
    /// Results of two machines do not belong in one table.
    #[error(
        "{} was measured with other settings or on another machine: measure all rows, or give another --out",
        .0.display()
    )]
    OtherMachine(PathBuf),
}

impl Error {
    /// The error of a step that failed: see [`runahead_harness::system`].
    pub fn system(what: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        runahead_harness::system(what, path)
    }
}

impl From<System> for Error {
    fn from(error: System) -> Self {
        Self::Harness(error.into())
    }
}

impl From<Interrupted> for Error {
    fn from(error: Interrupted) -> Self {
        Self::Harness(error.into())
    }
}

/// Reason why a row has no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The outputs of two runs differ, which must never happen.
    #[error("{what} DIFFERS from plain: plain {plain}, {kind} {other}; both are kept in {}", .kept.display())]
    Differs { what: &'static str, kind: &'static str, plain: String, other: String, kept: PathBuf },
    /// The command does not work by itself.
    #[error("plain `{command}` failed with {exit}: {message}")]
    Plain { command: String, exit: String, message: String },
    #[error("{kind} did not end within {} s and was killed", .limit.as_secs())]
    TimedOut { kind: &'static str, limit: Duration },
    /// Only the command itself would be measured.
    #[error("runahead ran the command natively: {0}")]
    Native(String),
    #[error("{program} is not installed: apt-get install {package}")]
    NotInstalled { program: String, package: &'static str },
    #[error(
        "there is no redis_*.orig.tar.gz in {}: run scripts/setup, or fetch it there with apt-get source --download-only redis",
        .0.display()
    )]
    NotFetched(PathBuf),
    /// Debian has no package of this Python module.
    #[error("there is no {module} in {}: run scripts/setup, or pip install --target there", .path.display())]
    NoModule { module: &'static str, path: PathBuf },
    /// A server or sleeping program ended before it was told to.
    #[error("{kind} ended too early ({exit})")]
    Ended { kind: &'static str, exit: String },
    #[error("no control group can limit its memory: {0}")]
    NoControl(String),
    #[error("no memory can be swapped out: {0}")]
    NoSwap(String),
    /// The build of runahead that can plant a fault.
    #[error("{}: not built (make tools)", .0.display())]
    NotBuilt(PathBuf),
    #[error("the server does not answer: {0}")]
    Server(String),
    #[error("{0} gave no figure")]
    NoFigure(&'static str),
    /// The recorded run and the real one went different ways.
    #[error("the recording of `{0}` shows no access to the storage under test")]
    NothingRecorded(String),
    /// `runahead run --without` does not know the name.
    #[error("runahead refuses --without {without}: {message}")]
    NoMechanism { without: String, message: String },
}
