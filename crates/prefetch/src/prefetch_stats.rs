//! Counts of the prefetcher.

use std::time::Duration;

use runahead_predict::KIND_NAMES;

/// Counts since the start, and the present state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PrefetchStats {
    /// Hints received.
    pub submitted: u64,
    /// Hints that were joined to one for the same path that was waiting or in progress.
    pub merged: u64,
    /// Hints that wanted nothing new.
    pub duplicates: u64,
    /// Hints that were refused because too much was waiting.
    pub refused: u64,
    /// Hints carried out (failed ones too).
    pub completed: u64,
    /// Hints given up before they were carried out.
    pub dropped: u64,
    /// Completions that brought an error for some of it.
    pub failed: u64,
    /// Paths looked up.
    pub lookups: u64,
    /// Directories read.
    pub listings: u64,
    /// Symbolic links read.
    pub links: u64,
    /// Pieces of files read.
    pub reads: u64,
    /// Lookups, listings, links and reads that had a request of their own at the storage: what
    /// others have asked for, or what lies in the same block, comes without. Some count more than
    /// once.
    pub requests: u64,
    /// Reads that had a request of their own at the storage.
    pub read_requests: u64,
    /// Bytes of file data in completed hints.
    pub bytes: u64,
    /// Files of programs that were looked into: the programs, their interpreters and libraries.
    pub programs: u64,
    /// Guessed files that were read, because of what was read beside them.
    pub guesses: u64,
    /// Guesses that were begun and that were used, by kind ([`KIND_NAMES`]).
    pub guessed: [(u64, u64); KIND_NAMES.len()],
    /// Bytes of file data that no hint named: those of interpreters, libraries and guesses.
    pub unhinted_bytes: u64,
    /// Bytes of memory that was swapped out, in completed hints.
    pub swapped_bytes: u64,
    /// Processor time of all operations.
    pub processor: Duration,
    /// Most jobs in flight at a time.
    pub peak_in_flight: usize,
    /// Jobs in flight now.
    pub in_flight: usize,
    /// Jobs that may be in flight now on the device that takes most, as measured.
    pub limit: usize,
    /// Worker threads that exist now.
    pub threads: usize,
    /// Parts of hints that wait now.
    pub queued: usize,
    /// Clients that there are now.
    pub clients: usize,
    /// The device that is waited for most serves one request at a time.
    pub sole: bool,
    /// Latency there of a request that waits for no other, if it is known.
    pub service: Option<Duration>,
}

impl PrefetchStats {
    /// Returns the part of operations with names that had a request of their own, in 1,024ths; at
    /// least 1. `None` without operations.
    pub fn own_requests(&self) -> Option<u32> {
        let all = self.lookups + self.listings + self.links;
        part(self.requests.saturating_sub(self.read_requests), all)
    }

    /// Returns the part of reads that had a request of their own at the storage, in 1,024ths.
    /// `None` without reads.
    pub fn own_reads(&self) -> Option<u32> {
        part(self.read_requests, self.reads)
    }
}

/// Returns `some` of `all` in 1,024ths.
fn part(some: u64, all: u64) -> Option<u32> {
    let part = (some * 1024).checked_div(all)?;
    Some(part.clamp(1, 1024) as u32)
}
