//! Open speculations of a session and their outcomes: one table that all its processes share.
//!
//! A speculative process takes a slot, and passes its [`Id`] to the process that will know the
//! outcome. That process settles it, once, and the owner reads the outcome there. No process waits
//! on this table, and none locks it. An owner that wants to be poked says so
//! ([`Table::request_poke`]), and the settling process pokes it.
//!
//! The outcome differs from the resolution. A prediction may have been right and its owner still be
//! rolled back, by an earlier one that was wrong. The owner records the [`Resolution`], and pokes
//! the processes that depend on it because they have seen its effects ([`Table::depend`]).
//!
//! Invariant: a slot goes from free to open to settled to free, each by one exchange on its state
//! that only one process wins. An id names one such life of a slot; a late process finds it gone. A
//! slot is not free while a process depends on it.

mod dependent_threads;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::host_interface::{Owner, POKING};

/// Speculations that a session can have open at once.
pub const SLOTS: usize = 4096;
/// Limit of bytes in the answer of a failed prediction.
pub const ANSWER_MAX: usize = 4000;

const WORDS: usize = ANSWER_MAX / 8;
/// Processes that can depend on one speculation.
pub const DEPENDENTS: usize = 8;

/// A speculation; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Id(pub u64);

impl Id {
    const INDEX_BITS: u32 = 16;

    fn new(generation: u64, index: usize) -> Self {
        Id(generation << Self::INDEX_BITS | index as u64)
    }

    fn generation(self) -> u64 {
        self.0 >> Self::INDEX_BITS
    }

    fn index(self) -> usize {
        (self.0 & ((1 << Self::INDEX_BITS) - 1)) as usize
    }
}

/// Error: there is no such speculation, or it is already settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotOpen;

/// State of a speculation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Outcome still unknown.
    Open,
    /// The prediction was right.
    Committed,
    /// The prediction was wrong.
    Failed,
    /// The id names no speculation any more.
    Gone,
}

/// Resolution of a speculation, as recorded by its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Resolution {
    /// Open speculation.
    Pending,
    /// Committed, like all below it; its owner is writing the held output.
    Committing,
    /// Committed, and all output that its owner held for it is written.
    Committed,
    /// Rolled back: its owner returned to a state before it.
    RolledBack,
}

impl Resolution {
    fn of(word: u32) -> Self {
        [Resolution::Pending, Resolution::Committing, Resolution::Committed]
            .into_iter()
            .find(|came| *came as u32 == word)
            .unwrap_or(Resolution::RolledBack)
    }
}

const FREE: u64 = 0;
const OPEN: u64 = 1;
const COMMITTED: u64 = 2;
/// The process that fails it is writing the answer.
const ANSWERING: u64 = 3;
const FAILED: u64 = 4;
/// Its owner has closed it, and others still depend on it.
const CLOSED: u64 = 5;

fn state(generation: u64, how: u64) -> u64 {
    generation << 8 | how
}

/// Entry of the table. All-zero is free.
#[repr(C)]
struct Slot {
    state: AtomicU64,
    owner: AtomicU64,
    /// Number of processes that are settling it and poking its owner.
    settling: AtomicU32,
    /// Flag: the owner waits for the outcome, or has work to do once it is known.
    wants_poke: AtomicU32,
    answer_len: AtomicU32,
    /// A [`Resolution`].
    resolution: AtomicU32,
    /// Process that will settle it; 0 if unknown.
    settler: AtomicU32,
    /// Flag of a child's speculation: its parent has written all output that it held before the
    /// fork.
    parent_output_written: AtomicU32,
    /// State across an exec: the speculation that it depends on, and its signal mask
    /// ([`Table::leave_behind`]).
    left_behind: [AtomicU64; 2],
    /// Order in the owner's stack, greater for later ones; see [`Table::assign_order`].
    order: AtomicU64,
    /// Threads of processes that depend on it; 0 for free entries.
    dependents: [AtomicU64; DEPENDENTS],
    answer: [AtomicU64; WORDS],
}

