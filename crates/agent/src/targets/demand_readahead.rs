//! Choice of the unforeseen reads that a target starts itself: those that jump within a file.
//! [`demand_reads`](super::demand_reads) starts them.
//!
//! A program that seeks in a file unforeseen may come to the same chunk again. The whole chunk is
//! started while a wait for a chunk takes hardly longer than a wait for a block. On a device that
//! transfers as fast as it answers, that saves the later waits at no cost. On other devices only
//! the needed blocks are started.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runahead_estimators::Ticks;
use runahead_estimators::access_identity::CHUNK_BYTES;

/// Number of files whose last wait is remembered.
const FILES_REMEMBERED: usize = 16;
/// A wait at most this many bytes behind the last one in the same file is sequential. The kernel
/// reads ahead for it, unless the pages are present because another process started them.
const SEQUENTIAL_BYTES: u64 = 16 * CHUNK_BYTES;

/// State of demand readahead.
pub(super) struct DemandReadahead {
    /// Files by identity, and the end offset of the last wait in each.
    files: [(AtomicU64, AtomicU64); FILES_REMEMBERED],
    /// Time-stamp of the last wake-up of the supervisor.
    pub(super) last_wake_ticks: AtomicU64,
    pub(super) wait_times: WaitTimes,
}

/// Mean wait times for blocks and for whole chunks, in ticks; decaying, 0 before the first.
pub(super) struct WaitTimes {
    block_ticks: AtomicU64,
    chunk_ticks: AtomicU64,
    /// Number of decisions between block and chunk.
    decisions: AtomicU64,
}

/// Every sixteenth decision tries the other choice: what a device can do changes.
const PROBE_INTERVAL: u64 = 16;

impl WaitTimes {
    const fn new() -> Self {
        let [blocks, chunks, asked] = [const { AtomicU64::new(0) }; 3];
        WaitTimes { block_ticks: blocks, chunk_ticks: chunks, decisions: asked }
    }

    /// Decides between a whole chunk (true) and the needed blocks.
    pub(super) fn prefers_chunk(&self) -> bool {
        let asked = self.decisions.fetch_add(1, Relaxed);
        match (self.block_ticks.load(Relaxed), self.chunk_ticks.load(Relaxed)) {
            (0, _) | (_, 0) => asked.is_multiple_of(2),
            // A chunk may take at most a quarter longer.
            (blocks, chunks) => {
                (chunks <= blocks + blocks / 4) != (asked % PROBE_INTERVAL == PROBE_INTERVAL - 1)
            }
        }
    }

    /// Notes that a wait for `length` bytes took `time`.
    pub(super) fn note(&self, length: u64, time: Ticks) {
        let mean = if length >= CHUNK_BYTES { &self.chunk_ticks } else { &self.block_ticks };
        let old = mean.load(Relaxed);
        let new = if old == 0 { time.0 } else { old - old / 8 + time.0 / 8 };
        mean.store(new.max(1), Relaxed);
    }
}

impl DemandReadahead {
    pub(super) const fn new() -> Self {
        let files = [const { (AtomicU64::new(0), AtomicU64::new(0)) }; FILES_REMEMBERED];
        DemandReadahead { files, last_wake_ticks: AtomicU64::new(0), wait_times: WaitTimes::new() }
    }

    /// Remembers this wait in `file`. Returns true if an earlier wait is known and this one is not
    /// sequential to it.
    pub(super) fn jumps(&self, file: u64, offset: u64, length: u64) -> bool {
        let (known, end) = &self.files[file as usize % FILES_REMEMBERED];
        let end = end.swap(offset + length, Relaxed);
        known.swap(file, Relaxed) == file
            && !(end..end.saturating_add(SEQUENTIAL_BYTES)).contains(&offset)
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
        (0..20).for_each(|_| waits.note(1 << 14, Ticks(1000)));
        waits.note(CHUNK_BYTES, Ticks(1200));
        assert_eq!(share(&waits), 150, "one in sixteen is tried the other way");
        (0..20).for_each(|_| waits.note(CHUNK_BYTES, Ticks(3000)));
        assert_eq!(share(&waits), 10);
        (0..40).for_each(|_| waits.note(CHUNK_BYTES, Ticks(1000)));
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
