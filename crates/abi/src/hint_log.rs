//! The hint log: what has been foreseen, and how far its prefetch has got.
//!
//! Runners write it when they hint, the supervisor when a prefetch ends, the target when it makes
//! the access. It knows the blocks of a chunk of a file: a process that reads some of it is not to
//! be taken for one that has it all. It is a set-associative cache, not a map: it never grows, an
//! insertion may push an old entry out, and a lost entry only makes an access look unforeseen.
//! Every entry is two words written without locks; a reader that races with a replacement sees an
//! entry that is absent or belongs to another key, never a wait.
//!
//! Invariant: no operation loops more than [`WAYS`] times, whatever the memory holds, so a writer
//! killed in the middle cannot hang a reader (a trap recorded in the project's facts).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runahead_estimators::access_identity::{Blocks, Identity, PLACES, Piece};

/// Entries that one key may live in.
pub const WAYS: usize = 4;
/// Number of sets; a power of two. 2^15 × 4 entries of 16 bytes: 2 MiB, touched as it fills.
pub const SETS: usize = 1 << 15;
const _: () = assert!(SETS as u64 <= PLACES);

/// Progress of the prefetch of one access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HintState {
    /// The access was not foreseen.
    Absent,
    /// A shadow hinted the access; the prefetch waits or is under way.
    Hinted,
    /// The data of the access was read, by the prefetcher or by the target.
    Done,
}

/// A hint for it has been used, or the target has read it before it was.
const USED: u64 = 1;
/// Shifts of the masks of blocks in a word: blocks that are waited for, blocks in memory, and those
/// of either that are foreseen and that the target has not used.
const HINTED: u32 = 8;
const DONE: u32 = 16;
const AHEAD: u32 = 24;
const RUN_SHIFT: u32 = 32;

/// Contents of an entry, whose word is unpacked and packed as a whole.
#[derive(Clone, Copy, Default)]
struct Meta {
    used: bool,
    hinted: u8,
    done: u8,
    ahead: u8,
    /// The run that hinted the access last.
    run: u32,
}

impl Meta {
    const fn of(word: u64) -> Self {
        Meta {
            used: word & USED != 0,
            hinted: (word >> HINTED) as u8,
            done: (word >> DONE) as u8,
            ahead: (word >> AHEAD) as u8,
            run: (word >> RUN_SHIFT) as u32,
        }
    }

    const fn word(self) -> u64 {
        (if self.used { USED } else { 0 })
            | (self.hinted as u64) << HINTED
            | (self.done as u64) << DONE
            | (self.ahead as u64) << AHEAD
            | (self.run as u64) << RUN_SHIFT
    }

    const fn is_absent(self) -> bool {
        self.hinted | self.done == 0
    }

    const fn state(self, blocks: Blocks) -> HintState {
        if blocks.0 & !self.done == 0 {
            HintState::Done
        } else if blocks.0 & !(self.done | self.hinted) == 0 {
            HintState::Hinted
        } else {
            HintState::Absent
        }
    }
}

#[repr(C)]
struct Entry {
    key: AtomicU64,
    /// A [`Meta`].
    meta: AtomicU64,
}

impl Entry {
    fn load(&self) -> Meta {
        Meta::of(self.meta.load(Relaxed))
    }

    fn store(&self, meta: Meta) {
        self.meta.store(meta.word(), Relaxed);
    }
}

/// The hint log.
#[repr(C)]
pub struct HintLog {
    sets: [[Entry; WAYS]; SETS],
}

/// Result of [`HintLog::hint`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hinted {
    /// Unknown before: a record must be sent, and it counts as one hint.
    New,
    /// Hinted by an earlier run and not read yet: sent again, so that it is not dropped with the
    /// hints of that run.
    Again,
    /// This run hinted it already, or it has been read.
    Known,
}

impl HintLog {
    fn set(&self, key: Identity) -> &[Entry; WAYS] {
        &self.sets[key.place() as usize & (SETS - 1)]
    }

    fn find(&self, key: Identity) -> Option<&Entry> {
        self.set(key).iter().find(|e| e.key.load(Relaxed) == key.raw())
    }

    /// The entry of `key`, made if need be in place of the least useful one of its set.
    fn claim(&self, key: Identity) -> &Entry {
        let set = self.set(key);
        if let Some(found) = self.find(key) {
            return found;
        }
        let worth = |e: &Entry| match e.load() {
            meta if meta.is_absent() => 0,
            meta if meta.used => 1 + u64::from(meta.run),
            meta => (1 << 33) + u64::from(meta.run),
        };
        let victim = set.iter().min_by_key(|e| worth(e)).unwrap_or(&set[0]);
        victim.meta.store(0, Relaxed);
        victim.key.store(key.raw(), Relaxed);
        victim
    }

