//! Outcomes of hints, collected for the caller to act on without the lock.

use std::sync::Arc;

use runahead_abi::HintKind;
use runahead_estimators::Identity;

use crate::hint_order::{ClientId, Tag};
use crate::result_sink::Completion;

/// Result of submitting a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submitted {
    /// The hint waits, as a job of its own.
    Queued,
    /// The hint waits, joined to what was there for the path.
    Merged,
    /// The hint adds nothing: all of it waits already or is being read.
    Duplicate,
    /// The hint's answer is known: completed at once.
    Answered,
    /// No room for the hint: its keys were forgotten.
    Refused,
}

/// Why a step brought nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepFailure {
    /// The answer is an error. The target would get the same one: it counts as known.
    Answer,
    /// We ran out of descriptors or memory. Nothing is known; the hint is forgotten.
    Ours,
}

/// Reports and closes that are due outside the lock.
pub struct Effects<F> {
    /// Log keys that are settled.
    pub done: Vec<(ClientId, Identity)>,
    /// Log keys to forget, each with the first run whose hints stay.
    pub forget: Vec<(ClientId, Identity, u32)>,
    /// Completions to report.
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
    /// Adds the completion of the hints that `tag` sums up.
    pub fn complete(
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
}
