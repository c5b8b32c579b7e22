//! How much to ask for where some of a file is missing.
//!
//! The prefetcher reads what it is asked for and nothing else, so this is where readahead is decided, as the kernel
//! decides it for a program: one that goes through a file is given more than it asks for, one that goes to and fro is
//! not. On a device whose transfers cost nothing whole chunks are as good everywhere, and a query over 1 GB had 189 MB
//! read for it instead of 39 (docs/design/prefetching.md).
//!
//! Target and shadows ask the same way; whether a program goes through a file the log tells, which has what either has
//! asked for. Where a program comes to the same chunks again and again before long ([`spread`](runahead_abi::access_spread)), as a
//! join of large tables does, whole chunks save it the later waits.

use runahead_abi::access_identity::{BLOCK_BYTES, CHUNK_BYTES};
use runahead_abi::{ChunkIndex, HintState, Identity, Shared};

/// From so many bytes on, all of the chunks are asked for: it is not much more.
const LARGE_READ_BYTES: u64 = CHUNK_BYTES / 4;

/// What to ask for, as (offset, length), where `len` bytes of `file` from `read_offset` are missing: blocks, and whole
/// chunks at the start of a file, for large pieces, beside what was asked for before, and where that is often asked for.
pub(crate) fn around(shared: &Shared, file: Identity, offset: u64, len: u64) -> (u64, u64) {
    if offset < CHUNK_BYTES || len >= LARGE_READ_BYTES {
        return whole_chunks(offset, len);
    }
    let log = &shared.log;
    let first = offset - offset % BLOCK_BYTES;
    let end = offset.saturating_add(len).next_multiple_of(BLOCK_BYTES);
    let asked_for = |piece| log.state(piece) != HintState::Absent;
    let known = |at| asked_for(file.first_piece(at, 1));
    let goes_through = first.checked_sub(1).is_some_and(known) || known(end);
    // What is asked for again says nothing.
    let is_dense = || {
        let beside = log.progress(file.chunk(ChunkIndex::of(offset))) != HintState::Absent;
        !asked_for(file.first_piece(offset, len)) && shared.spread.is_dense(file, beside)
    };
    if goes_through || is_dense() {
        return whole_chunks(offset, len);
    }
    (first, end - first)
}

/// The whole chunks around `len` bytes from `read_offset`, as (offset, length).
pub(crate) fn whole_chunks(offset: u64, len: u64) -> (u64, u64) {
    let start = offset - offset % CHUNK_BYTES;
    (start, offset.saturating_add(len).next_multiple_of(CHUNK_BYTES) - start)
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

    #[test]
    fn here_and_there_blocks_are_asked_for() {
        let shared = shared();
        let at = FAR + 3 * BLOCK_BYTES;
        assert_eq!(around(&shared, FILE, at + 100, 4096), (at, BLOCK_BYTES));
        assert_eq!(around(&shared, FILE, at + BLOCK_BYTES - 1, 2), (at, 2 * BLOCK_BYTES));
        shared.log.hint(FILE.first_piece(at, 1), 1);
        assert_eq!(
            around(&shared, FILE, at + 3 * BLOCK_BYTES, 1),
            (at + 3 * BLOCK_BYTES, BLOCK_BYTES)
        );
        assert_eq!(
            around(&shared, FILE.listing(), at + BLOCK_BYTES, 1).1,
            BLOCK_BYTES,
            "another file"
        );
    }

    #[test]
    fn who_goes_through_a_file_is_given_whole_chunks() {
        let shared = shared();
        let at = FAR + 3 * BLOCK_BYTES;
        shared.log.demand(FILE.first_piece(at, 1), 0);
        let whole = (FAR, CHUNK_BYTES);
        assert_eq!(around(&shared, FILE, at + BLOCK_BYTES, 4096), whole, "forwards");
        assert_eq!(around(&shared, FILE, at - 1, 1), whole, "backwards");
        shared.log.hint(FILE.chunk(ChunkIndex::of(FAR)), 1);
        let next = (FAR + CHUNK_BYTES, CHUNK_BYTES);
        assert_eq!(around(&shared, FILE, FAR + CHUNK_BYTES, 1), next, "from chunk to chunk");
        assert_eq!(around(&shared, FILE, 5, 1), (0, CHUNK_BYTES), "the start of a file");
        assert_eq!(
            around(&shared, FILE, 2 * FAR + 9, LARGE_READ_BYTES),
            (2 * FAR, CHUNK_BYTES),
            "large pieces"
        );
    }
}