    fn of(&self, key: Identity) -> Meta {
        self.find(key).map_or(Meta::default(), Entry::load)
    }

    /// Progress of the whole of `piece`.
    pub fn state(&self, piece: impl Into<Piece>) -> HintState {
        let Piece { key, blocks } = piece.into();
        self.of(key).state(blocks)
    }

    /// Progress of the wanted blocks of `key`, however many these are.
    pub fn progress(&self, key: Identity) -> HintState {
        match self.of(key) {
            meta if meta.is_absent() => HintState::Absent,
            Meta { hinted: 0, .. } => HintState::Done,
            _ => HintState::Hinted,
        }
    }

    /// The run that hinted `key` last, if some of it is hinted and not read yet.
    pub fn pending_since(&self, key: Identity) -> Option<u32> {
        let meta = self.of(key);
        (meta.hinted != 0).then_some(meta.run)
    }

    /// Run `run` foresees `piece`.
    pub fn hint(&self, piece: impl Into<Piece>, run: u32) -> Hinted {
        let Piece { key, blocks } = piece.into();
        let entry = self.claim(key);
        let meta = entry.load();
        let missing = blocks.0 & !(meta.hinted | meta.done);
        let was = match meta.state(blocks) {
            HintState::Absent if meta.ahead == 0 => Hinted::New,
            HintState::Hinted if meta.run == run => return Hinted::Known,
            HintState::Done => return Hinted::Known,
            _ => Hinted::Again,
        };
        let (hinted, ahead) = (meta.hinted | missing, meta.ahead | missing);
        entry.store(match was {
            Hinted::New => Meta { used: false, hinted, ahead, run, ..meta },
            _ => Meta { hinted, ahead, run, ..meta },
        });
        was
    }

    /// Notes that the target waits for `piece`, which was not foreseen: a run that names it now
    /// gives no hint.
    pub fn demand(&self, piece: impl Into<Piece>, run: u32) {
        let Piece { key, blocks } = piece.into();
        let entry = self.claim(key);
        let meta = entry.load();
        entry.store(Meta { hinted: meta.hinted | blocks.0, run, ..meta });
    }

    /// The program itself foresees `piece`, in `run`: true if that counts as one hint. What the
    /// target has had already, and is disclosed again, is wanted once more.
    pub fn disclose(&self, piece: impl Into<Piece>, run: u32) -> bool {
        let Piece { key, blocks } = piece.into();
        let entry = self.claim(key);
        let meta = entry.load();
        match meta.state(blocks) {
            HintState::Hinted => {
                entry.store(Meta { run, ..meta });
                return false;
            }
            HintState::Done if blocks.0 & meta.ahead != 0 => return false,
            _ => {}
        }
        let (hinted, done) = (meta.hinted | blocks.0, meta.done & !blocks.0);
        let ahead = meta.ahead | blocks.0;
        entry.store(Meta { used: false, hinted, done, ahead, run });
        meta.ahead == 0
    }

    /// The prefetch of `key` ended; what was wanted of it is in memory, or is known not to exist.
    pub fn done(&self, key: Identity) {
        let entry = self.claim(key);
        let meta = entry.load();
        entry.store(match meta.is_absent() {
            // It was not hinted, or its entry was evicted.
            true => Meta { done: Blocks::ALL.0, ..meta },
            false => Meta { hinted: 0, done: meta.done | meta.hinted, ..meta },
        });
    }

    /// Notes that the queued prefetch of `key` was given up: as if it had never been hinted.
    /// Returns true if it was a hint.
    pub fn forget(&self, key: Identity) -> bool {
        let Some(entry) = self.find(key) else { return false };
        let meta = entry.load();
        let ahead = meta.ahead & meta.done;
        entry.store(match meta.done {
            0 => Meta::default(),
            _ => Meta { hinted: 0, ahead, ..meta },
        });
        meta.ahead != 0 && ahead == 0
    }

    /// Withdraws what was entered of `piece`, by any writer.
    pub fn take_back(&self, piece: impl Into<Piece>) {
        let Piece { key, blocks } = piece.into();
        let Some(entry) = self.find(key) else { return };
        let meta = entry.load();
        let (hinted, done) = (meta.hinted & !blocks.0, meta.done & !blocks.0);
        entry.store(Meta { hinted, done, ahead: meta.ahead & !blocks.0, ..meta });
    }

    /// Notes that data of `piece`, read for the target and not used yet, is not in memory any more:
    /// as if it had never been hinted. Returns false if there was none.
    pub fn lose(&self, piece: impl Into<Piece>) -> bool {
        let Piece { key, blocks } = piece.into();
        let Some(entry) = self.find(key) else { return false };
        let meta = entry.load();
        let lost = blocks.0 & meta.ahead & meta.done;
        if lost != 0 {
            entry.store(Meta { done: meta.done & !lost, ahead: meta.ahead & !lost, ..meta });
        }
        lost != 0
    }

