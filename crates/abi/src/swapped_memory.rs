//! Memory of a process that is swapped out, as the hint log and hints know it.
//!
//! It is like a file whose offsets are [`SCALE`] times the addresses: each page is a block of the
//! log, and a chunk is what the kernel reads ahead of swap at a time (`page-cluster` in
//! Documentation/admin-guide/sysctl/vm.rst: eight pages).

use core::ops::Range;

use runahead_estimators::access_identity::{BLOCK_BYTES, Identity};

/// Bytes of a page of the processors that the agent is written for, and of the kernel's counts.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of the log for each byte of memory.
pub const SCALE: u64 = BLOCK_BYTES / PAGE_BYTES;
/// Bytes of an entry of `/proc/PID/pagemap`, one for each page (proc_pid_pagemap(5)).
pub const ENTRY_BYTES: usize = 8;
/// Identity of the process's own memory in its log and its hints.
pub const MEMORY: Identity = Identity::of_memory();

/// Offset in the log of the memory at an address.
pub const fn offset_of(at: u64) -> u64 {
    at.saturating_mul(SCALE)
}

/// Addresses of the pages of which a range of the log has some bytes.
pub fn addresses(range: &Range<u64>) -> Range<u64> {
    let page = |offset: u64| offset / BLOCK_BYTES * PAGE_BYTES;
    page(range.start)..page(range.end.saturating_add(BLOCK_BYTES - 1))
}

/// True if the page of this pagemap entry is swapped out.
pub fn is_swapped_out(entry: &[u8]) -> bool {
    /// Bit of the last byte of an entry: the page is present.
    const PRESENT: u8 = 0x80;
    const SWAPPED: u8 = 0x40;
    entry.get(ENTRY_BYTES - 1).is_some_and(|last| last & (PRESENT | SWAPPED) == SWAPPED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runahead_estimators::access_identity::CHUNK_BYTES;

    #[test]
    fn a_page_is_a_block() {
        let at = 0x7f12_3456_7000;
        let offset = offset_of(at);
        assert_eq!(addresses(&(offset..offset + 1)), at..at + PAGE_BYTES);
        assert_eq!(addresses(&(offset..offset + BLOCK_BYTES)), at..at + PAGE_BYTES);
        assert_eq!(addresses(&(offset..offset + CHUNK_BYTES)), at..at + 8 * PAGE_BYTES);
    }
}
