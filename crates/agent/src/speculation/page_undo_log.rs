//! Undo log of pages: earlier contents of the mirror, for the checkpoints before the latest, or of
//! the program's memory, if there is no mirror.
//!
//! A page may be logged more than once. Unwinding from the end applies the oldest entry last, which
//! yields the contents at the checkpoint from which on it was logged.

use crate::address_space;
use crate::sys::{self, Errno, PAGE};

/// Capacity in pages: 64 MiB.
const PAGES: u64 = 16 << 10;

/// Page address of an entry whose page was unmapped.
const GONE: u64 = 0;

/// Ring of page copies. All-zero is valid and empty.
pub struct PageUndoLog {
    /// Address of the copies; 0 if not allocated.
    memory: u64,
    /// Positions of the oldest entry and of the next; they only grow.
    first: u64,
    end: u64,
    /// Page address of each entry.
    pages: [u64; PAGES as usize],
}

impl PageUndoLog {
    /// Returns the position after the last entry.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns how many more pages fit.
    pub fn room(&self) -> u64 {
        PAGES - (self.end - self.first)
    }

    /// Allocates the log and checks for room for `pages` pages. ENOSPC: not enough.
    fn reserve(&mut self, pages: u64) -> sys::Result<()> {
        if pages > self.room() {
            return Err(Errno(sys::ENOSPC));
        }
        if self.memory == 0 {
            self.memory = address_space::map_private(PAGES * PAGE)?;
            // SAFETY: memory of the agent, which no child needs.
            let _ = unsafe {
                sys::advise(self.memory, PAGES * PAGE, linux_raw_sys::general::MADV_DONTFORK)
            };
        }
        Ok(())
    }

    /// Saves the mirror of `start..end`; a page's mirror is its address with `bit` flipped. ENOSPC:
    /// no room for all pages, and none is saved.
    pub fn save_mirror(&mut self, start: u64, end: u64, bit: u64) -> sys::Result<()> {
        self.reserve((end - start) / PAGE)?;
        for at in (start..end).step_by(PAGE as usize) {
            let slot = self.end % PAGES;
            self.pages[slot as usize] = at;
            let (from, to) = ((at ^ bit) as *const u8, (self.memory + slot * PAGE) as *mut u8);
            // SAFETY: a page of the mirror, and a free entry of the ring.
            unsafe { core::ptr::copy_nonoverlapping(from, to, PAGE as usize) };
            self.end += 1;
        }
        Ok(())
    }

    /// Saves the pages `start..end` of the program, except those past the end of a file, which
    /// cannot be read. ENOSPC: as for `save_mirror`.
    pub fn save_memory(&mut self, start: u64, end: u64) -> sys::Result<()> {
        self.reserve((end - start) / PAGE)?;
        let mut at = start;
        while at < end {
            let slot = self.end % PAGES;
            let pages = ((end - at) / PAGE).min(PAGES - slot);
            let to = (self.memory + slot * PAGE) as *mut u8;
            // SAFETY: free entries of the ring.
            let to = unsafe { core::slice::from_raw_parts_mut(to, (pages * PAGE) as usize) };
            if sys::copy_bytes(at, to).is_ok() {
                for n in 0..pages {
                    self.pages[(slot + n) as usize] = at + n * PAGE;
                }
                self.end += pages;
                at += pages * PAGE;
                continue;
            }
            if sys::copy_bytes(at, &mut to[..PAGE as usize]).is_ok() {
                self.pages[slot as usize] = at;
                self.end += 1;
            }
            at += PAGE;
        }
        Ok(())
    }

    /// Keeps only the entries from `mark` on for which `is_wanted` returns true, in the same order.
    /// It gets the page's address and that of its copy.
    pub fn retain_from(&mut self, mark: u64, mut is_wanted: impl FnMut(u64, u64) -> bool) {
        let first = mark.max(self.first).min(self.end);
        let mut to = first;
        for from in first..self.end {
            let slot = from % PAGES;
            let (page, was) = (self.pages[slot as usize], self.memory + slot * PAGE);
            if page == GONE || !is_wanted(page, was) {
                continue;
            }
            if to != from {
                self.pages[(to % PAGES) as usize] = page;
                let there = (self.memory + to % PAGES * PAGE) as *mut u8;
                // SAFETY: two pages of the ring.
                unsafe { core::ptr::copy_nonoverlapping(was as *const u8, there, PAGE as usize) };
            }
            to += 1;
        }
        self.end = to;
    }

    /// Drops the entries from `mark` on.
    pub fn drop_from(&mut self, mark: u64) {
        self.end = mark;
    }

    /// Removes all entries from `mark` on, the last first, and calls `each` with the page's address
    /// and that of its copy.
    pub fn unwind(&mut self, mark: u64, mut each: impl FnMut(u64, u64)) {
        while self.end > mark {
            self.end -= 1;
            let slot = self.end % PAGES;
            let page = self.pages[slot as usize];
            if page != GONE {
                each(page, self.memory + slot * PAGE);
            }
        }
    }

    /// Marks the entries of pages that were unmapped for good, before any checkpoint that is left.
    pub fn forget_pages(&mut self, at: u64, len: u64) {
        for n in self.first..self.end {
            let page = &mut self.pages[(n % PAGES) as usize];
            if (at..at.saturating_add(len)).contains(page) {
                *page = GONE;
            }
        }
    }

    /// Drops the entries before `mark`.
    pub fn forget_until(&mut self, mark: u64) {
        self.first = mark;
    }

    /// Empties the log in a forked child, which does not inherit it.
    pub fn in_child(&mut self) {
        (self.memory, self.first, self.end) = (0, 0, 0);
    }
}
