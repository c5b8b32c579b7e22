//! Ends of expansions.

use runahead_abi::HintKind;

use super::program_expansion::{ExpansionClient, Programs};
use super::program_task::Task;
use crate::deferred_effects::{Effects, StepFailure};
use crate::hint_order::{ClientId, EntryId, Item};
use crate::task_queue::TaskQueue;

impl<F> Programs<F> {
    /// The program's own file has been loaded: its hints are completed.
    pub(super) fn loaded(&mut self, id: EntryId, fx: &mut Effects<F>) {
        let Some(expansion) = self.open.get_mut(&id) else { return };
        let shortage = expansion.failed == Some(StepFailure::Ours);
        if shortage {
            // Nothing is known, so the next hint shall try again.
            self.fresh.remove(&expansion.path);
        }
        for wanted in &expansion.wanted {
            let client = wanted.client;
            for &key in &wanted.keys {
                match shortage {
                    true => fx.forget.push((client, key, u32::MAX)),
                    false => fx.done.push((client, key)),
                }
            }
            let failed = expansion.failed.is_some();
            fx.complete(client, HintKind::Program, &wanted.tag, expansion.bytes, failed);
        }
    }

    /// Ends an expansion that has nothing left to do.
    pub(super) fn retire(&mut self, id: EntryId, queue: &mut impl TaskQueue, fx: &mut Effects<F>) {
        let Some(expansion) = self.open.get_mut(&id) else { return };
        if expansion.wanted.is_empty() && !expansion.tasks.is_empty() {
            // Given up: what was not brought in is not fresh.
            self.fresh.remove(&expansion.path);
            for waiting in std::mem::take(&mut expansion.tasks).into_values() {
                if let Task::Load { file, path, .. } = waiting.task {
                    self.fresh.remove(&path);
                    fx.files.push(file);
                }
            }
        }
        if expansion.tasks.is_empty() && expansion.running == 0 {
            expansion.wanted.iter().for_each(|wanted| queue.leave(wanted.client, id));
            self.fresh.forget_id(&expansion.path, id);
            self.open.remove(&id);
        }
    }

    /// `client` no longer wants `id`: if it is an expansion, how many hints that ends. With
    /// `before`, only if it was an older run that wanted it.
    pub fn drop(
        &mut self,
        (id, client): (EntryId, ClientId),
        before: Option<u32>,
        queue: &mut impl TaskQueue,
        fx: &mut Effects<F>,
    ) -> usize {
        let Some(expansion) = self.open.get_mut(&id) else { return 0 };
        let stale = |w: &ExpansionClient| w.client == client && w.tag.is_stale(before);
        let Some(at) = expansion.wanted.iter().position(stale) else { return 0 };
        let wanted = expansion.wanted.swap_remove(at);
        let mut dropped = 0;
        if !expansion.is_loaded() {
            let before = before.unwrap_or(u32::MAX);
            fx.forget.extend(wanted.keys.iter().map(|&key| (client, key, before)));
            dropped = wanted.tag.hints as usize;
        }
        if let Some(rank) = wanted.rank {
            queue.remove(client, id, rank, Item::Program);
        }
        queue.leave(client, id);
        if expansion.wanted.is_empty() {
            self.fresh.remove(&expansion.path);
        }
        self.retire(id, queue, fx);
        dropped
    }
}
