//! Everything that can go wrong, as types.
//!
//! Invariant: an error's text is one sentence that names what failed, on what, and (where one
//! exists) the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

/// Why storage could not be brought up, asked or taken down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option has a value that no storage can have.
    #[error(transparent)]
    Invalid(#[from] InvalidOption),
    /// This machine or user cannot do it.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The directory is not there.
    #[error("{} is not a directory; create it first", .0.display())]
    NotADirectory(PathBuf),
    /// The directory has something in it, which the mount would hide.
    #[error("{} is not empty; give an empty directory", .0.display())]
    NotEmpty(PathBuf),
    /// Something is up there already.
    #[error("{} is up already; take it down first", .0.display())]
    AlreadyUp(PathBuf),
    /// No storage of the testbed is up there.
    #[error("nothing is up at {}; bring it up first", .0.display())]
    NotUp(PathBuf),
    /// `disk down` of a share, or the other way round.
    #[error("{} is a {actual}, not a {asked}; use `{actual} down`", .dir.display())]
    WrongKind {
        /// Mount point.
        dir: PathBuf,
        /// Kind of storage that is up there.
        actual: crate::Kind,
        /// Kind that the caller expected.
        asked: crate::Kind,
    },
    /// The server would have to wait for itself.
    #[error("{} lies inside the directory it would show ({}); mount it elsewhere", .dir.display(), .source_dir.display())]
    Nested {
        /// The mount point asked for.
        dir: PathBuf,
        /// The directory to pass through.
        source_dir: PathBuf,
    },
    /// Files on the mount are in use.
    #[error("{} is in use; end the programs that have files or their working directory there", .0.display())]
    Busy(PathBuf),
    /// Standard output takes nothing.
    #[error("cannot write to standard output: {0}; send it elsewhere")]
    Output(#[source] io::Error),
    /// A system call failed.
    #[error("cannot {step} ({}): {source}", .path.display())]
    System {
        /// Step that failed.
        step: Step,
        /// Path it failed on.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// `mkfs.ext4` or `fusermount3` refused, or the server ended before it was ready.
    #[error("{program} failed ({status}) on {}: {message}", .path.display())]
    Helper {
        /// Name of the program.
        program: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// Path it was given.
        path: PathBuf,
        /// Its own last words.
        message: String,
    },
    /// The server runs no more; its mounts are dead.
    #[error("the server of {} does not answer ({source}); take it down and up again", .dir.display())]
    ServerGone {
        /// Mount point of the server.
        dir: PathBuf,
        /// Error of asking it.
        source: io::Error,
    },
    /// A state file or an answer that this version does not understand.
    #[error("{} holds something that this version does not understand: {source}", .path.display())]
    Format {
        /// The file or socket.
        path: PathBuf,
        /// First fault of the JSON text.
        source: serde_json::Error,
    },
}

impl Error {
    pub(crate) fn system(step: Step, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::System { step, path, source }
    }

    /// The command's exit status for this error: 2 if the command line has to change, 1 otherwise.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Invalid(_) | Self::WrongKind { .. } | Self::Nested { .. } => 2,
            _ => 1,
        }
    }
}

/// An option value that no storage can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOption {
    /// Parallelism beyond what can be kept in flight.
    #[error("parallelism {given} is not between 1 and {max}")]
    Parallel {
        /// Value that the caller gave.
        given: u32,
        /// The most there can be: a loop device has 128 requests in flight, a share 65535.
        max: u32,
    },
    /// Too many or no spindles.
    #[error("{0} spindles are not between 1 and 128")]
    Spindles(u32),
    /// The stripe is not a whole number of sectors.
    #[error("stripe {0} is not a positive multiple of 512 bytes")]
    Stripe(u64),
    /// Too small for ext4 with a journal, or not in whole pages.
    #[error("size {0} is not a multiple of 4096 bytes of at least 16 MiB")]
    Size(u64),
    /// A jitter that is not a fraction.
    #[error("jitter is not between 0% and 100%")]
    Jitter,
}

/// Facility that this machine or user lacks. Tests skip with its text as the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// CAP_SYS_ADMIN over this mount namespace.
    #[error("a disk needs root (CAP_SYS_ADMIN): run as root, or use a share")]
    Root,
    /// `/dev/fuse`.
    #[error(
        "FUSE is not available: cannot open /dev/fuse (errno {0}); load the module `fuse`, or let this user open it"
    )]
    Fuse(i32),
    /// `/dev/loop-control`.
    #[error(
        "loop devices are not available: cannot open /dev/loop-control (errno {0}); load the module `loop`"
    )]
    Loop(i32),
    /// A program.
    #[error("{program} is not installed: install the package {package}")]
    Program {
        /// Its name.
        program: &'static str,
        /// Debian package that has it.
        package: &'static str,
    },
    /// Dropping the kernel's caches.
    #[error(
        "dropping the kernel's caches needs root; name the directory of a share to make only that cold"
    )]
    DropCaches,
}

/// Step during which a system call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Step {
    /// Making or sizing the file behind a disk.
    CreateBacking,
    /// Opening the directory that a share shows.
    OpenSource,
    /// Mounting the FUSE file system.
    MountFuse,
    /// Agreeing with the kernel on the FUSE protocol.
    Negotiate,
    /// Unmounting.
    Unmount,
    /// Attaching the loop device.
    AttachLoop,
    /// Detaching the loop device.
    DetachLoop,
    /// Running mkfs.ext4.
    MakeFilesystem,
    /// Mounting the disk's file system.
    MountDisk,
    /// Reading or writing the record of what is up.
    KeepRecord,
    /// Starting the server process.
    StartServer,
    /// Ending the server process.
    EndServer,
    /// Opening the control socket.
    Listen,
    /// Forgetting what the kernel caches.
    DropCaches,
    /// Writing what is dirty.
    WriteBack,
    /// Making a file that memory is swapped out to.
    MakeSwap,
    /// Looking at a directory.
    Inspect,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateBacking => "create the backing file",
            Self::OpenSource => "open the directory to share",
            Self::MountFuse => "mount the FUSE file system",
            Self::Negotiate => "negotiate with the kernel's FUSE",
            Self::Unmount => "unmount",
            Self::AttachLoop => "attach a loop device",
            Self::DetachLoop => "detach the loop device",
            Self::MakeFilesystem => "make a file system",
            Self::MountDisk => "mount the disk",
            Self::KeepRecord => "keep the record of what is up",
            Self::StartServer => "start the server",
            Self::EndServer => "end the server",
            Self::Listen => "open the control socket",
            Self::DropCaches => "drop caches",
            Self::WriteBack => "write what is dirty",
            Self::MakeSwap => "make a place to swap to",
            Self::Inspect => "look at",
        })
    }
}