    /// Notes that data of `piece` that the target has used is not in memory any more: it may be
    /// hinted once more.
    pub fn note_evicted(&self, piece: impl Into<Piece>) {
        let Piece { key, blocks } = piece.into();
        let Some(entry) = self.find(key) else { return };
        let meta = entry.load();
        let gone = blocks.0 & meta.done & !meta.ahead;
        if gone != 0 {
            entry.store(Meta { done: meta.done & !gone, ..meta });
        }
    }

    /// Some of `piece` was read for the target, and it has not come to that.
    pub fn holds(&self, piece: impl Into<Piece>) -> bool {
        let Piece { key, blocks } = piece.into();
        let meta = self.of(key);
        blocks.0 & meta.ahead & meta.done != 0
    }

    /// The target makes the access. The run that hinted it last, the first time that a *hint* for
    /// it is used.
    pub fn touch(&self, piece: impl Into<Piece>) -> Option<u32> {
        let Piece { key, blocks } = piece.into();
        let entry = self.find(key)?;
        let meta = entry.load();
        if meta.ahead & blocks.0 == 0 {
            return None;
        }
        entry.store(Meta { used: true, ahead: 0, ..meta });
        Some(meta.run)
    }

    /// Some of `key` was hinted, and the target has not come to any of that.
    pub fn is_ahead(&self, key: Identity) -> bool {
        self.of(key).ahead != 0
    }

    /// A hint for `key` has been used.
    pub fn was_used(&self, key: Identity) -> bool {
        self.of(key).used
    }