/// Statistics of a session's speculations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Number begun.
    pub opened: u64,
    /// Number of right predictions.
    pub committed: u64,
    /// Number of wrong predictions. The others were rolled back with an earlier one, or never
    /// settled.
    pub failed: u64,
    /// Number refused because no checkpoint could be taken.
    pub refused: u64,
    /// Number of dependencies on speculations of other processes.
    pub depended: u64,
    /// Number begun where the kernel does not track dirty pages, and memory is copied before the
    /// first store.
    pub by_write_faults: u64,
}

/// Table of speculations. All-zero is valid and empty.
#[repr(C)]
pub struct Table {
    /// Index at which the search for a free slot begins.
    next: AtomicU32,
    /// Number of changes so far: outcomes and resolutions.
    changes: AtomicU32,
    /// Statistics; see [`Counts`].
    opened: AtomicU64,
    committed: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    depended: AtomicU64,
    by_write_faults: AtomicU64,
    /// Last order that was assigned.
    order: AtomicU64,
    slots: [Slot; SLOTS],
}

impl Table {
    fn slot(&self, id: Id) -> Option<&Slot> {
        self.slots.get(id.index())
    }

    /// Opens a speculation that process `settler` will settle (0: unknown). None: the table is
    /// full. Slots whose owners are not `alive` any more are reused.
    pub fn open(&self, owner: Owner, settler: u32, alive: impl Fn(Owner) -> bool) -> Option<Id> {
        self.claim_slot(owner, settler, |_| false)
            .or_else(|| self.claim_slot(owner, settler, |other| !alive(other)))
    }

    fn claim_slot(
        &self,
        owner: Owner,
        settler: u32,
        may_replace: impl Fn(Owner) -> bool,
    ) -> Option<Id> {
        let first = self.next.fetch_add(1, Relaxed) as usize;
        (0..SLOTS).map(|n| (first + n) % SLOTS).find_map(|index| {
            let slot = &self.slots[index];
            let now = slot.state.load(Acquire);
            let is_free = now & 0xff == FREE;
            // An owner has no more to do with a speculation that it has closed.
            let has_owner = (now & 0xff != CLOSED).then_some(&slot.owner);
            let owners = slot.dependents.iter().chain(has_owner).map(|word| word.load(Relaxed));
            let is_left = || {
                owners
                    .filter(|word| *word != 0)
                    .all(|word| may_replace(Owner::of_word(word & !POKING)))
            };
            if !is_free && !is_left() {
                return None;
            }
            let generation = (now >> 8) + 1;
            // No other process knows the id before this returns.
            slot.state.compare_exchange(now, state(generation, ANSWERING), AcqRel, Relaxed).ok()?;
            slot.owner.store(owner.to_word(), Relaxed);
            slot.wants_poke.store(0, Relaxed);
            slot.settling.store(0, Relaxed);
            slot.parent_output_written.store(0, Relaxed);
            slot.settler.store(settler, Relaxed);
            slot.order.store(0, Relaxed);
            slot.resolution.store(Resolution::Pending as u32, Relaxed);
            slot.left_behind[0].store(0, Relaxed);
            slot.dependents.iter().for_each(|word| word.store(0, Relaxed));
            slot.state.store(state(generation, OPEN), Release);
            Some(Id::new(generation, index))
        })
    }

    /// Puts `id` on top of its owner's stack: a rollback of one below rolls it back, too.
    pub fn assign_order(&self, id: Id) {
        if let Some(slot) = self.slot(id) {
            slot.order.store(self.order.fetch_add(1, SeqCst) + 1, SeqCst);
        }
    }

    /// True if `id` lies above `other` of the same owner: it may be rolled back alone, and `other`
    /// may not.
    pub fn is_above(&self, id: Id, other: Id) -> bool {
        let [one, other] =
            [id, other].map(|id| self.slot(id).map_or(0, |slot| slot.order.load(SeqCst)));
        one > other
    }

