//! The hint log: what has been foreseen, and how far its prefetch has got.
//!
//! Runners write it when they hint, the supervisor when a prefetch ends, the target when it makes
//! the access. It is a set-associative cache, not a map: it never grows, an insertion may push an
//! old entry out, and a lost entry only makes an access look unforeseen. Every entry is two words
//! written without locks; a reader that races with a replacement sees an entry that is absent or
//! belongs to another key, never a wait.
//!
//! Invariant: no operation loops more than [`WAYS`] times, whatever the memory holds, so a writer
//! killed in the middle cannot hang a reader (a trap recorded in the project's facts).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::identity::{Identity, PLACES};

/// Entries that one key may live in.
pub const WAYS: usize = 4;
/// Number of sets; a power of two. 2^15 × 4 entries of 16 bytes: 2 MiB, touched as it fills.
pub const SETS: usize = 1 << 15;
const _: () = assert!(SETS as u64 <= PLACES);

/// How far the prefetch of one access has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HintState {
    /// Nobody foresaw it.
    Absent,
    /// A shadow hinted it; the prefetch waits or is under way.
    Hinted,
    /// It was read, by the prefetcher or by the target.
    Done,
}

const STATE: u64 = 0b11;
const HINTED: u64 = 1;
const DONE: u64 = 2;
const USED: u64 = 1 << 2;
const BY_TARGET: u64 = 1 << 3;
const RUN_SHIFT: u32 = 32;

#[repr(C)]
struct Entry {
    key: AtomicU64,
    /// Bits 0-1 state, 2 used by the target, 3 made by the target, 32-63 run that hinted it last.
    meta: AtomicU64,
}

/// See the module's text.
#[repr(C)]
pub struct HintLog {
    sets: [[Entry; WAYS]; SETS],
}

/// What [`HintLog::hint`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hinted {
    /// Not known before: a record must be sent, and it counts as one hint.
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
        let worth = |e: &Entry| {
            let meta = e.meta.load(Relaxed);
            match meta & STATE {
                0 => 0,
                _ if meta & USED != 0 => 1 + (meta >> RUN_SHIFT),
                _ => (1 << 33) + (meta >> RUN_SHIFT),
            }
        };
        let victim = set.iter().min_by_key(|e| worth(e)).unwrap_or(&set[0]);
        victim.meta.store(0, Relaxed);
        victim.key.store(key.raw(), Relaxed);
        victim
    }

    /// How far `key` has got.
    pub fn state(&self, key: Identity) -> HintState {
        match self.find(key).map(|e| e.meta.load(Relaxed) & STATE) {
            Some(HINTED) => HintState::Hinted,
            Some(DONE) => HintState::Done,
            _ => HintState::Absent,
        }
    }

    /// The run that hinted `key` last, if it is hinted and not read yet.
    pub fn pending_since(&self, key: Identity) -> Option<u32> {
        let meta = self.find(key)?.meta.load(Relaxed);
        (meta & STATE == HINTED).then_some((meta >> RUN_SHIFT) as u32)
    }

    /// Run `run` foresees `key`.
    pub fn hint(&self, key: Identity, run: u32) -> Hinted {
        let entry = self.claim(key);
        let meta = entry.meta.load(Relaxed);
        let was = match meta & STATE {
            0 => Hinted::New,
            HINTED if (meta >> RUN_SHIFT) as u32 != run => Hinted::Again,
            _ => return Hinted::Known,
        };
        let kept = meta & (USED | BY_TARGET);
        entry.meta.store(kept | HINTED | (u64::from(run) << RUN_SHIFT), Relaxed);
        was
    }

    /// The target waits for `key`, which nobody foresaw: it is no hint when a run names it now.
    pub fn demand(&self, key: Identity, run: u32) {
        let entry = self.claim(key);
        entry.meta.store(HINTED | BY_TARGET | u64::from(run) << RUN_SHIFT, Relaxed);
    }

    /// The program itself foresees `key`, in `run`: true if that counts as one hint. What the target has
    /// had already, and is disclosed again, is wanted once more.
    pub fn disclose(&self, key: Identity, run: u32) -> bool {
        let entry = self.claim(key);
        let meta = entry.meta.load(Relaxed);
        let is_new = match meta & STATE {
            0 => true,
            HINTED => false,
            _ if meta & (USED | BY_TARGET) != 0 => true,
            _ => return false,
        };
        let kept = if is_new { 0 } else { meta & (USED | BY_TARGET) };
        entry.meta.store(kept | HINTED | (u64::from(run) << RUN_SHIFT), Relaxed);
        is_new
    }

    /// The prefetch of `key` ended; it is in memory, or is known not to exist.
    pub fn done(&self, key: Identity) {
        let entry = self.claim(key);
        let meta = entry.meta.load(Relaxed);
        // What nobody hinted was read on the target's own demand, and is no hint when it is used.
        let origin = if meta & STATE == 0 { BY_TARGET } else { 0 };
        entry.meta.store(meta & !STATE | DONE | origin, Relaxed);
    }

    /// The queued prefetch of `key` was given up: as if it had never been hinted. Whether it was a hint.
    pub fn forget(&self, key: Identity) -> bool {
        self.find(key).is_some_and(|entry| entry.meta.swap(0, Relaxed) & BY_TARGET == 0)
    }

    /// The target makes the access. The run that hinted it last, the first time that a *hint* for it is used.
    pub fn touch(&self, key: Identity) -> Option<u32> {
        let entry = self.find(key)?;
        let meta = entry.meta.load(Relaxed);
        if meta & STATE == 0 || meta & (USED | BY_TARGET) != 0 {
            return None;
        }
        entry.meta.store(meta | USED, Relaxed);
        Some((meta >> RUN_SHIFT) as u32)
    }

    /// `key` was hinted, and the target has not come to it.
    pub fn is_ahead(&self, key: Identity) -> bool {
        let meta = self.find(key).map_or(0, |entry| entry.meta.load(Relaxed));
        meta & STATE != 0 && meta & (USED | BY_TARGET) == 0
    }

    /// A hint for `key` has been used.
    pub fn was_used(&self, key: Identity) -> bool {
        self.find(key).is_some_and(|entry| entry.meta.load(Relaxed) & USED != 0)
    }

    /// The target has read `key` itself, so a shadow may take it to be in memory.
    pub fn done_by_target(&self, key: Identity) {
        let entry = self.claim(key);
        let meta = entry.meta.load(Relaxed);
        let origin = if meta & STATE == 0 { BY_TARGET } else { 0 };
        entry.meta.store(meta & !STATE | DONE | origin | USED, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;

    use crate::record::DISCLOSED;

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
