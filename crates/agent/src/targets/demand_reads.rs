//! Reads that the target starts itself.
//!
//! Having the supervisor start a read wakes two of its threads, which costs some 250 µs of
//! processor time. It gains only the time until the target's own call waits. That is worth while
//! where the name predicts something (neighbours are guessed by it), or a server has to be asked. A
//! program that seeks in a file, as databases do, teaches nothing by it: one call to the kernel
//! starts the read instead.
//!
//! The supervisor still gets the record when it wakes for something else: it learns from demand
//! waits.

use core::sync::atomic::Ordering::Relaxed;

use runahead_abi::HintKind;
use runahead_abi::hint_record::STARTED;
use runahead_estimators::Ticks;
use runahead_estimators::access_identity::CHUNK_BYTES;

use super::call_outcome::Stall;
use super::target_state::Target;
use crate::descriptor_names::{self, FileKind};
use crate::hint_sender::{self, Hint};
use crate::read_extent::{self, FileRange};
use crate::session::Session;
use crate::sys;
use crate::time_stamp::ticks;

/// Most bytes started at once: a request larger than the device takes at once would be waited for.
const START_BYTES_MAX: u64 = 2 * CHUNK_BYTES;
/// Multiple of a wait's length that must pass between two wake-ups of the supervisor. It hears that
/// the device is slow well before that information expires (`estimators::slow_devices`).
const WAKE_SPACING: u64 = 8;

impl Target {
    /// Starts the read that `stall` waits for, unless readahead or the prefetcher will. Returns the
    /// range.
    pub(super) fn start_demand_read(
        &self,
        session: &'static Session,
        stall: &Stall<'_>,
    ) -> Option<FileRange> {
        let Hint { kind, object, offset, length, .. } = stall.hint;
        if kind != HintKind::Data || self.file_kind(stall.dir) != FileKind::Nowait {
            return None;
        }
        let jumps = self.demand_readahead.jumps(object.raw(), offset, length);
        if !jumps || offset < CHUNK_BYTES || length > START_BYTES_MAX {
            return None;
        }
        let range = match self.demand_readahead.wait_times.prefers_chunk() {
            true => read_extent::whole_chunks(offset, length),
            false => FileRange { offset, length },
        };
        let FileRange { offset, length } = range;
        for chunk in 0..length.div_ceil(CHUNK_BYTES) {
            let at = offset + chunk * CHUNK_BYTES;
            if sys::will_need(stall.dir, at, CHUNK_BYTES.min(offset + length - at)).is_err() {
                return None;
            }
        }
        let flags = stall.hint.flags | STARTED;
        let hint = Hint { flags, path: b"/", offset, length, ..stall.hint };
        let position = session.shared().control.accesses.load(Relaxed);
        // A ring has one writer. If another thread holds it, the record is dropped.
        self.ring_lock
            .try_with(|()| hint_sender::send_quietly(session.shared(), 0, position, &hint));
        Some(range)
    }

    /// Accounts for the end of a read that was started here; `took` is its wait, if it was one.
    pub(super) fn finish_demand_read(
        &self,
        session: &'static Session,
        stall: &Stall<'_>,
        range: FileRange,
        took: Option<Ticks>,
    ) {
        let (object, shared) = (stall.hint.object, session.shared());
        object
            .pieces(range.offset, range.length)
            .for_each(|piece| shared.log.done_by_target(piece));
        let (Some(took), now) = (took, ticks()) else { return };
        self.demand_readahead.wait_times.note(range.length, took);
        let last_wake = Ticks(self.demand_readahead.last_wake_ticks.load(Relaxed));
        if now.wrapping_sub(last_wake) > took * WAKE_SPACING
            && let Some(device) = descriptor_names::device(stall.dir)
        {
            self.demand_readahead.last_wake_ticks.store(now.0, Relaxed);
            self.note_unexpected_wait(session, device, took);
        }
    }
}
