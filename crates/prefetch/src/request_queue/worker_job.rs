//! Jobs that pass between the queue and the workers.

use std::ops::Range;
use std::sync::Arc;

use runahead_predict::{Batch, ClientId, EntryId, GuessTask, Sent, Tag, Task};

use crate::device_number::Home;

/// Kind of a path's object, as far as reading it is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// A regular file of this many bytes.
    File {
        size: u64,
    },
    Directory,
    Link,
    /// A FIFO, socket or device: never opened.
    Other,
}

/// Place of an object on storage.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Place {
    /// Device of the object.
    pub home: Home,
    /// Place on the device: only the order counts.
    pub at: u64,
}

/// Result of a lookup.
pub(crate) struct Found<F> {
    pub file: Arc<F>,
    pub class: Class,
    pub place: Place,
}

/// Step of a worker, done without the lock.
pub(crate) enum Step<F> {
    /// Find out what the path names, and have its attributes cached.
    Look { path: Arc<[u8]>, follow: bool },
    /// Read the entries of a directory, and keep the names if they are wanted.
    List { file: Arc<F>, names: bool },
    /// Read the text of a symbolic link.
    Link { path: Arc<[u8]> },
    /// Read a range of a regular file.
    Read { file: Arc<F>, range: Range<u64> },
    /// Look up names that a directory was seen to hold.
    Names { batch: Arc<Batch> },
    /// Something for a program, and whether it is of the program's own file.
    Program { task: Task<F>, own: bool },
    /// A guess.
    Guess { sent: Sent, errand: GuessTask<F> },
}

/// A part of a hint that a worker was just given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenPart {
    pub client: ClientId,
    pub tag: Tag,
    /// Bytes of file data.
    pub bytes: u64,
}

/// A step and the entry it belongs to.
pub(crate) struct Job<F> {
    pub entry: EntryId,
    pub step: Step<F>,
}