    /// Returns the state of a speculation.
    pub fn status(&self, id: Id) -> Status {
        let Some(slot) = self.slot(id) else { return Status::Gone };
        let now = slot.state.load(SeqCst);
        match now & 0xff {
            _ if now >> 8 != id.generation() => Status::Gone,
            FREE | CLOSED => Status::Gone,
            COMMITTED => Status::Committed,
            FAILED => Status::Failed,
            _ => Status::Open,
        }
    }

    /// Returns the statistics.
    pub fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Relaxed);
        Counts {
            opened: of(&self.opened),
            committed: of(&self.committed),
            failed: of(&self.failed),
            refused: of(&self.refused),
            depended: of(&self.depended),
            by_write_faults: of(&self.by_write_faults),
        }
    }

    /// Counts a speculation that could not begin.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts a speculation that has begun, with dirty pages tracked by the kernel if `is_noted`.
    pub fn count_begun(&self, is_noted: bool) {
        self.opened.fetch_add(1, Relaxed);
        self.by_write_faults.fetch_add(u64::from(!is_noted), Relaxed);
    }

    /// Returns a number that changes whenever a speculation is settled or resolved.
    pub fn changes(&self) -> u32 {
        self.changes.load(SeqCst)
    }

    /// Requests a poke for the owner when `id` is settled. The caller then checks the status once
    /// more, since it may just have been settled.
    pub fn request_poke(&self, id: Id) {
        if let Some(slot) = self.slot(id) {
            slot.wants_poke.store(1, SeqCst);
        }
    }

    /// Settles `id` as right. Returns the owner to poke, if it wants that. Err: there is no such
    /// open speculation.
    ///
    /// After the poke, or if there is none to send, the caller calls [`Table::finish_settling`].
    pub fn commit(&self, id: Id) -> Result<Option<Owner>, NotOpen> {
        let slot = self.settle(id, COMMITTED)?;
        self.committed.fetch_add(1, Relaxed);
        self.changes.fetch_add(1, SeqCst);
        let is_wanted = slot.wants_poke.load(SeqCst) != 0;
        Ok(is_wanted.then(|| Owner::of_word(slot.owner.load(Relaxed))))
    }

    /// Settles `id` as wrong; `answer` is the right result, cut at [`ANSWER_MAX`] bytes. Returns
    /// the owner to poke. Else like [`Table::commit`].
    pub fn fail(&self, id: Id, answer: &[u8]) -> Result<Owner, NotOpen> {
        let slot = self.settle(id, ANSWERING)?;
        let answer = &answer[..answer.len().min(ANSWER_MAX)];
        for (word, bytes) in slot.answer.iter().zip(answer.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Relaxed);
        }
        slot.answer_len.store(answer.len() as u32, Relaxed);
        let owner = Owner::of_word(slot.owner.load(Relaxed));
        self.exchange(id, ANSWERING, FAILED)?;
        self.failed.fetch_add(1, Relaxed);
        self.changes.fetch_add(1, SeqCst);
        Ok(owner)
    }

    fn settle(&self, id: Id, to: u64) -> Result<&Slot, NotOpen> {
        let slot = self.slot(id).ok_or(NotOpen)?;
        slot.settling.fetch_add(1, SeqCst);
        self.exchange(id, OPEN, to).inspect_err(|_| _ = slot.settling.fetch_sub(1, SeqCst))
    }

    /// Ends settling: the owner has been poked. The owner does not [`close`](Table::close) it
    /// before, so that no poke arrives later.
    pub fn finish_settling(&self, id: Id) {
        if let Some(slot) = self.slot(id) {
            slot.settling.fetch_sub(1, SeqCst);
        }
    }

    fn exchange(&self, id: Id, from: u64, to: u64) -> Result<&Slot, NotOpen> {
        let slot = self.slot(id).ok_or(NotOpen)?;
        let [from, to] = [from, to].map(|how| state(id.generation(), how));
        slot.state.compare_exchange(from, to, SeqCst, Relaxed).map_err(|_| NotOpen)?;
        Ok(slot)
    }

    /// Copies the answer of a failed speculation into `to` and returns its length in bytes.
    pub fn answer(&self, id: Id, to: &mut [u8; ANSWER_MAX]) -> usize {
        let Some(slot) = self.slot(id).filter(|_| self.status(id) == Status::Failed) else {
            return 0;
        };
        for (word, bytes) in slot.answer.iter().zip(to.chunks_mut(8)) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..bytes.len()]);
        }
        (slot.answer_len.load(Relaxed) as usize).min(ANSWER_MAX)
    }

    /// Closes a speculation: its owner has finished it or rolled it back.
    pub fn close(&self, id: Id) {
        /// Spins to wait for a process that writes an answer or pokes the owner. It may have been
        /// killed.
        const PATIENCE: u32 = 1 << 16;
        let Some(slot) = self.slot(id) else { return };
        let mut patience = PATIENCE;
        loop {
            let now = slot.state.load(Acquire);
            if now >> 8 != id.generation() || matches!(now & 0xff, FREE | CLOSED) {
                return;
            }
            let is_busy = now & 0xff == ANSWERING || slot.settling.load(SeqCst) != 0;
            if is_busy && patience > 0 {
                patience -= 1;
                core::hint::spin_loop();
                continue;
            }
            let closed = state(id.generation(), CLOSED);
            if slot.state.compare_exchange(now, closed, SeqCst, Relaxed).is_ok() {
                return self.free_if_left(id, slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    const ME: Owner = Owner { process: 7, thread: 8 };

    fn table() -> Box<Table> {
        // SAFETY: all-zero is valid.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn open(table: &Table) -> Id {
        table.open(ME, 0, |_| true).unwrap()
    }

    #[test]
    fn a_speculation_is_settled_once() {
        let table = table();
        let (a, b) = (open(&table), open(&table));
        assert_eq!([a, b].map(|id| table.status(id)), [Status::Open; 2]);
        assert_eq!(table.commit(a), Ok(None));
        assert_eq!((table.commit(a), table.fail(a, b"late")), (Err(NotOpen), Err(NotOpen)));
        assert_eq!(table.fail(b, b"another answer"), Ok(ME));
        assert_eq!([a, b].map(|id| table.status(id)), [Status::Committed, Status::Failed]);
        let mut answer = [0; ANSWER_MAX];
        let len = table.answer(b, &mut answer);
        assert_eq!(table.counts(), Counts { committed: 1, failed: 1, ..Counts::default() });
        assert_eq!(
            (table.answer(a, &mut [0; ANSWER_MAX]), &answer[..len]),
            (0, &b"another answer"[..])
        );
    }

    #[test]
    fn an_owner_that_requests_a_poke_is_returned() {
        let table = table();
        let id = open(&table);
        table.request_poke(id);
        assert_eq!(table.commit(id), Ok(Some(ME)));
    }

    #[test]
    fn an_id_of_an_earlier_life_is_gone() {
        let table = table();
        let ids: std::vec::Vec<Id> = (0..SLOTS).map(|_| open(&table)).collect();
        assert_eq!(table.open(ME, 0, |_| true), None, "all slots are in use");
        table.close(ids[5]);
        let again = open(&table);
        assert_eq!(again.index(), ids[5].index());
        assert_eq!((table.status(ids[5]), table.commit(ids[5])), (Status::Gone, Err(NotOpen)));
        assert_eq!(table.status(again), Status::Open);
        assert_eq!(table.status(Id(u64::MAX)), Status::Gone);
        assert!(table.open(ME, 0, |_| false).is_some(), "dead owners do not keep slots");
    }

    #[test]
    fn an_answer_is_cut_at_its_limit() {
        let table = table();
        let id = open(&table);
        assert!(table.fail(id, &[7; ANSWER_MAX + 9]).is_ok());
        assert_eq!(table.answer(id, &mut [0; ANSWER_MAX]), ANSWER_MAX);
    }
}
