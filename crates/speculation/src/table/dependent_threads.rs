//! Dependents of a speculation, and how they learn its resolution.

use core::sync::atomic::Ordering::*;

use super::{CLOSED, FREE, Id, Resolution, Slot, Status, Table, state};
use crate::host_interface::{Host, Owner, POKING, poke_thread_in, remove_thread_from};

impl Table {
    /// Makes the thread's process depend on `id`; the thread is poked when the owner resolves it.
    /// Returns false if too many depend on it.
    ///
    /// The owner must not be able to [`close`](Table::close) it meanwhile: a shared object that
    /// names it is locked.
    pub fn depend(&self, id: Id, thread: Owner) -> bool {
        let Some(slot) = self.slot(id) else { return false };
        let mut free = slot.dependents.iter();
        let is_noted =
            free.any(|word| word.compare_exchange(0, thread.to_word(), SeqCst, Relaxed).is_ok());
        self.depended.fetch_add(u64::from(is_noted), Relaxed);
        is_noted
    }

    /// Ends the calling process's dependency on `id`.
    pub fn leave(&self, id: Id, host: &impl Host) {
        let Some(slot) = self.slot(id) else { return };
        for word in &slot.dependents {
            let thread = word.load(SeqCst) & !POKING;
            if Owner::of_word(thread).process == host.current_thread().process {
                remove_thread_from(word, thread, host);
            }
        }
        self.free_if_left(id, slot);
    }

    pub(super) fn free_if_left(&self, id: Id, slot: &Slot) {
        if slot.dependents.iter().all(|word| word.load(SeqCst) == 0) {
            let [from, to] = [CLOSED, FREE].map(|how| state(id.generation(), how));
            let _ = slot.state.compare_exchange(from, to, SeqCst, Relaxed);
        }
    }

    /// Records the resolution of `id`. Dependents see that [a change](Table::changes) happened, and
    /// look.
    pub fn resolve(&self, id: Id, came: Resolution) {
        if let Some(slot) = self.slot(id) {
            slot.resolution.store(came as u32, SeqCst);
            let is_of_interest = slot.dependents.iter().any(|word| word.load(SeqCst) != 0);
            self.changes.fetch_add(is_of_interest.into(), SeqCst);
        }
    }

    /// Pokes all dependents of `id`: it is resolved, or the data that they have read is written.
    pub fn poke_dependents(&self, id: Id, host: &impl Host) {
        let dependents = || self.slot(id).into_iter().flat_map(|slot| &slot.dependents);
        if dependents().any(|word| word.load(SeqCst) != 0) {
            self.changes.fetch_add(1, SeqCst);
            dependents().for_each(|word| poke_thread_in(word, host));
        }
    }

    /// Returns the resolution of `id`. Only for its dependents and its owner.
    pub fn resolution(&self, id: Id) -> Resolution {
        self.slot(id)
            .map_or(Resolution::RolledBack, |slot| Resolution::of(slot.resolution.load(SeqCst)))
    }

    /// Resolves `id` for an owner that has ended without doing so. Only for its dependents.
    ///
    /// Such an owner had written none of its held output. Even a right prediction counts as rolled
    /// back, since one below it may have been wrong.
    pub fn resolve_orphan(&self, id: Id, host: &impl Host) {
        let Some(slot) = self.slot(id) else { return };
        if host.is_alive(Owner::of_word(slot.owner.load(Relaxed))) {
            return;
        }
        let (nothing, certain) = (Resolution::Pending as u32, Resolution::Committing as u32);
        let said = slot.resolution.compare_exchange(
            nothing,
            Resolution::RolledBack as u32,
            SeqCst,
            Relaxed,
        );
        let written = slot.resolution.compare_exchange(
            certain,
            Resolution::Committed as u32,
            SeqCst,
            Relaxed,
        );
        self.changes.fetch_add(u32::from(said.is_ok() || written.is_ok()), SeqCst);
    }

    /// Reserves places for a child that is about to be forked: it depends on `id`, and `of_child`
    /// will be its own. Returns false if too many depend on `id`.
    pub fn expect_child(&self, id: Id, of_child: Id) -> bool {
        self.depend(id, expected(of_child))
    }

    /// Cancels the reservation: no child was forked.
    pub fn cancel_child(&self, id: Id, of_child: Id) {
        self.replace_dependent(id, expected(of_child), 0);
    }

    /// Registers the calling child in the reserved places, before it looks at anything.
    pub fn register_child(&self, id: Id, of_child: Id, host: &impl Host) {
        let thread = host.current_thread().to_word();
        if let Some(slot) = self.slot(of_child) {
            slot.owner.store(thread, SeqCst);
        }
        self.replace_dependent(id, expected(of_child), thread);
    }

    /// Stores what the next program of the calling process needs: the speculation that it depends
    /// on, and its signal mask. `of_child` is the process's own.
    pub fn leave_behind(&self, of_child: Id, on: Id, mask: u64) {
        if let Some(slot) = self.slot(of_child) {
            slot.left_behind[1].store(mask, SeqCst);
            slot.left_behind[0].store(on.0, SeqCst);
        }
    }

    /// Returns what the previous program of the calling process left. None: nothing, or `of_child`
    /// belongs to another process.
    pub fn left_behind(&self, of_child: Id, host: &impl Host) -> Option<(Id, u64)> {
        let slot = self.slot(of_child).filter(|_| self.status(of_child) == Status::Open)?;
        let [on, mask] = slot.left_behind.each_ref().map(|word| word.load(SeqCst));
        let is_own = slot.owner.load(SeqCst) == host.current_thread().to_word();
        (is_own && on != 0).then_some((Id(on), mask))
    }

    fn replace_dependent(&self, id: Id, from: Owner, to: u64) {
        for word in self.slot(id).iter().flat_map(|slot| &slot.dependents) {
            let _ = word.compare_exchange(from.to_word(), to, SeqCst, Relaxed);
        }
    }

    /// Records that the parent has written all output that it held before it forked the owner of
    /// `of_child`.
    pub fn note_parent_output_written(&self, of_child: Id, host: &impl Host) {
        // The speculation of a killed child no longer exists.
        let is_there = |slot: &&Slot| slot.state.load(SeqCst) >> 8 == of_child.generation();
        if let Some(slot) = self.slot(of_child).filter(is_there) {
            slot.parent_output_written.store(1, SeqCst);
            self.changes.fetch_add(1, SeqCst);
            host.poke(Owner::of_word(slot.owner.load(SeqCst)));
        }
    }

    /// True if the parent has written all that output.
    pub fn parent_output_is_written(&self, of_child: Id) -> bool {
        self.slot(of_child).is_some_and(|slot| slot.parent_output_written.load(SeqCst) != 0)
    }

    /// Returns the process that will settle `id`; 0 if unknown.
    pub fn settler(&self, id: Id) -> u32 {
        self.slot(id).map_or(0, |slot| slot.settler.load(Relaxed))
    }

    /// Returns the process that owns `id`.
    pub fn owner(&self, id: Id) -> u32 {
        self.slot(id).map_or(0, |slot| Owner::of_word(slot.owner.load(Relaxed)).process)
    }

    /// True if the slot is free again.
    #[cfg(test)]
    pub(crate) fn is_free(&self, id: Id) -> bool {
        let now = self.slot(id).map_or(0, |slot| slot.state.load(SeqCst));
        now & 0xff == FREE || now >> 8 != id.generation()
    }
}

/// Placeholder for the thread of a child that does not exist yet; no process has this id.
fn expected(of_child: Id) -> Owner {
    Owner { process: u32::MAX, thread: of_child.index() as u32 }
}
