//! Records which parts of mapped files the program has used.
//!
//! A mapping is recorded whole when it is made ([`super::access_recording`]), as its page faults
//! are not seen. The kernel knows which pages this process has while the mapping exists
//! ([`super::page_residency`]). So it is asked at the end of the program, and before a large
//! mapping is unmapped.
//!
//! A process may wait in page faults and nowhere else. It joins the session in order to record if
//! it has waited for [`JOIN_FAULTS`](super::large_mappings::JOIN_FAULTS) of them, and long enough
//! in each that there is something to gain.
//!
//! Invariant: no call takes more processor time for it than [`LOOK_MIN`], or one part in
//! [`LOOK_SHARE`] of what the process has waited, and never more than [`LOOK_MAX`]. For room in the
//! ring it waits no longer either, or where everything is to be reported as [`super::ring_room`]
//! does. Joining, once, comes on top. All this happens only where accesses are recorded.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use runahead_abi::agent_config::tell;
use runahead_abi::hint_record::{PARTLY, PARTS, RECORDED, TOUCHED};
use runahead_abi::{HintKind, PATH_MAX};
use runahead_estimators::access_identity::BLOCK_BYTES;
use runahead_estimators::{Identity, Micros, Ticks};

use super::page_residency::{PAGE, PageSource};
use super::ring_room::RoomWait;
use super::target_state::Target;
use crate::hint_sender::{self, Hint};
use crate::path_text;
use crate::plane::{AddressRange, signal_block};
use crate::process_maps;
use crate::session::Session;
use crate::sys;
use crate::time_stamp::ticks;

/// Most time spent on mappings in one call, and its limits where page faults
/// have waited longer. mincore(2) takes 10 ms for a gigabyte on an idle machine.
const LOOK_MIN: Micros = Micros(4_000);
const LOOK_MAX: Micros = Micros(64_000);
const LOOK_SHARE: u64 = 16;
/// Size from which a mapping is inspected before it is unmapped, in bytes.
const LARGE_MAPPING_BYTES: u64 = 1 << 20;
/// Bytes that one record with a mask covers.
const SPAN_BYTES: u64 = PARTS * BLOCK_BYTES;
/// Most fully used spans that are recorded as one range: as long as the longest access.
const RANGE_SPANS_MAX: u64 = (8 << 20) / SPAN_BYTES;

/// Longest time to spend on mappings of a process that has waited for `waited`.
fn look_time(waited: Micros) -> Micros {
    (waited / LOOK_SHARE).clamp(LOOK_MIN, LOOK_MAX)
}

/// True if the use of a mapping of `len` bytes that is made now is going to be recorded.
pub(super) fn may_be_recorded(session: &Session, len: u64) -> bool {
    len >= LARGE_MAPPING_BYTES && is_recorded(session)
}

impl Target {
    /// Records the use of all mappings before the program ends or is replaced.
    pub(super) fn record_all_mapped(&self, session: &'static Session) {
        if !self.records_mapped(session) {
            return;
        }
        let mask = signal_block::begin();
        if let Ok(pages) = PageSource::of_this_process() {
            let limit = self.look_limit(session);
            self.with_ring(session, || {
                let _ = process_maps::each::<PATH_MAX>(|mapping, name| {
                    if mapping.inode == 0 || !path_text::is_lasting(name) {
                        return Ok(());
                    }
                    let file = (Identity::ROOT.join(name), name);
                    let memory = AddressRange::new(mapping.start, mapping.end);
                    record_used(session, &pages, file, (memory, mapping.offset), &limit)
                });
            });
            pages.close();
        }
        signal_block::end(mask);
    }

    /// Records the use of the mapping at `at` before it is unmapped.
    pub(super) fn record_unmapped(&self, session: &'static Session, at: u64, len: u64) {
        if at == 0 || !may_be_recorded(session, len) {
            return;
        }
        let mask = signal_block::begin();
        if let Some(large) = self.large_mappings.take(at)
            && path_text::is_lasting(large.file().1)
            && self.records_mapped(session)
            && let Some(pages) = large.pages()
        {
            let limit = self.look_limit(session);
            let memory = AddressRange::new(at, at.saturating_add(len));
            let mapping = (memory, large.offset);
            self.with_ring(session, || {
                let _ = record_used(session, &pages, large.file(), mapping, &limit);
            });
            pages.close();
        }
        signal_block::end(mask);
    }

