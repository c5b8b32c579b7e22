//! Extent of the read that is requested where part of a file is missing.
//!
//! The prefetcher reads what is requested and nothing else, so readahead is decided here, as the
//! kernel decides it for a program: sequential reads get more than they ask for, random ones do
//! not. On a device whose transfers cost nothing, whole chunks would do everywhere; but a query
//! over 1 GB had 189 MB read for it instead of 39 (docs/design/prefetching.md).
//!
//! Target and shadows use the same rule. The log, which has the requests of both, tells whether a
//! program reads a file sequentially. A program that soon comes to the same chunks again
//! ([`access_spread`](runahead_estimators::access_spread)), as a join of large tables does, is
//! spared later waits by whole chunks.

use runahead_abi::{HintState, Shared};
use runahead_estimators::access_identity::{BLOCK_BYTES, CHUNK_BYTES};
use runahead_estimators::{ChunkIndex, Identity};

/// Size from which all touched chunks are requested, in bytes: that is not much more.
const LARGE_READ_BYTES: u64 = CHUNK_BYTES / 4;

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRange {
    pub offset: u64,
    pub length: u64,
}

/// Range to request where `len` bytes of `file` from `offset` are missing.
///
/// It is whole blocks. It is whole chunks at the start of a file, for large reads, next to earlier
/// requests, and in files whose chunks are requested often.
pub(crate) fn around(shared: &Shared, file: Identity, offset: u64, len: u64) -> FileRange {
    if offset < CHUNK_BYTES || len >= LARGE_READ_BYTES {
        return whole_chunks(offset, len);
    }
    let log = &shared.log;
    let first = offset - offset % BLOCK_BYTES;
    let end = offset.saturating_add(len).next_multiple_of(BLOCK_BYTES);
    let asked_for = |piece| log.state(piece) != HintState::Absent;
    let known = |at| asked_for(file.first_piece(at, 1));
    let goes_through = first.checked_sub(1).is_some_and(known) || known(end);
    // A repeated request is no evidence.
    let is_dense = || {
        let beside = log.progress(file.chunk(ChunkIndex::of(offset))) != HintState::Absent;
        !asked_for(file.first_piece(offset, len)) && shared.spread.is_dense(file, beside)
    };
    if goes_through || is_dense() {
        return whole_chunks(offset, len);
    }
    FileRange { offset: first, length: end - first }
}

/// The whole chunks around `len` bytes from `offset`.
pub(crate) fn whole_chunks(offset: u64, len: u64) -> FileRange {
    let start = offset - offset % CHUNK_BYTES;
    let end = offset.saturating_add(len).next_multiple_of(CHUNK_BYTES);
    FileRange { offset: start, length: end - start }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;

    use super::*;

    fn shared() -> Box<Shared> {
        // SAFETY: atomics throughout, for which all-zero bytes are a valid value.
        unsafe { Box::new_zeroed().assume_init() }
    }

    const FILE: Identity = Identity::ROOT;
    const FAR: u64 = 10 * CHUNK_BYTES;

    fn range(offset: u64, length: u64) -> FileRange {
        FileRange { offset, length }
    }

    #[test]
    fn here_and_there_blocks_are_asked_for() {
        let shared = shared();
        let at = FAR + 3 * BLOCK_BYTES;
        assert_eq!(around(&shared, FILE, at + 100, 4096), range(at, BLOCK_BYTES));
        assert_eq!(around(&shared, FILE, at + BLOCK_BYTES - 1, 2), range(at, 2 * BLOCK_BYTES));
        shared.log.hint(FILE.first_piece(at, 1), 1);
        assert_eq!(
            around(&shared, FILE, at + 3 * BLOCK_BYTES, 1),
            range(at + 3 * BLOCK_BYTES, BLOCK_BYTES)
        );
        assert_eq!(
            around(&shared, FILE.listing(), at + BLOCK_BYTES, 1).length,
            BLOCK_BYTES,
            "another file"
        );
    }

    #[test]
    fn sequential_reads_get_whole_chunks() {
        let shared = shared();
        let at = FAR + 3 * BLOCK_BYTES;
        shared.log.demand(FILE.first_piece(at, 1), 0);
        let whole = range(FAR, CHUNK_BYTES);
        assert_eq!(around(&shared, FILE, at + BLOCK_BYTES, 4096), whole, "forwards");
        assert_eq!(around(&shared, FILE, at - 1, 1), whole, "backwards");
        shared.log.hint(FILE.chunk(ChunkIndex::of(FAR)), 1);
        let next = range(FAR + CHUNK_BYTES, CHUNK_BYTES);
        assert_eq!(around(&shared, FILE, FAR + CHUNK_BYTES, 1), next, "from chunk to chunk");
        assert_eq!(around(&shared, FILE, 5, 1), range(0, CHUNK_BYTES), "the start of a file");
        assert_eq!(
            around(&shared, FILE, 2 * FAR + 9, LARGE_READ_BYTES),
            range(2 * FAR, CHUNK_BYTES),
            "large pieces"
        );
    }
}
