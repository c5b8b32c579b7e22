//! Reads that the target starts itself.
//!
//! To have the supervisor start what the target is about to wait for takes two threads of it that have to be
//! woken, some 250 us of a processor, and gains nothing but the time until the target's own call: that is
//! worth while where the name says something (neighbours are guessed by it), or a server has to be asked. In
//! the middle of a file that was waited for before, one call to the kernel does: programs that go to and fro
//! in large files, as databases do, wait there most often.
//!
//! The supervisor is told all the same, when it wakes: it learns from what was waited for.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runahead_abi::identity::CHUNK_BYTES;
use runahead_abi::record::STARTED;
use runahead_abi::{ChunkIndex, HintKind};

use super::Target;
use super::access::Stall;
use super::names::{self, Kind};
use crate::arch::ticks;
use crate::hints::{self, Hint};
use crate::session::Session;
use crate::sys;

/// Files that are remembered to have been waited for.
const FILES: usize = 16;
/// Bytes that are started at most: more than the device takes at once would be waited for.
const MOST: u64 = 2 * CHUNK_BYTES;
/// The supervisor is woken when so many times as long as a wait has passed since it was last: it hears that the
/// device is slow well before that is out of date (`abi::slow`).
const RARELY: u64 = 8;

/// See the module's text.
pub(super) struct Started {
    /// By identity.
    files: [AtomicU64; FILES],
    /// When the supervisor was woken last.
    told: AtomicU64,
}

impl Started {
    pub(super) const fn new() -> Self {
        Started { files: [const { AtomicU64::new(0) }; FILES], told: AtomicU64::new(0) }
    }

    /// Remembers `file`; whether it was remembered.
    fn knows(&self, file: u64) -> bool {
        self.files[file as usize % FILES].swap(file, Relaxed) == file
    }
}

impl Target {
    /// Starts the read that `stall` waits for, if nobody else need do that.
    pub(super) fn start(&self, session: &'static Session, stall: &Stall<'_>) -> bool {
        let Hint { kind, object, offset, length, .. } = stall.hint;
        if kind != HintKind::Data || self.kind(stall.dir) != Kind::Nowait {
            return false;
        }
        let again = self.started.knows(object.raw());
        if !again || offset < CHUNK_BYTES || length > MOST {
            return false;
        }
        for chunk in 0..length.div_ceil(CHUNK_BYTES) {
            let at = offset + chunk * CHUNK_BYTES;
            if sys::will_need(stall.dir, at, CHUNK_BYTES.min(offset + length - at)).is_err() {
                return false;
            }
        }
        let hint = Hint { flags: stall.hint.flags | STARTED, path: b"/", ..stall.hint };
        let position = session.shared().control.accesses.load(Relaxed);
        // A ring has one writer. One that finds it taken does without.
        self.sending.try_with(|()| hints::leave(session.shared(), 0, position, &hint));
        true
    }

    /// What `stall` has started was waited for, for `ticks` if it was a wait at all.
    pub(super) fn has_come(&self, session: &'static Session, stall: &Stall<'_>, took: Option<u64>) {
        let Hint { object, offset, length, .. } = stall.hint;
        let shared = session.shared();
        for chunk in ChunkIndex::of(offset).0..=ChunkIndex::of(offset + length.max(1) - 1).0 {
            shared.log.done_by_target(object.chunk(ChunkIndex(chunk)));
        }
        let (Some(took), now) = (took, ticks()) else { return };
        if now.wrapping_sub(self.started.told.load(Relaxed)) > RARELY * took
            && let Some(device) = names::device(stall.dir)
        {
            self.started.told.store(now, Relaxed);
            self.has_waited(session, device, took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_from_the_second_time_on() {
        let started = Started::new();
        assert!(!started.knows(5) && started.knows(5));
        assert!(!started.knows(5 + FILES as u64) && !started.knows(5), "one in each place");
    }
}
