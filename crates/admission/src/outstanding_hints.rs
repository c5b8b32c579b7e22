//! Hints of one process's shadows that the target has not used yet: how many bytes they are, and
//! which have proved wrong.
//!
//! A hint is one log key: a chunk of a file, a name, a listing. It is waited for from the moment
//! that it is taken in, before anything is read, so that what is queued is in the sum, too. It
//! leaves when the target has used it; when the log has lost it; and [`KEPT`] after it was due: a
//! kernel that needs the memory takes what was read once and never again first.
//!
//! A hint is *overdue* when the target has made [`SLACK`] more accesses than the shadow had when it
//! hinted. Each is told of once.
//!
//! The length of a hint is not always that of what is read: a file may be shorter, or be read to
//! its end. The sum is corrected by the ratio between what was asked for and what came, of all
//! hints of the process so far ([`OutstandingHints::bytes`]).

use std::collections::VecDeque;
use std::time::Duration;

use runahead_abi::hint_record::{DEMAND, DISCLOSED, Header, LENGTH_UNKNOWN, OF_MEMORY};
use runahead_abi::{HintKind, HintLog, HintState, Record, swapped_memory};
use runahead_estimators::access_identity::CHUNK_BYTES;
use runahead_estimators::{ChunkIndex, Identity};

/// Accesses by which the target may do things in another order than its shadow.
pub(crate) const SLACK: u64 = 16;
/// Time for which data that was due and not used counts as memory taken.
const KEPT: Duration = Duration::from_secs(2);
/// Hints that are remembered; the log holds no more.
const MOST: usize = 1 << 17;
/// Hints that are looked at in one go: at least, and as a part of all.
const LOOK: (usize, usize) = (256, 16);

/// A chunk of unknown length is extended to the end of a small file: that many chunks.
const MOST_READ: u64 = runahead_prefetch::EXTEND_MAX_BYTES / CHUNK_BYTES;

/// State of a hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HintFate {
    /// The hint has not been read for yet.
    Pending,
    /// The data of the hint was read.
    Present,
    /// The target has made the access.
    Used,
    /// The log has no trace of the hint any more.
    Gone,
}

/// Source of the states of hints.
pub(crate) trait HintFates {
    /// The fate of the hint for `key`.
    fn fate(&self, key: Identity) -> HintFate;
}

impl HintFates for HintLog {
    fn fate(&self, key: Identity) -> HintFate {
        match self.progress(key) {
            HintState::Absent => HintFate::Gone,
            _ if self.was_used(key) => HintFate::Used,
            HintState::Hinted => HintFate::Pending,
            HintState::Done => HintFate::Present,
        }
    }
}

struct Hint {
    key: Identity,
    bytes: u32,
    known: bool,
    present: bool,
    position: u64,
    /// When the hint was seen to be overdue.
    overdue: Option<Duration>,
}

/// Outstanding hints of one process.
#[derive(Default)]
pub(crate) struct OutstandingHints {
    hints: VecDeque<Hint>,
    /// Bytes of hints of known length.
    known: u64,
    /// Bytes asked for by hints whose length in memory is not known: those not read yet, and those
    /// read.
    pending: u64,
    present: u64,
    /// Asked for by all of these that have been carried out.
    answered: u64,
    /// Ratio of the bytes read to the bytes asked for by those hints.
    ratio: Ratio,
    /// Hints still to be looked at before all have been.
    turn: usize,
}

#[derive(Clone, Copy)]
struct Ratio {
    read: u64,
    asked: u64,
}

impl Default for Ratio {
    fn default() -> Self {
        Ratio { read: 1, asked: 1 }
    }
}

impl Ratio {
    fn of(self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.read) / u128::from(self.asked)) as u64
    }
}

/// The log keys that `record` is about, and how many bytes each is of.
pub(crate) fn keys(record: &Record<'_>) -> impl Iterator<Item = (Identity, u32)> + use<> {
    let Header { key, offset, length, flags, .. } = record.header;
    let object = Identity::from_raw(key);
    let kind = record.kind;
    let (chunks, one) = match kind {
        HintKind::Data => (offset / CHUNK_BYTES..(offset + length).div_ceil(CHUNK_BYTES), None),
        HintKind::Listing => (0..0, Some(object.listing())),
        HintKind::Link => (0..0, Some(object.link())),
        HintKind::Lookup | HintKind::Program => (0..0, Some(object)),
        HintKind::Cancel => (0..0, None),
    };
    let scale = if flags & OF_MEMORY != 0 { swapped_memory::SCALE } else { 1 };
    let bytes = move |chunk: u64| {
        let start = offset.max(chunk * CHUNK_BYTES);
        (((offset + length).min((chunk + 1) * CHUNK_BYTES) - start) / scale) as u32
    };
    let chunks = chunks.map(move |chunk| (object.chunk(ChunkIndex(chunk)), bytes(chunk)));
    chunks.chain(one.map(|key| (key, 0)))
}