    /// Limit of an inspection of mappings that begins now.
    fn look_limit(&self, session: &Session) -> LookLimit {
        const NS_PER_US: u64 = 1_000;
        let rate = session.tick_rate();
        // The measured waits, or at least the lower bound for faults that nothing measured.
        let measured = Ticks(self.waited_ticks.load(Relaxed)).to_micros(rate);
        let time = look_time(measured.max(self.large_mappings.waited(rate)));
        LookLimit {
            until_ns: sys::thread_ns() + time.0 * NS_PER_US,
            room_until: ticks() + time.to_ticks(rate),
        }
    }

    /// Does `work` while no other thread writes to the ring. If another thread does, waits where
    /// everything is to be reported, and otherwise does nothing. Signals must be blocked.
    fn with_ring(&self, session: &Session, mut work: impl FnMut()) {
        let shared = session.shared();
        let mut wait = RoomWait::new(shared);
        while self.ring_lock.try_with(|()| work()).is_none() {
            if session.config.tell != tell::ALL || !wait.pause(shared, session.tick_rate()) {
                return;
            }
        }
    }

    /// True if the use of mappings can be recorded. Joins the session for that if the process has
    /// waited for pages.
    fn records_mapped(&self, session: &'static Session) -> bool {
        if !is_recorded(session) {
            return false;
        }
        if !session.is_joined()
            && !self.stall_probing.waits_are_short()
            && self.large_mappings.waited(session.tick_rate()) > Micros(0)
        {
            self.join(session);
        }
        session.is_joined()
    }
}

/// True if accesses are recorded. `tell::SOME` does not count, as faults are not seen and make no
/// device slow.
fn is_recorded(session: &Session) -> bool {
    !matches!(session.config.tell, tell::NOTHING | tell::SOME)
}

/// Limit of one inspection of mappings.
struct LookLimit {
    /// Processor time of this thread at which the inspection ends.
    until_ns: u64,
    /// Time-stamp until which it waits for room in the ring, unless everything is to be reported.
    room_until: Ticks,
}

/// Records which parts of a mapping are present: of a file (identity and name), mapped at some
/// addresses from a file offset.
fn record_used(
    session: &'static Session,
    pages: &PageSource,
    (object, path): (Identity, &[u8]),
    (memory, offset): (AddressRange, u64),
    limit: &LookLimit,
) -> sys::Result<()> {
    let mut blocks = BlockRuns::default();
    let mut tell = |part: UsedPart| {
        let (position, partly) = part.mask.map_or((0, 0), |mask| (mask, PARTLY));
        let flags = RECORDED | TOUCHED | partly;
        let UsedPart { offset, length, .. } = part;
        let hint = Hint { kind: HintKind::Data, object, offset, length, flags, path };
        send(session, position, &hint, limit)
    };
    let first = memory.start / PAGE;
    let told = pages
        .each(first..memory.end.div_ceil(PAGE), limit.until_ns, |run| {
            let in_file = |page: u64| offset + (page - first) * PAGE;
            blocks.add(in_file(run.start), in_file(run.end), &mut tell)
        })
        .and_then(|()| blocks.end(&mut tell));
    if told == Err(sys::Errno(sys::EAGAIN)) {
        session.shared().control.untold.fetch_add(1, Relaxed);
    }
    told
}

/// Sends a record, waiting for room, and fails with EAGAIN if there is none.
fn send(
    session: &'static Session,
    position: u64,
    hint: &Hint<'_>,
    limit: &LookLimit,
) -> sys::Result<()> {
    let shared = session.shared();
    let mut wait = RoomWait::new(shared);
    while !hint_sender::send(shared, 0, position, hint) {
        let goes_on = wait.pause(shared, session.tick_rate());
        let is_in_time = match session.config.tell {
            tell::ALL => goes_on,
            _ => ticks() <= limit.room_until,
        };
        if !is_in_time {
            return Err(sys::Errno(sys::EAGAIN));
        }
    }
    Ok(())
}

/// Content of one record about a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct UsedPart {
    /// File offset of the first byte.
    offset: u64,
    /// Length in bytes.
    length: u64,
    /// Mask of the used blocks, as in [`PARTLY`]; `None`: all.
    mask: Option<u64>,
}