    /// The target has read `piece` itself, so a shadow may take it to be in memory.
    pub fn done_by_target(&self, piece: impl Into<Piece>) {
        let Piece { key, blocks } = piece.into();
        let entry = self.claim(key);
        let meta = entry.load();
        let ahead = meta.ahead & !blocks.0;
        entry.store(Meta {
            used: meta.used || ahead == 0,
            hinted: meta.hinted & !blocks.0,
            done: meta.done | blocks.0,
            ahead,
            ..meta
        });
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;

    use crate::hint_record::DISCLOSED;
    use runahead_estimators::access_identity::BLOCK_BYTES;

    fn log() -> Box<HintLog> {
        // SAFETY: HintLog is atomics throughout, for which all-zero bytes are a valid value.
        unsafe { Box::new_zeroed().assume_init() }
    }

    fn key(n: u32) -> Identity {
        Identity::inherited(n)
    }

    #[test]
    fn a_hint_goes_from_new_to_used_once() {
        let log = log();
        let k = key(1);
        assert_eq!(log.state(k), HintState::Absent);
        assert_eq!(log.touch(k), None);
        assert_eq!(log.hint(k, 7), Hinted::New);
        assert_eq!(log.hint(k, 7), Hinted::Known);
        assert_eq!(log.hint(k, 8), Hinted::Again);
        assert_eq!(log.pending_since(k), Some(8));
        log.done(k);
        assert_eq!(log.state(k), HintState::Done);
        assert_eq!(log.hint(k, 9), Hinted::Known);
        assert!(log.is_ahead(k));
        assert_eq!(log.touch(k), Some(8));
        assert_eq!(log.touch(k), None);
        assert!(!log.is_ahead(k));
    }

    #[test]
    fn what_the_target_read_itself_is_no_used_hint() {
        let log = log();
        log.done_by_target(key(1));
        assert_eq!(log.state(key(1)), HintState::Done);
        assert_eq!(log.touch(key(1)), None);
    }

    #[test]
    fn what_the_target_waits_for_is_no_hint() {
        let log = log();
        log.demand(key(1), 3);
        assert_eq!(log.hint(key(1), 4), Hinted::Again, "the run is to be told when it comes");
        log.done(key(1));
        assert_eq!(log.touch(key(1)), None);
        assert_eq!(log.hint(key(1), 5), Hinted::Known);
    }

    #[test]
    fn what_is_disclosed_counts_once_until_it_was_used() {
        let log = log();
        let k = key(1);
        assert!(log.disclose(k, DISCLOSED) && !log.disclose(k, DISCLOSED));
        assert_eq!(log.pending_since(k), Some(DISCLOSED));
        assert_eq!(log.hint(k, 7), Hinted::Again);
        assert!(!log.disclose(k, DISCLOSED), "a shadow's hint was one already");
        assert_eq!(log.pending_since(k), Some(DISCLOSED));
        log.done(k);
        assert!(!log.disclose(k, DISCLOSED), "it is there, and nobody has used it");
        assert!(log.touch(k).is_some() && log.disclose(k, DISCLOSED) && log.touch(k).is_some());
        log.done_by_target(key(2));
        assert!(log.disclose(key(2), DISCLOSED) && log.touch(key(2)).is_some());
    }

    #[test]
    fn of_a_chunk_only_what_was_asked_for_is_known() {
        let log = log();
        let block = |n: u64| Identity::ROOT.first_piece(n * BLOCK_BYTES + 5, 1);
        let chunk = block(0).key;
        assert_eq!(log.hint(block(2), 7), Hinted::New);
        assert_eq!(log.state(block(2)), HintState::Hinted);
        assert_eq!((log.state(block(3)), log.state(chunk)), (HintState::Absent, HintState::Absent));
        assert_eq!(log.hint(block(3), 7), Hinted::Again, "it counts as one hint until it is used");
        assert_eq!(log.progress(chunk), HintState::Hinted);
        log.done(chunk);
        assert_eq!((log.state(block(2)), log.state(block(3))), (HintState::Done, HintState::Done));
        assert_eq!(
            (log.state(block(4)), log.progress(chunk)),
            (HintState::Absent, HintState::Done)
        );
        assert_eq!(log.touch(block(4)), None, "nobody foresaw this");
        assert_eq!(log.touch(block(3)), Some(7));
        assert_eq!(log.touch(block(2)), None, "once");
        assert_eq!(log.hint(block(4), 8), Hinted::New, "as the last was used");
        assert!(log.is_ahead(chunk) && !log.was_used(chunk));
        assert!(log.forget(chunk));
        assert_eq!(
            (log.state(block(3)), log.state(block(4))),
            (HintState::Done, HintState::Absent)
        );
        assert!(!log.forget(chunk), "nothing waits");
    }

    #[test]
    fn what_was_lost_can_be_hinted_again_and_what_is_waited_for_or_used_is_not_lost() {
        let log = log();
        let block = |n: u64| Identity::ROOT.first_piece(n * BLOCK_BYTES, 1);
        let chunk = block(0).key;
        for n in 0..3 {
            log.hint(block(n), 7);
        }
        log.done(chunk);
        log.done_by_target(block(0));
        log.hint(block(3), 7);
        let held = |n| log.holds(block(n));
        assert_eq!((held(0), held(1), held(3)), (false, true, false));
        log.note_evicted(block(1));
        assert_eq!(log.state(block(1)), HintState::Done, "the target has not had it");
        assert!(!log.lose(block(0)) && log.lose(block(1)) && !log.lose(block(1)));
        assert_eq!(
            (log.state(block(0)), log.state(block(1))),
            (HintState::Done, HintState::Absent)
        );
        assert!(log.lose(chunk) && !log.lose(chunk));
        assert_eq!(
            (log.state(block(2)), log.state(block(3))),
            (HintState::Absent, HintState::Hinted)
        );
        assert_eq!(log.touch(block(1)), None, "it was of no use");
        assert_ne!(log.hint(block(1), 8), Hinted::Known);
        assert_eq!(log.touch(block(3)), Some(8));
        log.note_evicted(block(0));
        assert_ne!(log.hint(block(0), 9), Hinted::Known, "what it has had is wanted once more");
    }

    #[test]
    fn a_demand_for_some_of_a_chunk_is_no_hint_for_the_rest() {
        let log = log();
        let piece = Identity::ROOT.first_piece(0, 2 * BLOCK_BYTES);
        let next = Identity::ROOT.first_piece(2 * BLOCK_BYTES, 1);
        log.demand(piece, 3);
        assert_eq!(log.hint(piece, 4), Hinted::Again);
        assert_eq!(log.hint(next, 4), Hinted::New);
        log.done(piece.key);
        assert_eq!(log.touch(piece), None);
        assert_eq!(log.touch(next), Some(4));
        log.done_by_target(Identity::ROOT.first_piece(7 * BLOCK_BYTES, 1));
        log.take_back(piece);
        assert_eq!((log.state(piece), log.state(next)), (HintState::Absent, HintState::Done));
    }

    #[test]
    fn a_full_set_gives_up_used_entries_before_unused_ones() {
        let log = log();
        let set_of = |k: Identity| k.place() as usize & (SETS - 1);
        let first = key(0);
        let mates: std::vec::Vec<_> =
            (1..).map(key).filter(|k| set_of(*k) == set_of(first)).take(WAYS).collect();
        log.hint(first, 1);
        for m in &mates[..WAYS - 1] {
            log.hint(*m, 1);
        }
        log.done(mates[1]);
        assert!(log.touch(mates[1]).is_some());
        log.hint(mates[WAYS - 1], 2);
        assert_eq!(log.state(mates[1]), HintState::Absent, "the used one went");
        assert_eq!(log.state(first), HintState::Hinted);
    }
}
