//! Reads that the target starts itself.
//!
//! To have the supervisor start what the target is about to wait for takes two threads of it that have to be
//! woken, some 250 us of a processor, and gains nothing but the time until the target's own call: that is
//! worth while where the name says something (neighbours are guessed by it), or a server has to be asked. Of a
//! program that goes to and fro in a file, as databases do, nothing is learned so: one call to the kernel does.
//!
//! The supervisor is told all the same, when it wakes: it learns from what was waited for.
//!
//! Who goes to and fro in a file, and is not foreseen, may come to the same chunk again. All of it is started while a
//! wait for a chunk is seen to take hardly longer than one for a block: on a device that transfers as fast as it answers, the
//! later waits are saved for nothing. On others blocks are.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runahead_abi::HintKind;
use runahead_abi::access_identity::CHUNK_BYTES;
use runahead_abi::hint_record::STARTED;

use super::Target;
use super::call_outcome::Stall;
use crate::arch::ticks;
use crate::descriptor_names::{self, FileKind};
use crate::hint_sender::{self, Hint};
use crate::read_extent;
use crate::session::Session;
use crate::sys;

/// Files that are remembered to have been waited for.
const FILES_REMEMBERED: usize = 16;
/// Bytes that are started at most: more than the device takes at once would be waited for.
const START_BYTES_MAX: u64 = 2 * CHUNK_BYTES;
/// The supervisor is woken when so many times as long as a wait has passed since it was last: it hears that the
/// device is slow well before that is out of date (`abi::slow`).
const WAKE_SPACING: u64 = 8;

/// A wait so few bytes behind the last one in the same file is of a program that goes through it. The kernel
/// reads ahead of such a one, unless what it would read is there, and started by somebody else.
const SEQUENTIAL_BYTES: u64 = 16 * CHUNK_BYTES;

/// See the module's text.
pub(super) struct DemandReadahead {
    /// By identity, and where the last wait in each ended.
    files: [(AtomicU64, AtomicU64); FILES_REMEMBERED],
    /// When the supervisor was woken last.
    last_wake: AtomicU64,
    wait_times: WaitTimes,
}

/// How long waits have taken for blocks and for whole chunks, in ticks: decaying means; 0 before the first.
struct WaitTimes {
    block_ticks: AtomicU64,
    chunk_ticks: AtomicU64,
    /// How often it was asked whether to ask for a whole chunk.
    decisions: AtomicU64,
}

/// Every so many waits the other way is tried: what a device can do changes.
const PROBE_INTERVAL: u64 = 16;

impl WaitTimes {
    const fn new() -> Self {
        let [blocks, chunks, asked] = [const { AtomicU64::new(0) }; 3];
        WaitTimes { block_ticks: blocks, chunk_ticks: chunks, decisions: asked }
    }

    /// Whether to ask for a whole chunk.
    fn prefers_chunk(&self) -> bool {
        let asked = self.decisions.fetch_add(1, Relaxed);
        match (self.block_ticks.load(Relaxed), self.chunk_ticks.load(Relaxed)) {
            (0, _) | (_, 0) => asked.is_multiple_of(2),
            // By a quarter longer at most.
            (blocks, chunks) => {
                (chunks <= blocks + blocks / 4) != (asked % PROBE_INTERVAL == PROBE_INTERVAL - 1)
            }
        }
    }

    /// A wait for so many bytes took `ticks`.
    fn note(&self, length: u64, ticks: u64) {
        let mean = if length >= CHUNK_BYTES { &self.chunk_ticks } else { &self.block_ticks };
        let old = mean.load(Relaxed);
        let new = if old == 0 { ticks } else { old - old / 8 + ticks / 8 };
        mean.store(new.max(1), Relaxed);
    }
}

impl DemandReadahead {
    pub(super) const fn new() -> Self {
        let files = [const { (AtomicU64::new(0), AtomicU64::new(0)) }; FILES_REMEMBERED];
        DemandReadahead { files, last_wake: AtomicU64::new(0), wait_times: WaitTimes::new() }
    }

