//! What memory held at checkpoints, page by page: of the mirror, for the checkpoints before the latest; of the program's memory itself,
//! where there is no mirror.
//!
//! A page may be noted more than once. Going back from the end, what was noted first is what counts, and gives what memory held
//! at the checkpoint from which on it was noted.

use crate::address_space;
use crate::sys::{self, Errno};

const PAGE: u64 = 4096;
/// Pages for which there is room: 64 MiB.
const PAGES: u64 = 16 << 10;

/// In place of a page that is not there any more.
const GONE: u64 = 0;

/// See the module's text. All-zero is valid, and holds nothing.
pub struct PageUndoLog {
    /// Where the pages lie; 0: nowhere yet.
    memory: u64,
    /// Numbers of the first page that is still wanted, and of the next: positions that only grow.
    first: u64,
    end: u64,
    /// Of which page of the program's each is.
    pages: [u64; PAGES as usize],
}

impl PageUndoLog {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many pages can still be noted.
    pub fn room(&self) -> u64 {
        PAGES - (self.end - self.first)
    }

    /// Room for these pages. ENOSPC: there is not enough.
    fn reserve(&mut self, pages: u64) -> sys::Result<()> {
        if pages > self.room() {
            return Err(Errno(sys::ENOSPC));
        }
        if self.memory == 0 {
            self.memory = address_space::map_private(PAGES * PAGE)?;
            // SAFETY: memory of ours, which no child needs.
            let _ = unsafe {
                sys::advise(self.memory, PAGES * PAGE, linux_raw_sys::general::MADV_DONTFORK)
            };
        }
        Ok(())
    }

    /// Notes what the likes of these pages hold, which differ in `bit` of the address. ENOSPC: there is no room for all, and
    /// none is noted.
    pub fn save_mirror(&mut self, start: u64, end: u64, bit: u64) -> sys::Result<()> {
        self.reserve((end - start) / PAGE)?;
        for at in (start..end).step_by(PAGE as usize) {
            let slot = self.end % PAGES;
            self.pages[slot as usize] = at;
            let (from, to) = ((at ^ bit) as *const u8, (self.memory + slot * PAGE) as *mut u8);
            // SAFETY: a page of the mirror, and one of ours that holds nothing that is wanted.
            unsafe { core::ptr::copy_nonoverlapping(from, to, PAGE as usize) };
            self.end += 1;
        }
        Ok(())
    }

    /// Notes what these pages of the program's hold, but for those that cannot be read (behind the end of a file). ENOSPC: as above.
    pub fn save_memory(&mut self, start: u64, end: u64) -> sys::Result<()> {
        self.reserve((end - start) / PAGE)?;
        let mut at = start;
        while at < end {
            let slot = self.end % PAGES;
            let pages = ((end - at) / PAGE).min(PAGES - slot);
            let to = (self.memory + slot * PAGE) as *mut u8;
            // SAFETY: pages of ours that hold nothing that is wanted.
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

    /// Of what was noted from `mark` on, what `is_wanted` says of the page and the address of what was noted of it; in the same order.
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
                // SAFETY: two pages of ours.
                unsafe { core::ptr::copy_nonoverlapping(was as *const u8, there, PAGE as usize) };
            }
            to += 1;
        }
        self.end = to;
    }

    /// What was noted from `mark` on is not wanted.
    pub fn drop_from(&mut self, mark: u64) {
        self.end = mark;
    }

    /// Takes back all from `mark` on, the last first: calls `each` with the page and the address of what was noted of it.
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

    /// These pages have been given up for good: by what was done before any of the checkpoints that are left.
    pub fn forget_pages(&mut self, at: u64, len: u64) {
        for n in self.first..self.end {
            let page = &mut self.pages[(n % PAGES) as usize];
            if (at..at.saturating_add(len)).contains(page) {
                *page = GONE;
            }
        }
    }

    /// What was noted before `mark` is not wanted any more.
    pub fn forget_until(&mut self, mark: u64) {
        self.first = mark;
    }

    /// In a forked child, which has none of it.
    pub fn in_child(&mut self) {
        (self.memory, self.first, self.end) = (0, 0, 0);
    }
}