impl OutstandingHints {
    /// A hint is about to be handed to the prefetcher.
    pub(crate) fn add(&mut self, record: &Record<'_>) {
        if record.header.flags & DEMAND != 0 || record.header.run == 0 {
            return;
        }
        let known = record.header.flags & LENGTH_UNKNOWN == 0;
        // What the program itself discloses may be for any time, and is no sign of a shadow astray.
        let position = match record.header.run < DISCLOSED {
            true => record.header.position,
            false => u64::MAX,
        };
        for (key, bytes) in keys(record) {
            if self.hints.len() >= MOST
                && let Some(oldest) = self.hints.pop_front()
            {
                self.leave(&oldest);
            }
            let hint = Hint { key, bytes, known, present: false, position, overdue: None };
            *self.sum(&hint) += u64::from(bytes);
            self.hints.push_back(hint);
        }
    }

    /// Forgets data that was read and not used, as it may be gone: a process that misses it hints
    /// it again.
    pub(crate) fn lose(&self, log: &HintLog) {
        self.hints.iter().for_each(|hint| _ = log.lose(hint.key));
    }

    /// The sum in which `hint` counts.
    fn sum(&mut self, hint: &Hint) -> &mut u64 {
        match (hint.known, hint.present) {
            (true, _) => &mut self.known,
            (false, true) => &mut self.present,
            (false, false) => &mut self.pending,
        }
    }

    fn leave(&mut self, hint: &Hint) {
        *self.sum(hint) -= u64::from(hint.bytes);
    }

    /// Looks at some of them, in turn: how many are newly overdue. The target has made `accesses`,
    /// and `read` is what has come of all hints of unknown length so far, in bytes.
    pub(crate) fn sweep(
        &mut self,
        fates: &impl HintFates,
        accesses: u64,
        read: u64,
        now: Duration,
    ) -> u64 {
        let mut overdue = 0;
        let most = LOOK.0.max(self.hints.len() / LOOK.1);
        for _ in 0..most.min(self.hints.len()) {
            self.learn(read);
            let Some(mut hint) = self.hints.pop_front() else { break };
            let fate = fates.fate(hint.key);
            if !hint.present && matches!(fate, HintFate::Present | HintFate::Used) {
                self.leave(&hint);
                hint.present = true;
                *self.sum(&hint) += u64::from(hint.bytes);
                self.answered += if hint.known { 0 } else { hint.bytes.into() };
            }
            if hint.overdue.is_none()
                && matches!(fate, HintFate::Pending | HintFate::Present)
                && accesses > hint.position.saturating_add(SLACK)
            {
                hint.overdue = Some(now);
                overdue += 1;
            }
            let old = hint.overdue.is_some_and(|since| now.saturating_sub(since) >= KEPT);
            if old || matches!(fate, HintFate::Used | HintFate::Gone) {
                self.leave(&hint);
            } else {
                self.hints.push_back(hint);
            }
        }
        overdue
    }

    /// Once all have been looked at, what was asked for by those that have been carried out is
    /// known. A little more may have come meanwhile, so this errs on the side of too much.
    fn learn(&mut self, read: u64) {
        /// Before that the ratio says little.
        const TELLING: u64 = 8 * CHUNK_BYTES;
        if self.turn > 0 {
            self.turn -= 1;
            return;
        }
        if self.answered >= TELLING {
            let read = read.clamp(1, self.answered.saturating_mul(MOST_READ));
            self.ratio = Ratio { read, asked: self.answered };
        }
        self.turn = self.hints.len();
    }

    /// Bytes that they stand for.
    pub(crate) fn bytes(&self) -> u64 {
        // What comes of those that wait is not known: hardly much less than was asked for.
        let pending = self.ratio.of(self.pending).max(self.pending / 4);
        self.known + pending + self.ratio.of(self.present)
    }

    /// There are no hints.
    pub(crate) fn is_empty(&self) -> bool {
        self.hints.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use super::*;

    #[derive(Default)]
    struct Told(RefCell<HashMap<u64, HintFate>>);

    impl HintFates for Told {
        fn fate(&self, key: Identity) -> HintFate {
            self.0.borrow().get(&key.raw()).copied().unwrap_or(HintFate::Pending)
        }
    }

    impl Told {
        fn tell(&self, record: &Record<'_>, fate: HintFate) {
            keys(record).for_each(|(key, _)| _ = self.0.borrow_mut().insert(key.raw(), fate));
        }
    }

    fn data(file: u32, position: u64, offset: u64, length: u64) -> Record<'static> {
        let header = Header {
            kind: HintKind::Data as u32,
            run: 1,
            position,
            key: Identity::inherited(file).raw(),
            offset,
            length,
            flags: 0,
            path_len: 2,
        };
        Record { kind: HintKind::Data, header, path: b"/x" }
    }

