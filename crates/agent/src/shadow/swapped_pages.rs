//! Pages of the target that are swapped out, as a runner touches them: no fault of a runner waits for them.
//!
//! Whether a page is in memory the target's `/proc/self/pagemap` tells (proc_pid_pagemap(5)). One that is not is hinted
//! ([`swap`]), and zeros stand in for it: the kernel's page of zeros, which takes no memory until something is stored
//! there.

use core::sync::atomic::Ordering::Relaxed;

use runahead_abi::access_identity::BLOCK_BYTES;
use runahead_abi::hint_record::OF_MEMORY;
use runahead_abi::swapped_memory::{self, ENTRY_BYTES, MEMORY, PAGE_BYTES};

use super::mapped_pages::IS_ANSWERING;
use super::runner::{RUNNER, Runner};
use super::shadow_descriptors::{Backing, Descriptor};
use crate::hint_sender::Hint;
use crate::sys::{self, Fd};

/// Pages that are asked about at a time: what the kernel reads ahead of swap.
const PAGES_PER_LOOK: usize = 8;

/// Which of the pages around one are swapped out.
pub(super) struct SwappedPages {
    first: u64,
    swapped: [bool; PAGES_PER_LOOK],
}

impl SwappedPages {
    /// Of the pages around `page`, as the descriptor `pagemap` tells. (If it does not, none.)
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

    /// `page`, which is one of them, is swapped out.
    pub(super) fn contains(&self, page: u64) -> bool {
        let n = page.wrapping_sub(self.first) / PAGE_BYTES;
        self.swapped.get(n as usize).copied().unwrap_or(false)
    }
}

/// The program, whose stack pointer is `stack`, has touched `page`, which is swapped out and can be touched now:
/// it is hinted. `None`: the run ends.
pub(super) fn hint_swapped_page(page: u64, stack: u64) -> Option<()> {
    // (What a call names is missed without a word: its answer is under way.)
    if IS_ANSWERING.load(Relaxed) {
        return Some(());
    }
    // SAFETY: the one thread of a runner, outside of any call.
    let runner = unsafe { RUNNER.get() }.as_mut()?;
    runner.stack = stack;
    runner.hint_memory_page(page)
}

/// The run is about to have `len` bytes more of its own, and perhaps others no more.
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
