//! Who depends on a speculation, and is told what has come of it.

use core::sync::atomic::{AtomicU64, Ordering::*};

use super::{CLOSED, FREE, Id, Owner, Resolution, Slot, Status, Table, state};
use crate::Host;

impl Table {
    /// From here on this thread's process depends on it, and is poked when its owner says what has come of it. False: too many
    /// do. Its owner must not be able to [`close`](Table::close) it meanwhile: what the two share, and is locked, names it.
    pub fn depend(&self, id: Id, thread: Owner) -> bool {
        let Some(slot) = Table::of(self, id) else { return false };
        let mut free = slot.dependents.iter();
        let is_noted =
            free.any(|word| word.compare_exchange(0, thread.to_word(), SeqCst, Relaxed).is_ok());
        self.depended.fetch_add(u64::from(is_noted), Relaxed);
        is_noted
    }

    /// The calling process does not any more.
    pub fn leave(&self, id: Id, host: &impl Host) {
        let Some(slot) = Table::of(self, id) else { return };
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

    /// Its owner says what has come of it. (Who depends on it sees that [something has](Table::settled), and looks.)
    pub fn resolve(&self, id: Id, came: Resolution) {
        if let Some(slot) = Table::of(self, id) {
            slot.resolution.store(came as u32, SeqCst);
            let is_of_interest = slot.dependents.iter().any(|word| word.load(SeqCst) != 0);
            self.changes.fetch_add(is_of_interest.into(), SeqCst);
        }
    }

    /// Pokes all that depend on it: something has come of it, or what they have seen of it is written.
    pub fn poke_dependents(&self, id: Id, host: &impl Host) {
        let dependents = || Table::of(self, id).into_iter().flat_map(|slot| &slot.dependents);
        if dependents().any(|word| word.load(SeqCst) != 0) {
            self.changes.fetch_add(1, SeqCst);
            dependents().for_each(|word| poke_thread_in(word, host));
        }
    }

    /// What has come of it. To be asked by one who depends on it, or whose it is.
    pub fn resolution(&self, id: Id) -> Resolution {
        Table::of(self, id)
            .map_or(Resolution::RolledBack, |slot| Resolution::of(slot.resolution.load(SeqCst)))
    }

    /// Where its owner has ended without saying what has come of it: says it. To be asked by one who depends on it. (Its owner had
    /// written nothing then of what it held: not even one that was right is known to lie on none that was wrong.)
    pub fn resolve_orphan(&self, id: Id, host: &impl Host) {
        let Some(slot) = Table::of(self, id) else { return };
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

    /// A child is about to be made that depends on `id`, and `of_child` is to be its own: both are kept for it, whatever comes.
    /// False: too many depend on it.
    pub fn expect_child(&self, id: Id, of_child: Id) -> bool {
        self.depend(id, expected(of_child))
    }

    /// There is none.
    pub fn cancel_child(&self, id: Id, of_child: Id) {
        self.replace_dependent(id, expected(of_child), 0);
    }

    /// In the child, before it looks at anything.
    pub fn register_child(&self, id: Id, of_child: Id, host: &impl Host) {
        let thread = host.current_thread().to_word();
        if let Some(slot) = Table::of(self, of_child) {
            slot.owner.store(thread, SeqCst);
        }
        self.replace_dependent(id, expected(of_child), thread);
    }

    /// The calling process, which `of_child` is of, is about to become another program: this is for that. What it depends on, and the
    /// signals that it blocks.
    pub fn leave_behind(&self, of_child: Id, on: Id, mask: u64) {
        if let Some(slot) = Table::of(self, of_child) {
            slot.left_behind[1].store(mask, SeqCst);
            slot.left_behind[0].store(on.0, SeqCst);
        }
    }

    /// What the program has left behind that the calling process was before. None: nothing, or `of_child` is none of this process's.
    pub fn left_behind(&self, of_child: Id, host: &impl Host) -> Option<(Id, u64)> {
        let slot = Table::of(self, of_child).filter(|_| self.status(of_child) == Status::Open)?;
        let [on, mask] = slot.left_behind.each_ref().map(|word| word.load(SeqCst));
        let is_own = slot.owner.load(SeqCst) == host.current_thread().to_word();
        (is_own && on != 0).then_some((Id(on), mask))
    }

    fn replace_dependent(&self, id: Id, from: Owner, to: u64) {
        for word in Table::of(self, id).iter().flat_map(|slot| &slot.dependents) {
            let _ = word.compare_exchange(from.to_word(), to, SeqCst, Relaxed);
        }
    }

    /// The parent of the process whose this is has written all that it had held before that was made.
    pub fn note_parent_output_written(&self, of_child: Id, host: &impl Host) {
        // (A child that was killed has none any more.)
        let is_there = |slot: &&Slot| slot.state.load(SeqCst) >> 8 == of_child.generation();
        if let Some(slot) = Table::of(self, of_child).filter(is_there) {
            slot.parent_output_written.store(1, SeqCst);
            self.changes.fetch_add(1, SeqCst);
            host.poke(Owner::of_word(slot.owner.load(SeqCst)));
        }
    }

    /// Whether that is so.
    pub fn parent_output_is_written(&self, of_child: Id) -> bool {
        Table::of(self, of_child).is_some_and(|slot| slot.parent_output_written.load(SeqCst) != 0)
    }

    /// The process that will settle it; 0: nobody knows.
    pub fn settler(&self, id: Id) -> u32 {
        Table::of(self, id).map_or(0, |slot| slot.settler.load(Relaxed))
    }

    /// Whose it is: the process.
    pub fn owner(&self, id: Id) -> u32 {
        Table::of(self, id).map_or(0, |slot| Owner::of_word(slot.owner.load(Relaxed)).process)
    }

    /// Whether nothing is left of it.
    #[cfg(test)]
    pub(crate) fn is_free(&self, id: Id) -> bool {
        let now = Table::of(self, id).map_or(0, |slot| slot.state.load(SeqCst));
        now & 0xff == FREE || now >> 8 != id.generation()
    }
}

/// In place of a thread, until there is one: of no process that could be.
fn expected(of_child: Id) -> Owner {
    Owner { process: u32::MAX, thread: of_child.index() as u32 }
}

/// In a word that names a thread: somebody is poking it.
pub(crate) const POKING: u64 = 1 << 31;

/// Pokes the thread that a word names, if it does. Whoever takes its name out of it waits until that is done, so that nothing
/// that it is sent arrives later.
pub(crate) fn poke_thread_in(word: &AtomicU64, host: &impl Host) {
    let thread = word.load(SeqCst);
    let is_telling = thread & POKING != 0;
    if thread == 0
        || is_telling
        || word.compare_exchange(thread, thread | POKING, SeqCst, Relaxed).is_err()
    {
        return;
    }
    host.poke(Owner::of_word(thread));
    let _ = word.compare_exchange(thread | POKING, thread, SeqCst, Relaxed);
}

/// Takes a thread's name out of such a word, if it is there.
pub(crate) fn remove_thread_from(word: &AtomicU64, thread: u64, host: &impl Host) {
    /// How long to wait for one who tells us, and may be kept off his processor meanwhile: some tenths of a second, as he may have been
    /// killed.
    const PATIENCE: u32 = 1_000_000;
    for _ in 0..PATIENCE {
        match word.compare_exchange(thread, 0, SeqCst, Relaxed) {
            Err(now) if now == thread | POKING => host.pause(),
            _ => return,
        }
    }
    let _ = word.compare_exchange(thread | POKING, 0, SeqCst, Relaxed);
}