    const CHUNK: u64 = CHUNK_BYTES;

    #[test]
    fn bytes_are_those_of_the_chunks_that_a_range_touches() {
        let sizes = |offset, length| -> Vec<u32> {
            keys(&data(1, 0, offset, length)).map(|(_, bytes)| bytes).collect()
        };
        assert_eq!(sizes(0, 10), [10]);
        assert_eq!(sizes(CHUNK - 1, 2), [1, 1]);
        assert_eq!(sizes(100, 2 * CHUNK), [CHUNK as u32 - 100, CHUNK as u32, 100]);
    }

    #[test]
    fn a_hint_counts_from_its_coming_until_it_is_used() {
        let (mut ahead, told) = (OutstandingHints::default(), Told::default());
        let records: Vec<_> = (0..16).map(|n| data(n, n.into(), 0, CHUNK)).collect();
        records.iter().for_each(|record| ahead.add(record));
        assert_eq!(ahead.bytes(), 16 * CHUNK);
        records.iter().for_each(|record| told.tell(record, HintFate::Present));
        assert_eq!(ahead.sweep(&told, 0, 0, Duration::ZERO), 0);
        assert_eq!(ahead.bytes(), 16 * CHUNK);
        told.tell(&records[3], HintFate::Used);
        told.tell(&records[4], HintFate::Gone);
        ahead.sweep(&told, 0, 16 * CHUNK, Duration::ZERO);
        assert_eq!(ahead.bytes(), 14 * CHUNK);
    }

    /// Files turn out to be as long as `read` says.
    fn bytes_of_sixteen(read: u64, flags: u32) -> u64 {
        let (mut ahead, told) = (OutstandingHints::default(), Told::default());
        let mut records: Vec<_> = (0..16).map(|n| data(n, n.into(), 0, CHUNK)).collect();
        records.iter_mut().for_each(|record| record.header.flags = flags);
        records.iter().for_each(|record| ahead.add(record));
        records.iter().for_each(|record| told.tell(record, HintFate::Present));
        (0..3).for_each(|_| _ = ahead.sweep(&told, 0, read, Duration::ZERO));
        ahead.bytes()
    }

    #[test]
    fn what_has_come_corrects_what_was_asked_for() {
        let bytes = |read| bytes_of_sixteen(read, LENGTH_UNKNOWN);
        assert_eq!(bytes(16 * CHUNK), 16 * CHUNK);
        assert_eq!(bytes(CHUNK), CHUNK, "the files were short");
        assert_eq!(bytes(64 * CHUNK), 64 * CHUNK, "they were read to their ends");
        assert_eq!(bytes(u64::MAX), 16 * MOST_READ * CHUNK);
        assert_eq!(bytes_of_sixteen(CHUNK, 0), 16 * CHUNK, "it was known");
    }

    #[test]
    fn what_the_target_has_passed_is_told_once_and_kept_a_while() {
        let (mut ahead, told) = (OutstandingHints::default(), Told::default());
        (0..20).for_each(|n| ahead.add(&data(n, n.into(), 0, CHUNK)));
        assert_eq!(ahead.sweep(&told, SLACK, 0, Duration::ZERO), 0);
        assert_eq!(ahead.sweep(&told, SLACK + 5, 0, Duration::ZERO), 5);
        assert_eq!(ahead.sweep(&told, SLACK + 5, 0, Duration::ZERO), 0);
        ahead.sweep(&told, SLACK + 5, 0, KEPT);
        assert_eq!(ahead.bytes(), 15 * CHUNK);
    }

    #[test]
    fn all_are_looked_at_in_turn_however_many() {
        let (mut ahead, told) = (OutstandingHints::default(), Told::default());
        (0..10_000).for_each(|n| ahead.add(&data(n, n.into(), 0, 1)));
        let sweep = |_| ahead.sweep(&told, 1 << 20, 0, Duration::ZERO);
        assert_eq!((0..=LOOK.1).map(sweep).sum::<u64>(), 10_000);
        // And there are never more than that.
        (0..MOST as u32 + 5).for_each(|n| ahead.add(&data(n, 0, 0, 1)));
        assert_eq!(ahead.bytes(), MOST as u64);
    }

    #[test]
    fn what_the_target_itself_waits_for_is_no_hint() {
        let mut ahead = OutstandingHints::default();
        let mut demand = data(1, 0, 0, CHUNK);
        demand.header.run = 0;
        ahead.add(&demand);
        assert!(ahead.is_empty() && ahead.bytes() == 0);
    }
}
