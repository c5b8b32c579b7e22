//! What passes between the queue and the workers.

use std::ops::Range;
use std::sync::Arc;

use runahead_abi::{HintKind, Identity};

use crate::byte_ranges::Group;
use crate::concurrency_limit::Home;
use crate::directory_expansion::Batch;
use crate::file_guesses::{Errand, Sent};
use crate::hint_order::{ClientId, EntryId, Tag};
use crate::program_loading::Task;
use crate::result_sink::Completion;

/// What a path names, as far as reading it is concerned.
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

/// Where something lies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Place {
    /// On which device.
    pub home: Home,
    /// Where there: only the order counts.
    pub at: u64,
}

/// What a lookup brought back.
pub(crate) struct Found<F> {
    pub file: Arc<F>,
    pub class: Class,
    pub place: Place,
}

/// Why a step brought nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// The answer is an error. The target would get the same one: it counts as known.
    Answer,
    /// We ran out of descriptors or memory. Nothing is known; the hint is forgotten.
    Ours,
}

/// One thing for a worker to do, without the lock.
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
    /// Something that nobody asked for.
    Guess { sent: Sent, errand: Errand<F> },
}

/// A step and the entry it belongs to.
pub(crate) struct Job<F> {
    pub entry: EntryId,
    pub step: Step<F>,
}

/// What is to be told, and closed, outside the lock.
pub(crate) struct Effects<F> {
    pub done: Vec<(ClientId, Identity)>,
    /// Keys, and the run whose hints and later ones are not meant.
    pub forget: Vec<(ClientId, Identity, u32)>,
    pub completed: Vec<(ClientId, Completion)>,
    /// Handles that were let go of, for the caller to drop.
    pub files: Vec<Arc<F>>,
}

impl<F> Default for Effects<F> {
    fn default() -> Self {
        Effects { done: vec![], forget: vec![], completed: vec![], files: vec![] }
    }
}

impl<F> Effects<F> {
    pub(crate) fn complete(
        &mut self,
        client: ClientId,
        kind: HintKind,
        tag: &Tag,
        bytes: u64,
        failed: bool,
    ) {
        let &Tag { run, flags, hints, steers, .. } = tag;
        let completion = Completion { run, kind, flags, hints, steers, bytes, failed, queued: 0 };
        self.completed.push((client, completion));
    }

    pub(crate) fn complete_groups(&mut self, client: ClientId, groups: Vec<Group>, failed: bool) {
        for group in groups {
            let failed = group.failed || failed;
            self.complete(client, HintKind::Data, &group.tag, group.bytes, failed);
        }
    }
}
