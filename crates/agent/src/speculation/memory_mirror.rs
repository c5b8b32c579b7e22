//! Program memory at the latest checkpoint, as a mirror, where the kernel tracks dirty pages
//! (userfaultfd(2)).
//!
//! Each page that the program can write has a copy in the *mirror*: private memory of the agent at
//! the same address with one bit flipped. The kernel tracks dirty pages: memory is write-protected
//! asynchronously (userfaultfd(2), `UFFD_FEATURE_WP_ASYNC`), and a store removes the protection.
//! One call lists the pages without it and protects them again (ioctl_pagemap_scan(2)).
//!
//! So a checkpoint copies the dirty pages into the mirror, and a rollback copies them back. Writes
//! by the kernel for the program, to buffers or signal frames, are tracked like the program's own
//! stores, and never fail because of it.
//!
//! The mirror belongs to the latest of several checkpoints. Its earlier contents are logged page by
//! page for the earlier ones ([`PageUndoLog`]).
//!
//! Invariant: at a checkpoint the mirror equals the program's memory, for each page that exists.
//! For other pages it holds zeros, or the contents of the file.

use linux_raw_sys::general as k;

use super::dirty_pages::{PageFilter, PageRange, Pagemap, Protect};
use super::page_undo_log::PageUndoLog;
use super::userfault_fd::Protector;
use super::writable_regions::{self, REGIONS, Region};
use crate::plane::AddressRange;
use crate::session::{self, Session};
use crate::sys::{self, Errno, PAGE, Place};

/// Address bit in which a page and its mirror differ. The kernel places no mappings that far below
/// or above the program's.
const MIRROR: u64 = 1 << 44;
/// Limit of private, writable file mappings, which are copied whole: 64 MiB.
const FILES_MAX: u64 = 64 << 20;

/// The mirror. All-zero is valid and empty.
pub struct Mirror {
    protector: Protector,
    /// Undo log of the mirror, for the checkpoints before the latest.
    pub undo: PageUndoLog,
    regions: [Region; REGIONS],
    count: usize,
    /// Regions that are being prepared.
    next_regions: [Region; REGIONS],
    /// Mapped parts of the mirror, by the program's addresses, in order.
    mirrored: [Region; REGIONS],
    mirrors: usize,
    /// True if pages may be clean that the mirror does not equal.
    is_out_of_step: bool,
}

impl Mirror {
    /// Empties the mirror of a range that was unmapped, emptied, or mapped anew.
    pub fn note_discarded(&mut self, at: u64, len: u64) {
        let end = at.saturating_add(len);
        for mirrored in &self.mirrored[..self.mirrors] {
            let (start, end) = (mirrored.start.max(at & !(PAGE - 1)), mirrored.end.min(end));
            if start < end {
                zero_mirror(start, end);
            }
        }
    }

    /// Marks tracking as unreliable: pages have moved, with or without their tracking state.
    pub fn note_moved(&mut self) {
        self.is_out_of_step = true;
    }

    /// Resets the mirror in a forked child, which has none.
    pub fn in_child(&mut self) {
        // SAFETY: all-zero is valid.
        self.protector = unsafe { core::mem::zeroed() };
        (self.count, self.mirrors) = (0, 0);
        self.undo.in_child();
    }

    /// Returns the region that holds `at`.
    pub fn region(&self, at: u64) -> Option<Region> {
        let regions = &self.regions[..self.count];
        let n = regions.partition_point(|region| region.end <= at);
        regions.get(n).copied().filter(|region| region.holds(at))
    }

    /// Disables the mirror: the program uses userfaultfd(2) itself, and memory can have only one.
    pub fn disable(&mut self) {
        self.protector.disable(session::get());
    }

