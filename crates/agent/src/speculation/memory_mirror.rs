//! The program's private memory as it was at the latest checkpoint, in a mirror, where the kernel notes what is written
//! (userfaultfd(2)).
//!
//! Each page that a program can write has its like in a *mirror*: private memory of ours at the same address but for one bit.
//! Which pages were written since, the kernel tells: they are write-protected asynchronously (userfaultfd(2),
//! `UFFD_FEATURE_WP_ASYNC`), a store takes the protection off, and one call lists and protects again those without it
//! (ioctl_pagemap_scan(2)). So a checkpoint copies what was written since the last, into the mirror, and a rollback the same
//! out of it. What the kernel writes on the program's behalf, into buffers or signal frames, is tracked like the program's own stores,
//! and never fails for that.
//!
//! Of several checkpoints the mirror is the latest. What it held before, page by page, is kept for the earlier ones ([`Undo`]).
//!
//! Invariant: at a checkpoint the mirror equals the program's memory, where that is there; where it is not, zeros, or what the
//! file holds.

use linux_raw_sys::general as k;

use super::dirty_pages::{PageFilter, PageRange, Pagemap, Protect};
use super::page_undo_log::PageUndoLog;
use super::userfault_fd::Protector;
use super::writable_regions::{self, REGIONS, Region};
use crate::session::{self, Session};
use crate::sys::{self, Errno, Place};

const PAGE: u64 = 4096;
/// The bit in which a page and its like in the mirror differ: far from where the kernel puts anything, below and above.
const MIRROR: u64 = 1 << 44;
/// Most bytes of files in private, writable mappings, which are copied whole.
const FILES_MAX: u64 = 64 << 20;

/// See the module's text. All-zero is valid, and knows nothing.
pub struct Mirror {
    protector: Protector,
    /// What the mirror held before, for the checkpoints before the latest.
    pub undo: PageUndoLog,
    regions: [Region; REGIONS],
    count: usize,
    /// What is to be followed, while that is prepared.
    next_regions: [Region; REGIONS],
    /// What of the mirror is mapped, in the order of addresses of the program's.
    mirrored: [Region; REGIONS],
    mirrors: usize,
    /// Pages may be protected of which the mirror has nothing.
    is_out_of_step: bool,
}

impl Mirror {
    /// What lay there has gone.
    pub fn note_discarded(&mut self, at: u64, len: u64) {
        let end = at.saturating_add(len);
        for mirrored in &self.mirrored[..self.mirrors] {
            let (start, end) = (mirrored.start.max(at & !(PAGE - 1)), mirrored.end.min(end));
            if start < end {
                zero_mirror(start, end);
            }
        }
    }

    /// Pages have moved, and what says that they were written may have or not.
    pub fn note_moved(&mut self) {
        self.is_out_of_step = true;
    }

    /// In a forked child, which has no mirror.
    pub fn in_child(&mut self) {
        // SAFETY: all-zero is valid.
        self.protector = unsafe { core::mem::zeroed() };
        (self.count, self.mirrors) = (0, 0);
        self.undo.in_child();
    }

    /// The piece of memory that holds `at`.
    pub fn region(&self, at: u64) -> Option<Region> {
        let regions = &self.regions[..self.count];
        let n = regions.partition_point(|region| region.end <= at);
        regions.get(n).copied().filter(|region| region.holds(at))
    }

    /// The program looks after its own memory in the same way, and there can be one of us.
    pub fn disable(&mut self) {
        self.protector.disable(session::get());
    }