    /// Remembers that this range of `file` was waited for. Whether one was before, and this is elsewhere.
    fn jumps(&self, file: u64, offset: u64, length: u64) -> bool {
        let (known, end) = &self.files[file as usize % FILES_REMEMBERED];
        let end = end.swap(offset + length, Relaxed);
        known.swap(file, Relaxed) == file
            && !(end..end.saturating_add(SEQUENTIAL_BYTES)).contains(&offset)
    }
}

impl Target {
    /// Starts the read that `stall` waits for, if nobody else need do that: what was started, as (offset, length).
    pub(super) fn start_demand_read(
        &self,
        session: &'static Session,
        stall: &Stall<'_>,
    ) -> Option<(u64, u64)> {
        let Hint { kind, object, offset, length, .. } = stall.hint;
        if kind != HintKind::Data || self.file_kind(stall.dir) != FileKind::Nowait {
            return None;
        }
        let jumps = self.demand_readahead.jumps(object.raw(), offset, length);
        if !jumps || offset < CHUNK_BYTES || length > START_BYTES_MAX {
            return None;
        }
        let (offset, length) = match self.demand_readahead.wait_times.prefers_chunk() {
            true => read_extent::whole_chunks(offset, length),
            false => (offset, length),
        };
        for chunk in 0..length.div_ceil(CHUNK_BYTES) {
            let at = offset + chunk * CHUNK_BYTES;
            if sys::will_need(stall.dir, at, CHUNK_BYTES.min(offset + length - at)).is_err() {
                return None;
            }
        }
        let flags = stall.hint.flags | STARTED;
        let hint = Hint { flags, path: b"/", offset, length, ..stall.hint };
        let position = session.shared().control.accesses.load(Relaxed);
        // A ring has one writer. One that finds it taken does without.
        self.ring_lock
            .try_with(|()| hint_sender::send_quietly(session.shared(), 0, position, &hint));
        Some((offset, length))
    }

    /// What `stall` has started was waited for, and took so many ticks if it was a wait at all.
    pub(super) fn finish_demand_read(
        &self,
        session: &'static Session,
        stall: &Stall<'_>,
        (offset, length): (u64, u64),
        took: Option<u64>,
    ) {
        let (object, shared) = (stall.hint.object, session.shared());
        object.pieces(offset, length).for_each(|piece| shared.log.done_by_target(piece));
        let (Some(took), now) = (took, ticks()) else { return };
        self.demand_readahead.wait_times.note(length, took);
        if now.wrapping_sub(self.demand_readahead.last_wake.load(Relaxed)) > WAKE_SPACING * took
            && let Some(device) = descriptor_names::device(stall.dir)
        {
            self.demand_readahead.last_wake.store(now, Relaxed);
            self.note_unexpected_wait(session, device, took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_asked_for_while_they_cost_nothing() {
        let share = |waits: &WaitTimes| (0..160).filter(|_| waits.prefers_chunk()).count();
        let waits = WaitTimes::new();
        assert_eq!(share(&waits), 80, "nothing is known");
        (0..20).for_each(|_| waits.note(1 << 14, 1000));
        waits.note(CHUNK_BYTES, 1200);
        assert_eq!(share(&waits), 150, "one in sixteen is tried the other way");
        (0..20).for_each(|_| waits.note(CHUNK_BYTES, 3000));
        assert_eq!(share(&waits), 10);
        (0..40).for_each(|_| waits.note(CHUNK_BYTES, 1000));
        assert_eq!(share(&waits), 150, "it has become fast");
    }

    #[test]
    fn only_waits_here_and_there_in_one_file_are_started() {
        let started = DemandReadahead::new();
        let jumps = |file, chunk: u64| started.jumps(file, chunk * CHUNK_BYTES, CHUNK_BYTES);
        assert!(!jumps(5, 900), "the first");
        assert!(jumps(5, 40) && jumps(5, 700) && jumps(5, 699) && jumps(5, 717));
        assert!(!jumps(5, 718) && !jumps(5, 719) && !jumps(5, 725), "it goes through the file");
        assert!(jumps(5, 100));
        let other = 5 + FILES_REMEMBERED as u64;
        assert!(!jumps(other, 7) && !jumps(5, 300), "one in each place");
    }
}
