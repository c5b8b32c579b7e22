//! Tasks of workers for guesses, and their outcomes.

use std::sync::Arc;

use super::guess_kind::{GuessKind, PlaceName};
use crate::directory_expansion::Name;
use crate::hint_order::{ClientId, Rank};

/// Task of a worker for a guess, done without the lock.
pub enum GuessTask<F> {
    /// Read the entries of a directory, if there are not too many.
    List {
        /// Path of the directory.
        path: Arc<[u8]>,
    },
    /// Look a file up.
    Look {
        /// Path of the file.
        path: Arc<[u8]>,
    },
    /// Read the entries of a directory, and do nothing with them.
    Browse {
        /// Path of the directory.
        path: Arc<[u8]>,
    },
    /// Read a file.
    Read {
        /// Path of the file.
        path: Arc<[u8]>,
        /// The opened file.
        file: Arc<F>,
        /// Size of the file in bytes.
        size: u64,
    },
    /// Read a file, and look for names in it.
    Scan {
        /// Path of the file.
        path: Arc<[u8]>,
        /// The opened file.
        file: Arc<F>,
        /// Size of the file in bytes.
        size: u64,
    },
}

impl<F> GuessTask<F> {
    /// The path that the errand is about.
    pub(super) fn path(&self) -> &Arc<[u8]> {
        match self {
            GuessTask::List { path }
            | GuessTask::Look { path }
            | GuessTask::Browse { path }
            | GuessTask::Read { path, .. }
            | GuessTask::Scan { path, .. } => path,
        }
    }
}

impl<F> GuessTask<F> {
    /// Bytes of data that the errand brings.
    pub fn bytes(&self) -> u64 {
        match self {
            GuessTask::Read { size, .. } | GuessTask::Scan { size, .. } => *size,
            GuessTask::List { .. } | GuessTask::Look { .. } | GuessTask::Browse { .. } => 0,
        }
    }
}

/// Result of an errand.
pub enum Outcome<F> {
    /// Entries of a directory.
    Names(Vec<Name>),
    /// A regular file, and its size.
    File(Arc<F>, u64),
    /// Possible names found in a file.
    Tokens(Vec<Box<[u8]>>),
    /// No further work: the file was read, is of no use, or there was an error.
    Over,
}

/// An errand that no worker has taken yet.
pub struct WaitingErrand<F> {
    pub(super) client: ClientId,
    pub(super) place: PlaceName,
    pub(super) rank: Rank,
    pub(super) errand: GuessTask<F>,
}

/// An errand that a worker is on.
pub struct Sent {
    pub(super) client: ClientId,
    pub(super) place: PlaceName,
    /// The path that the errand is about.
    pub(super) path: Arc<[u8]>,
}

impl Sent {
    /// The client whose guess the errand is for, and what is guessed.
    pub fn whose(&self) -> (ClientId, GuessKind) {
        (self.client, self.place.of)
    }
}