/// Collects used byte ranges, ascending, into parts of whole blocks: spans with a mask, and runs of
/// fully used spans.
#[derive(Default)]
struct BlockRuns {
    /// Number of the current span, and the mask of its used blocks.
    span: u64,
    mask: u64,
    /// Fully used spans before it.
    whole: Range<u64>,
}

impl BlockRuns {
    /// Adds the bytes from `start` to `end`.
    fn add(
        &mut self,
        start: u64,
        end: u64,
        mut tell: impl FnMut(UsedPart) -> sys::Result<()>,
    ) -> sys::Result<()> {
        for block in start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            let span = block / PARTS;
            if span != self.span {
                self.finish_span(&mut tell)?;
                self.span = span;
            }
            self.mask |= 1 << (block % PARTS);
        }
        Ok(())
    }

    fn finish_span(
        &mut self,
        mut tell: impl FnMut(UsedPart) -> sys::Result<()>,
    ) -> sys::Result<()> {
        let Range { start: first, end } = self.whole;
        let (span, mask) = (self.span, core::mem::take(&mut self.mask));
        if mask == u64::MAX && span == end && (1..RANGE_SPANS_MAX).contains(&(end - first)) {
            self.whole.end += 1;
            return Ok(());
        }
        if end > first {
            tell(UsedPart {
                offset: first * SPAN_BYTES,
                length: (end - first) * SPAN_BYTES,
                mask: None,
            })?;
        }
        self.whole = 0..0;
        match mask {
            0 => {}
            u64::MAX => self.whole = span..span + 1,
            _ => {
                tell(UsedPart { offset: span * SPAN_BYTES, length: SPAN_BYTES, mask: Some(mask) })?
            }
        }
        Ok(())
    }

    fn end(mut self, mut tell: impl FnMut(UsedPart) -> sys::Result<()>) -> sys::Result<()> {
        self.finish_span(&mut tell)?;
        self.finish_span(&mut tell)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    /// Parts that are recorded for these byte ranges.
    fn parts(ranges: &[(u64, u64)]) -> Vec<UsedPart> {
        let (mut all, mut blocks) = (Vec::new(), BlockRuns::default());
        let mut tell = |part| {
            all.push(part);
            Ok(())
        };
        for &(start, end) in ranges {
            blocks.add(start, end, &mut tell).expect("told");
        }
        blocks.end(tell).expect("told");
        all
    }

    fn some(span: u64, mask: u64) -> UsedPart {
        UsedPart { offset: span * SPAN_BYTES, length: SPAN_BYTES, mask: Some(mask) }
    }

    fn all(span: u64, spans: u64) -> UsedPart {
        UsedPart { offset: span * SPAN_BYTES, length: spans * SPAN_BYTES, mask: None }
    }

    #[test]
    fn scattered_pages_of_a_span_are_one_record() {
        let pages = [0, 1, 5, 16, 17, 255, 256, 3 * 256 + 9];
        let ranges = pages.map(|page| (page * PAGE, (page + 1) * PAGE));
        assert_eq!(parts(&ranges), [some(0, 1 << 63 | 0b10011), some(1, 1), some(3, 0b100)]);
        assert_eq!(parts(&[]), []);
        assert_eq!(parts(&[(7, 8)]), [some(0, 1)]);
    }

    #[test]
    fn fully_used_spans_are_recorded_as_long_ranges() {
        assert_eq!(parts(&[(0, SPAN_BYTES)]), [all(0, 1)]);
        let long = parts(&[(SPAN_BYTES / 2, 20 * SPAN_BYTES + 1)]);
        let half = u64::MAX << (PARTS / 2);
        assert_eq!(
            long,
            [
                some(0, half),
                all(1, RANGE_SPANS_MAX),
                all(9, RANGE_SPANS_MAX),
                all(17, 3),
                some(20, 1)
            ]
        );
        let apart = parts(&[(SPAN_BYTES, 2 * SPAN_BYTES), (3 * SPAN_BYTES, 4 * SPAN_BYTES)]);
        assert_eq!(apart, [all(1, 1), all(3, 1)]);
    }

    #[test]
    fn a_look_takes_a_small_part_of_what_was_waited_for() {
        let patience =
            [Micros(0), LOOK_MIN * LOOK_SHARE, Micros(320_000), Micros(1 << 40)].map(look_time);
        assert_eq!(patience, [LOOK_MIN, LOOK_MIN, Micros(20_000), LOOK_MAX]);
    }
}
