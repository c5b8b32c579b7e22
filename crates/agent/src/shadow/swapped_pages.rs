//! Swapped-out pages of the target in a runner: no fault of a runner waits for them.
//!
//! The target's `/proc/self/pagemap` tells whether a page is in memory (proc_pid_pagemap(5)). A
//! page that is not is hinted ([`swapped_memory`]), and zeros stand in for it. They come from the
//! kernel's zero page, which takes no memory until the runner stores there.

use core::sync::atomic::Ordering::Relaxed;

use runahead_abi::hint_record::OF_MEMORY;
use runahead_abi::swapped_memory::{self, ENTRY_BYTES, MEMORY, PAGE_BYTES};
use runahead_estimators::access_identity::BLOCK_BYTES;

use super::mapped_pages::IS_ANSWERING;
use super::runner::{RUNNER, Runner};
use super::shadow_descriptors::{Backing, Descriptor};
use crate::hint_sender::Hint;
use crate::sys::{self, Fd};

/// Pages per query: what the kernel reads ahead of swap.
const PAGES_PER_LOOK: usize = 8;

/// Swapped-out pages around an address.
pub(super) struct SwappedPages {
    first: u64,
    swapped: [bool; PAGES_PER_LOOK],
}

impl SwappedPages {
    /// Queries the pages around `page` through the descriptor `pagemap`. If that fails, none counts
    /// as swapped out.
    pub(super) fn around(pagemap: Fd, page: u64) -> Self {
        let first = page - page % (PAGES_PER_LOOK as u64 * PAGE_BYTES);
        let mut entries = [0; PAGES_PER_LOOK * ENTRY_BYTES];
        let got =
            sys::pread(pagemap, &mut entries, first / PAGE_BYTES * ENTRY_BYTES as u64).unwrap_or(0);
        let mut swapped = [false; PAGES_PER_LOOK];
        for (is_swapped, entry) in swapped.iter_mut().zip(entries[..got].chunks_exact(ENTRY_BYTES))
        {
            *is_swapped = swapped_memory::is_swapped_out(entry);
        }
        SwappedPages { first, swapped }
    }

    /// True if `page`, one of them, is swapped out.
    pub(super) fn contains(&self, page: u64) -> bool {
        let n = page.wrapping_sub(self.first) / PAGE_BYTES;
        self.swapped.get(n as usize).copied().unwrap_or(false)
    }
}

/// Hints `page`, which the program has touched with its stack pointer at `stack`. It is swapped
/// out, and accessible now. Returns `None` if the run must end.
pub(super) fn hint_swapped_page(page: u64, stack: u64) -> Option<()> {
    // Pages that a call names are not hinted: the answer is under way.
    if IS_ANSWERING.load(Relaxed) {
        return Some(());
    }
    // SAFETY: the one thread of a runner, outside of any call.
    let runner = unsafe { RUNNER.get() }.as_mut()?;
    runner.stack = stack;
    runner.hint_memory_page(page)
}

/// Counts `len` more bytes of copies, which may drop others.
pub(super) fn count_copied(len: u64) -> Option<()> {
    if IS_ANSWERING.load(Relaxed) {
        return Some(());
    }
    // SAFETY: as above; in a template there is none.
    let Some(runner) = unsafe { RUNNER.get() }.as_mut() else { return Some(()) };
    runner.limit_copies()?;
    runner.copied_bytes += len;
    Some(())
}

impl Runner {
    fn hint_memory_page(&mut self, page: u64) -> Option<()> {
        let offset = swapped_memory::offset_of(page);
        self.note_evicted(MEMORY, offset);
        let d = Descriptor { size: u64::MAX, ..Descriptor::new(Backing::Free, MEMORY) };
        if let Some(hint) = self.log_data_hint(&d, offset, BLOCK_BYTES, true) {
            let flags = hint.flags | OF_MEMORY;
            self.send_data_hint(&Hint { path: b"/", flags, ..hint });
            self.wait_for_hint_room().ok()?;
        }
        self.stop_learning();
        Some(())
    }
}
