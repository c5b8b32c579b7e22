//! Errors that bench and suites have in common.
//!
//! Invariant: the text of an error is one sentence that names what failed, on what, and the remedy
//! if there is one.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use crate::interrupt::Interrupted;
use crate::system_error::{System, system};

/// Anything that ends a program that runs others and compares.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error(transparent)]
    System(#[from] System),
    /// Ctrl-C, SIGTERM or SIGHUP.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A helper program is missing.
    #[error("{program} is not installed: apt-get install {package}")]
    NoProgram {
        /// Name of the program.
        program: &'static str,
        /// Debian's package of it.
        package: &'static str,
    },
    /// A helper program failed.
    #[error("`{command}` failed ({}): {message}", crate::exit_status::describe(*.status))]
    Helper {
        /// Its command line.
        command: String,
        /// Its end.
        status: ExitStatus,
        /// Its last line on standard error.
        message: String,
    },
    /// The program under test is missing.
    #[error("there is no {name} at {}: build it (cargo build --release), or give --{name} PATH", .path.display())]
    NoSubject {
        /// Name of the program, and of the option that gives another path.
        name: &'static str,
        /// The path at which it was looked for.
        path: PathBuf,
    },
    /// A file system is too full.
    #[error(
        "{} has {free_mib} MiB free and {need_mib} MiB are needed; make room there (in memory: mount -o remount,size=...)",
        .path.display()
    )]
    NoSpace {
        /// A directory of the file system.
        path: PathBuf,
        /// Free now.
        free_mib: u64,
        /// Needed.
        need_mib: u64,
    },
    /// A report that this version did not write.
    #[error("{} is not a report of this version ({source}); remove it or choose another file", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The place at which it is wrong.
        source: serde_json::Error,
    },
}

/// The error of a step that failed: see [`system`].
pub fn failed(what: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
    system(what, path)
}