    /// Copies dirty pages into the mirror. No other thread writes meanwhile. If there `is_another`,
    /// earlier checkpoint, the mirror's old contents are logged first. ENOSPC: no room in the log,
    /// so there is no new checkpoint; earlier ones stay.
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
            // SAFETY: these pages exist and are readable, as they are writable; only the agent uses
            // the mirror.
            unsafe { copy(mirror_of(found.start), found.start, found.end - found.start) };
        })?;
        kept?;
        self.is_out_of_step = false;
        Ok(())
    }

    /// Restores memory as of the checkpoint at which the log ended at `mark`. No other thread
    /// writes meanwhile. All that was mapped then is still mapped.
    pub fn restore(&mut self, mark: u64) -> sys::Result<()> {
        self.undo.unwind(mark, |at, was| {
            // SAFETY: a page of the mirror; the program's page is dirty from here on and restored
            // below.
            unsafe { copy(mirror_of(at), was, PAGE) };
            touch_page(at);
        });
        let put = |_: &mut PageUndoLog, found: &PageRange| {
            // SAFETY: these pages exist and are writable; the program must find its old contents
            // there.
            unsafe { copy(found.start, mirror_of(found.start), found.end - found.start) };
        };
        // Dirty pages can be unknown: the supervisor, which has the descriptor, has ended; this
        // thread may not scan; or it has no free descriptor to scan with. The mirror then has the
        // whole memory.
        if self.each_page(self.pages_to_copy(), Protect::After, put).is_err() {
            self.is_out_of_step = true;
            if self.each_page(PageFilter::All, Protect::Never, put).is_err() {
                self.restore_by_comparison();
            }
        }
        Ok(())
    }

    /// Compares all memory with the mirror and restores what differs.
    fn restore_by_comparison(&self) {
        let mut now = [0u8; PAGE as usize];
        for region in &self.regions[..self.count] {
            for at in (region.start..region.end).step_by(PAGE as usize) {
                // Past the end of a file no page can be read.
                if sys::copy_bytes(at, &mut now).is_err() {
                    continue;
                }
                // SAFETY: a page of the mirror, which only the agent uses.
                let was = unsafe { &*(mirror_of(at) as *const [u8; PAGE as usize]) };
                if now != *was {
                    // SAFETY: the page exists and is writable; the program must find its old
                    // contents there.
                    unsafe { copy(at, mirror_of(at), PAGE) };
                }
            }
        }
    }

    /// Selects the pages that may differ from the mirror.
    fn pages_to_copy(&self) -> PageFilter {
        if self.is_out_of_step { PageFilter::All } else { PageFilter::Written }
    }

    /// Calls `each` with selected pages that exist.
    fn each_page(
        &mut self,
        which: PageFilter,
        protect: Protect,
        mut each: impl FnMut(&mut PageUndoLog, &PageRange),
    ) -> sys::Result<()> {
        let pagemap = Pagemap::open()?;
        let Mirror { regions, count, undo, .. } = self;
        let mut pieces =
            regions[..*count].iter().map(|region| AddressRange::new(region.start, region.end));
        let mut each = |found: &PageRange| each(undo, found);
        let result = pieces.try_for_each(|piece| pagemap.each(piece, which, protect, &mut each));
        // Pages that were protected before the error have not been processed.
        self.is_out_of_step |= result.is_err();
        pagemap.close().and(result)
    }

    /// Reads the mappings and follows new ones. While the process speculates, none of these is a
    /// file. After an error, the old regions are still followed.
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
        let pieces = self.next_regions[..count]
            .iter()
            .map(|region| AddressRange::new(region.start, region.end));
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

    /// Maps the parts of a region's mirror that are not mapped yet.
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
                    // SAFETY: replaces no mapping.
                    unsafe { sys::map_private(place, end - at)? };
                    // SAFETY: memory of the agent, which no child needs.
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
        // A region that grows is mostly adjacent to its old part.
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

/// Makes the page dirty again.
fn touch_page(page: u64) {
    let word = page as *mut u64;
    // SAFETY: the page exists and is writable; no other thread runs; the contents stay the same.
    unsafe { word.write_volatile(word.read_volatile()) };
}

fn mirror_of(at: u64) -> u64 {
    at ^ MIRROR
}

fn is_mirror(mirrored: &[Region], at: u64) -> bool {
    mirrored.iter().any(|region| region.holds(mirror_of(at)))
}

/// Fills the mirror of these pages with zeros.
fn zero_mirror(start: u64, end: u64) {
    // SAFETY: only the agent uses this memory; only its contents are lost.
    let _ = unsafe { sys::advise(mirror_of(start), end - start, k::MADV_DONTNEED) };
}

/// # Safety
/// As for memcpy(3).
unsafe fn copy(to: u64, from: u64, len: u64) {
    // SAFETY: passed on to the caller.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len as usize) };
}

/// Copies the region's contents from memory or its file to the mirror, up to the end of the file.
fn copy_of_file(region: Region) {
    let mut at = region.start;
    while at < region.end {
        // SAFETY: one page of memory that only the agent uses.
        let page =
            unsafe { core::slice::from_raw_parts_mut(mirror_of(at) as *mut u8, PAGE as usize) };
        if sys::copy_bytes(at, page).is_err() {
            return;
        }
        at += PAGE;
    }
}
