//! Undo logs (section 5.2).

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::ids::{CheckpointId, HeldId, SpecId, UndoId};
use crate::set::{Set, Slot};
use crate::specs::Order;

/// What takes a thing back to where it was before an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Back {
    /// Of a process: a state of it, and when that was taken.
    Checkpoint { id: CheckpointId, taken: Duration },
    /// Of a process: its parent was speculative when it forked it. It ends.
    Birth,
    /// Of a process that has exited: another had waited for it.
    Reap(UndoId),
    /// Of an object: it was changed.
    Change(UndoId),
    /// Of an object: it was made.
    Making(UndoId),
}

impl Back {
    pub fn checkpoint(self) -> Option<CheckpointId> {
        match self {
            Back::Checkpoint { id, .. } => Some(id),
            _ => None,
        }
    }

    pub fn undo(self) -> Option<UndoId> {
        match self {
            Back::Reap(undo) | Back::Change(undo) | Back::Making(undo) => Some(undo),
            Back::Checkpoint { .. } | Back::Birth => None,
        }
    }
}

/// One operation that made a thing speculative, or more so, or that changed a speculative one.
#[derive(Debug)]
pub(crate) struct Entry {
    pub order: Order,
    /// Open speculations that came with this entry: those before it do not refer to them.
    pub refs: Set,
    pub back: Back,
    /// The speculation that the process created with it.
    pub created: Option<SpecId>,
    /// Of a process: since the entry, and before the next one, it has changed what others can see,
    /// or has been seen.
    pub changed: bool,
    /// Of a process: output that it made since the last checkpoint, at the last entry that has it.
    pub held: Vec<(Order, HeldId)>,
}

/// The operations on one thing that may have to be taken back, the oldest first.
///
/// Invariants: the first entry refers to a speculation; no two entries refer to the same one;
/// `dependencies` are all that they refer to; entries that share a checkpoint lie together.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    dependencies: Set,
    /// Of a process: it has exited.
    pub exited: bool,
}

impl Log {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn dependencies(&self) -> &Set {
        &self.dependencies
    }

    pub fn last(&mut self) -> Option<&mut Entry> {
        self.entries.back_mut()
    }

    /// Whether a checkpoint is in it.
    pub fn has(&self, checkpoint: CheckpointId) -> bool {
        self.entries.iter().any(|entry| entry.back.checkpoint() == Some(checkpoint))
    }

    /// Adds an entry. Output that was made since a checkpoint which it shares waits for it, too,
    /// if it `takes_output`: when this entry is taken back, the process makes that output again.
    pub fn push(&mut self, mut entry: Entry, takes_output: bool) {
        self.dependencies.add(&entry.refs);
        if let (Some(last), Some(id)) = (self.entries.back_mut(), entry.back.checkpoint())
            && takes_output
            && last.back.checkpoint() == Some(id)
        {
            entry.held.append(&mut last.held);
        }
        self.entries.push_back(entry);
    }

    pub fn find(&self, order: Order) -> Option<usize> {
        self.entries.binary_search_by_key(&order, |entry| entry.order).ok()
    }

    /// The first of the entries that go when that at `index` does: those with the same checkpoint.
    pub fn first_with(&self, index: usize) -> usize {
        let same = |at: usize| self.entries[at].back.checkpoint();
        let Some(id) = same(index) else { return index };
        (0..index).rev().take_while(|&at| same(at) == Some(id)).last().unwrap_or(index)
    }

    /// Speculations that the process created in these entries.
    pub fn created(&self, range: Range<usize>) -> impl Iterator<Item = SpecId> + '_ {
        self.entries.range(range).filter_map(|entry| entry.created)
    }

    /// The speculation in `slot` is committed, to which the entry at `index` refers. That entry.
    pub fn commit(&mut self, index: usize, slot: Slot) -> &mut Entry {
        self.dependencies.remove(slot);
        let entry = &mut self.entries[index];
        entry.refs.remove(slot);
        entry
    }

    /// Takes the first entry out if it depends on nothing any more, and says whether the next one
    /// has the same checkpoint.
    pub fn settle_first(&mut self) -> Option<(Entry, bool)> {
        self.entries.front().filter(|first| first.refs.is_empty())?;
        let first = self.entries.pop_front()?;
        let id = first.back.checkpoint();
        let next = self.entries.front().and_then(|next| next.back.checkpoint());
        Some((first, id.is_some() && id == next))
    }

    /// Takes the entries from `index` on out, the oldest first.
    pub fn cut(&mut self, index: usize) -> VecDeque<Entry> {
        let cut = self.entries.split_off(index);
        cut.iter().for_each(|entry| self.dependencies.subtract(&entry.refs));
        cut
    }
}
