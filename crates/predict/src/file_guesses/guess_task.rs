//! What workers do for guesses, and what comes of it.

use std::sync::Arc;

use super::guess_kind::{Of, PlaceName};
use crate::directory_expansion::Name;
use crate::hint_order::{ClientId, Rank};

/// Task of a worker for a guess, done without the lock.
pub enum Errand<F> {
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

impl<F> Errand<F> {
    /// The path that the errand is about.
    pub(super) fn path(&self) -> &Arc<[u8]> {
        match self {
            Errand::List { path }
            | Errand::Look { path }
            | Errand::Browse { path }
            | Errand::Read { path, .. }
            | Errand::Scan { path, .. } => path,
        }
    }
}

impl<F> Errand<F> {
    /// Bytes of data that the errand brings.
    pub fn bytes(&self) -> u64 {
        match self {
            Errand::Read { size, .. } | Errand::Scan { size, .. } => *size,
            Errand::List { .. } | Errand::Look { .. } | Errand::Browse { .. } => 0,
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
pub struct Waiting<F> {
    pub(super) client: ClientId,
    pub(super) place: PlaceName,
    pub(super) rank: Rank,
    pub(super) errand: Errand<F>,
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
    pub fn whose(&self) -> (ClientId, Of) {
        (self.client, self.place.of)
    }
}