    /// Keeps what was written since the last time. Nobody else writes meanwhile. What the mirror held is noted if there `is_another`
    /// checkpoint before this one. ENOSPC: there is no room for that, and no checkpoint; those before it stay.
    pub fn save(&mut self, is_another: bool) -> sys::Result<()> {
        let mut kept = Ok(());
        self.each_page(self.pages_to_copy(), Protect::Before, |undo, found| {
            if is_another && kept.is_ok() {
                kept = undo.save_mirror(found.start, found.end, MIRROR);
            }
            if kept.is_err() {
                return (found.start..found.end).step_by(PAGE as usize).for_each(touch_page);
            }
            if found.is_zero() {
                return zero_mirror(found.start, found.end);
            }
            // SAFETY: these pages are there, and can be read as they can be written; the mirror is ours alone.
            unsafe { copy(mirror_of(found.start), found.start, found.end - found.start) };
        })?;
        kept?;
        self.is_out_of_step = false;
        Ok(())
    }

    /// Puts back what was written since the checkpoint at which the notes ended at `mark`. Nobody else writes meanwhile, and all that
    /// was mapped then is still mapped.
    pub fn restore(&mut self, mark: u64) -> sys::Result<()> {
        self.undo.unwind(mark, |at, was| {
            // SAFETY: a page of the mirror; the program's was written since, and will be put back with all that was.
            unsafe { copy(mirror_of(at), was, PAGE) };
            touch_page(at);
        });
        let put = |_: &mut PageUndoLog, found: &PageRange| {
            // SAFETY: these pages are there, and can be written; the program is to find there what it had.
            unsafe { copy(found.start, mirror_of(found.start), found.end - found.start) };
        };
        // Where it cannot be known what was written (who kept the descriptor has gone, or this thread may not ask, or has no
        // descriptor left to ask by) the mirror has all that there was.
        if self.each_page(self.pages_to_copy(), Protect::After, put).is_err() {
            self.is_out_of_step = true;
            if self.each_page(PageFilter::All, Protect::Never, put).is_err() {
                self.restore_by_comparison();
            }
        }
        Ok(())
    }

    /// Compares all memory with the mirror.
    fn restore_by_comparison(&self) {
        let mut now = [0u8; PAGE as usize];
        for region in &self.regions[..self.count] {
            for at in (region.start..region.end).step_by(PAGE as usize) {
                // (Behind the end of a file there is nothing to be read.)
                if sys::copy_bytes(at, &mut now).is_err() {
                    continue;
                }
                // SAFETY: a page of the mirror, which is ours alone.
                let was = unsafe { &*(mirror_of(at) as *const [u8; PAGE as usize]) };
                if now != *was {
                    // SAFETY: the page is there, and can be written; the program is to find there what it had.
                    unsafe { copy(at, mirror_of(at), PAGE) };
                }
            }
        }
    }

    /// What is not certain to be as in the mirror.
    fn pages_to_copy(&self) -> PageFilter {
        if self.is_out_of_step { PageFilter::All } else { PageFilter::Written }
    }

    /// Calls `each` with pages that are there.
    fn each_page(
        &mut self,
        which: PageFilter,
        protect: Protect,
        mut each: impl FnMut(&mut PageUndoLog, &PageRange),
    ) -> sys::Result<()> {
        let pagemap = Pagemap::open()?;
        let Mirror { regions, count, undo, .. } = self;
        let mut pieces = regions[..*count].iter().map(|region| (region.start, region.end));
        let mut each = |found: &PageRange| each(undo, found);
        let result = pieces.try_for_each(|piece| pagemap.each(piece, which, protect, &mut each));
        // What it had protected when it failed nobody has seen.
        self.is_out_of_step |= result.is_err();
        pagemap.close().and(result)
    }

