//! Everything that can go wrong, as types.
//!
//! Invariant: an error's text is one sentence that names what failed, on what, and (where one
//! exists) the remedy. A unit that fails is a result and no error; an error ends the program.

use std::io;
use std::path::{Path, PathBuf};

use runahead_harness::{Interrupted, System};

/// Why nothing more can be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The slow storage.
    #[error(transparent)]
    Testbed(#[from] runahead_testbed::Error),
    /// This machine cannot have slow disks.
    #[error(transparent)]
    Missing(#[from] runahead_testbed::Missing),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] System),
    /// A program of the harness itself is missing.
    #[error("{program} is not installed: apt-get install {package}")]
    NoProgram {
        /// Its name.
        program: &'static str,
        /// Debian's package of it.
        package: &'static str,
    },
    /// A program of the harness itself failed.
    #[error("`{command}` failed ({end}): {message}")]
    Helper {
        /// Its command line.
        command: String,
        /// How it ended.
        end: String,
        /// Its own last words.
        message: String,
    },
    /// The program under test.
    #[error(
        "there is no runahead at {}: build it (cargo build --release), or give --runahead PATH",
        .0.display()
    )]
    NoRunahead(PathBuf),
    /// What plants predictions.
    #[error(
        "there is no planter at {}: build it (cargo build --release -p runahead-tests --bins), or give --plant PATH",
        .0.display()
    )]
    NoPlanter(PathBuf),
    /// Not a suite's name.
    #[error("there is no suite {0}; see `runahead-suites list`")]
    NoSuite(String),
    /// Not a unit's name.
    #[error("{suite} has no unit {unit}; see `runahead-suites list --suite {suite}`")]
    NoUnit {
        /// The suite.
        suite: &'static str,
        /// What was asked for.
        unit: String,
    },
    /// A script that downloads and builds.
    #[error("preparing {suite} failed ({end}); the reason is above")]
    Prepare {
        /// The suite.
        suite: &'static str,
        /// How the script ended.
        end: String,
    },
    /// A script found nowhere what it needs.
    #[error("{0} is to be had neither from its repository nor from RUNAHEAD_SUITES_DIR")]
    Nowhere(&'static str),
    /// What a unit left holds the disk.
    #[error("{} is still in use by what ran there; the disk cannot be made cold", .0.display())]
    Busy(PathBuf),
    /// A file that this version did not write.
    #[error("{} is not a report of this version ({source}); remove it", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Where it stops making sense.
        source: serde_json::Error,
    },
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
