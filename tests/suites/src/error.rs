//! Errors of the harness.
//!
//! Invariant: the text of an error is one sentence that names what failed, on what, and the remedy
//! if there is one. A unit that fails is a result and no error; an error ends the program.

use std::io;
use std::path::{Path, PathBuf};

use runahead_harness::{Interrupted, System};

/// Reason why nothing more can be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Harness(#[from] runahead_harness::Error),
    #[error(transparent)]
    Testbed(#[from] runahead_testbed::Error),
    /// This machine cannot have slow disks.
    #[error(transparent)]
    Missing(#[from] runahead_testbed::Missing),
    #[error("there is no suite {0}; see `runahead-suites list`")]
    NoSuite(String),
    #[error("{suite} has no unit {unit}; see `runahead-suites list --suite {suite}`")]
    NoUnit { suite: &'static str, unit: String },
    /// The script that downloads and builds failed.
    #[error("preparing {suite} failed ({end}); the reason is above")]
    Prepare { suite: &'static str, end: String },
    /// The script found its source nowhere.
    #[error("{0} is to be had neither from its repository nor from RUNAHEAD_SUITES_DIR")]
    Nowhere(&'static str),
    /// A process or namespace that a unit left holds the disk.
    #[error("{} is still in use by what ran there; the disk cannot be made cold", .0.display())]
    Busy(PathBuf),
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