    /// Looks at what is mapped, and begins to follow what is new. (Where the process speculates, that is no file.) If that cannot
    /// be done, what was followed still is.
    pub fn follow_regions(&mut self, session: &Session, speculates: bool) -> sys::Result<()> {
        let (mut count, mut files) = (0, 0);
        let Mirror { next_regions: regions, mirrored, mirrors, .. } = self;
        writable_regions::each(
            session,
            |at| is_mirror(&mirrored[..*mirrors], at),
            |region| {
                files += if region.is_file { region.end - region.start } else { 0 };
                *regions.get_mut(count).ok_or(Errno(sys::E2BIG))? = region;
                count += 1;
                Ok(())
            },
        )?;
        if files > FILES_MAX {
            return Err(Errno(sys::E2BIG));
        }
        let pieces = self.next_regions[..count].iter().map(|region| (region.start, region.end));
        let pagemap = Pagemap::open()?;
        let protected = self.protector.protect(session, pagemap.0, pieces);
        pagemap.close().and(protected)?;
        for n in 0..count {
            let region = self.next_regions[n];
            self.mirror(region)?;
            if region.is_file && !speculates {
                copy_of_file(region);
            }
        }
        self.regions[..count].copy_from_slice(&self.next_regions[..count]);
        self.count = count;
        Ok(())
    }

    /// Maps what of a region's mirror is not mapped yet.
    fn mirror(&mut self, region: Region) -> sys::Result<()> {
        let mut at = region.start;
        while at < region.end {
            let first = self.mirrored[..self.mirrors].partition_point(|other| other.end <= at);
            let next = self.mirrored[..self.mirrors].get(first).copied();
            match next {
                Some(other) if other.start <= at => at = other.end,
                _ => {
                    let end = next.map_or(region.end, |other| other.start.min(region.end));
                    let place = Place::IfFree(mirror_of(at));
                    // SAFETY: nothing is replaced.
                    unsafe { sys::map_private(place, end - at)? };
                    // SAFETY: memory of ours, which no child needs.
                    let _ = unsafe { sys::advise(mirror_of(at), end - at, k::MADV_DONTFORK) };
                    let new = Region { start: at, end, ..Region::default() };
                    self.note_mirrored(first, new)?;
                    at = end;
                }
            }
        }
        Ok(())
    }

    fn note_mirrored(&mut self, first: usize, new: Region) -> sys::Result<()> {
        // Mostly what grows is next to what there was.
        if let Some(before) = first.checked_sub(1).map(|n| &mut self.mirrored[n])
            && before.end == new.start
        {
            before.end = new.end;
            return Ok(());
        }
        if let Some(behind) = self.mirrored[..self.mirrors].get_mut(first)
            && behind.start == new.end
        {
            behind.start = new.start;
            return Ok(());
        }
        if self.mirrors == REGIONS {
            return Err(Errno(sys::E2BIG));
        }
        self.mirrored.copy_within(first..self.mirrors, first + 1);
        self.mirrored[first] = new;
        self.mirrors += 1;
        Ok(())
    }
}

/// The page counts as written (again).
fn touch_page(page: u64) {
    let word = page as *mut u64;
    // SAFETY: the page is there, and writable; nobody else is at work, and it holds afterwards what it held.
    unsafe { word.write_volatile(word.read_volatile()) };
}

fn mirror_of(at: u64) -> u64 {
    at ^ MIRROR
}

fn is_mirror(mirrored: &[Region], at: u64) -> bool {
    mirrored.iter().any(|region| region.holds(mirror_of(at)))
}

/// The mirror of these pages holds zeros.
fn zero_mirror(start: u64, end: u64) {
    // SAFETY: memory of ours alone, of which only what it holds is lost.
    let _ = unsafe { sys::advise(mirror_of(start), end - start, k::MADV_DONTNEED) };
}

/// # Safety
/// As for memcpy(3).
unsafe fn copy(to: u64, from: u64, len: u64) {
    // SAFETY: passed on to the caller.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len as usize) };
}

/// What is not in memory of a file's pages comes from there. (Behind its end there is nothing to be read.)
fn copy_of_file(region: Region) {
    let mut at = region.start;
    while at < region.end {
        // SAFETY: memory of ours alone, a page of it.
        let page =
            unsafe { core::slice::from_raw_parts_mut(mirror_of(at) as *mut u8, PAGE as usize) };
        if sys::copy_bytes(at, page).is_err() {
            return;
        }
        at += PAGE;
    }
}
