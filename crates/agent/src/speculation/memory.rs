//! The program's private memory as it was at the checkpoint.
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

use super::protector::Protector;
use super::undo::Undo;
use super::written::{Found, Pagemap, Protect, Which};
use crate::maps;
use crate::session::{self, Session};
use crate::sys::{self, Errno, Place};

const PAGE: u64 = 4096;
/// The bit in which a page and its like in the mirror differ: far from where the kernel puts anything, below and above.
const MIRROR: u64 = 1 << 44;
/// Most pieces of memory that are followed.
const REGIONS: usize = 1024;
/// Most bytes of files in private, writable mappings, which are copied whole.
const FILES_MAX: u64 = 64 << 20;

/// A piece of the program's memory: private, and writable.
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    is_file: bool,
}

/// See the module's text. All-zero is valid, and knows nothing.
pub struct Memory {
    protector: Protector,
    regions: [Region; REGIONS],
    count: usize,
    /// What is to be followed, while that is prepared.
    next: [Region; REGIONS],
    /// What of the mirror is mapped, in the order of addresses of the program's.
    mirrored: [Region; REGIONS],
    mirrors: usize,
    /// Mappings are as they were when they were looked at.
    is_settled: bool,
    /// Pages may be protected of which the mirror has nothing.
    is_out_of_step: bool,
}

impl Memory {
    /// Mappings may change.
    pub fn unsettle(&mut self) {
        self.is_settled = false;
    }

    /// The heap ended at `above`, or ends at `end`: what lies between has gone, but for the page in which it still ends.
    pub fn heap_dropped(&mut self, end: u64, above: u64) {
        let end = end.next_multiple_of(PAGE);
        self.dropped(end, above.saturating_sub(end));
    }

    /// What lay there has gone.
    pub fn dropped(&mut self, at: u64, len: u64) {
        self.unsettle();
        let end = at.saturating_add(len);
        for mirrored in &self.mirrored[..self.mirrors] {
            let (start, end) = (mirrored.start.max(at & !(PAGE - 1)), mirrored.end.min(end));
            if start < end {
                empty(start, end);
            }
        }
    }

    /// Pages have moved, and what says that they were written may have or not.
    pub fn moved(&mut self) {
        self.unsettle();
        self.is_out_of_step = true;
    }

    /// In a forked child, which has no mirror.
    pub fn in_child(&mut self) {
        // SAFETY: all-zero is valid.
        self.protector = unsafe { core::mem::zeroed() };
        (self.count, self.mirrors) = (0, 0);
        self.unsettle();
    }

    /// Whether memory that the program can write is known to be there. (Stacks grow without a call.)
    pub fn covers(&self, at: u64) -> bool {
        self.regions[..self.count].iter().any(|region| (region.start..region.end).contains(&at))
    }

    /// Copies as many bytes as `to` has from the program's memory; EFAULT if they are not all there.
    pub fn read(&self, at: u64, to: &mut [u8]) -> sys::Result<()> {
        let regions = &self.regions[..self.count];
        let region = regions[..regions.partition_point(|region| region.start <= at)].last();
        let end = at.checked_add(to.len() as u64).ok_or(Errno(sys::EFAULT))?;
        // (Pages of a file can go without a call, where that is cut short.)
        let is_there = region.is_some_and(|region| end <= region.end && !region.is_file);
        if !is_there || !self.is_settled {
            return sys::copy_bytes(at, to);
        }
        // SAFETY: the program can write there, as nothing was unmapped since that was looked at, nor can be just now: that takes
        // who has this. Other threads may be writing there, and get what write(2) would have written.
        unsafe { core::ptr::copy(at as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// The program looks after its own memory in the same way, and there can be one of us.
    pub fn give_up(&mut self) {
        self.protector.give_up(session::get());
        self.unsettle();
    }

    /// Keeps what was written since the last time. Nobody else writes meanwhile. What the mirror held is noted in `undo`, for
    /// the checkpoints before this one. ENOSPC: there is no room for that, and no checkpoint; those before it stay.
    pub fn keep(&mut self, session: &Session, undo: Option<&mut Undo>) -> sys::Result<()> {
        if !self.is_settled {
            self.look(session, undo.is_some())?;
            self.is_settled = true;
        }
        let mut undo = undo;
        let mut kept = Ok(());
        self.each(self.which(), Protect::Before, |found| {
            if let Some(undo) = undo.as_mut()
                && kept.is_ok()
            {
                kept = undo.note(found.start, found.end, MIRROR);
            }
            if kept.is_err() {
                return (found.start..found.end).step_by(PAGE as usize).for_each(write_to);
            }
            if found.is_zero() {
                return empty(found.start, found.end);
            }
            // SAFETY: these pages are there, and can be read as they can be written; the mirror is ours alone.
            unsafe { copy(mirror_of(found.start), found.start, found.end - found.start) };
        })?;
        kept?;
        self.is_out_of_step = false;
        Ok(())
    }

    /// Puts back what was written since the checkpoint at which `undo` ended at `mark`. Nobody else writes meanwhile, and all that
    /// was mapped then is still mapped.
    pub fn put_back(&mut self, undo: &mut Undo, mark: u64) -> sys::Result<()> {
        undo.unwind(mark, |at, was| {
            // SAFETY: a page of the mirror; the program's was written since, and will be put back with all that was.
            unsafe { copy(mirror_of(at), was, PAGE) };
            write_to(at);
        });
        let put = |found: &Found| {
            // SAFETY: these pages are there, and can be written; the program is to find there what it had.
            unsafe { copy(found.start, mirror_of(found.start), found.end - found.start) };
        };
        // Where it cannot be known what was written (who kept the descriptor has gone, or this thread may not ask, or has no
        // descriptor left to ask by) the mirror has all that there was.
        if self.each(self.which(), Protect::After, put).is_err() {
            self.is_out_of_step = true;
            if self.each(Which::All, Protect::Never, put).is_err() {
                self.put_back_what_differs();
            }
        }
        Ok(())
    }

    /// Compares all memory with the mirror.
    fn put_back_what_differs(&self) {
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
    fn which(&self) -> Which {
        if self.is_out_of_step { Which::All } else { Which::Written }
    }

    /// Calls `each` with pages that are there.
    fn each(
        &mut self,
        which: Which,
        protect: Protect,
        mut each: impl FnMut(&Found),
    ) -> sys::Result<()> {
        let pagemap = Pagemap::open()?;
        let mut pieces = self.regions[..self.count].iter().map(|region| (region.start, region.end));
        let result = pieces.try_for_each(|piece| pagemap.each(piece, which, protect, &mut each));
        // What it had protected when it failed nobody has seen.
        self.is_out_of_step |= result.is_err();
        pagemap.close().and(result)
    }

    /// Looks at what is mapped, and begins to follow what is new. (Where the process speculates, that is no file.) If that cannot
    /// be done, what was followed still is.
    fn look(&mut self, session: &Session, speculates: bool) -> sys::Result<()> {
        let (mut count, mut files) = (0, 0);
        let Memory { next: regions, mirrored, mirrors, .. } = self;
        maps::each::<1>(|mapping, _| {
            let is_mirror = is_mirror(&mirrored[..*mirrors], mapping.start);
            let mut at = mapping.start;
            while mapping.writable && !is_mirror && at < mapping.end {
                // (Memory of ours may be one mapping with memory of the program's.)
                let ours = session.owned_from(at, mapping.end);
                let (end, next) = ours.unwrap_or((mapping.end, mapping.end));
                if at < end {
                    let region = Region { start: at, end, is_file: mapping.inode != 0 };
                    if mapping.shared {
                        // Others would see the stores.
                        return Err(Errno(sys::ETXTBSY));
                    }
                    files += if region.is_file { end - at } else { 0 };
                    *regions.get_mut(count).ok_or(Errno(sys::E2BIG))? = region;
                    count += 1;
                }
                at = next;
            }
            Ok(())
        })?;
        if files > FILES_MAX {
            return Err(Errno(sys::E2BIG));
        }
        let pieces = self.next[..count].iter().map(|region| (region.start, region.end));
        let pagemap = Pagemap::open()?;
        let protected = self.protector.protect(session, pagemap.0, pieces);
        pagemap.close().and(protected)?;
        for n in 0..count {
            let region = self.next[n];
            self.mirror(region)?;
            if region.is_file && !speculates {
                copy_of_file(region);
            }
        }
        self.regions[..count].copy_from_slice(&self.next[..count]);
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
                    self.note_mirrored(first, Region { start: at, end, is_file: false })?;
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
fn write_to(page: u64) {
    let word = page as *mut u64;
    // SAFETY: the page is there, and writable; nobody else is at work, and it holds afterwards what it held.
    unsafe { word.write_volatile(word.read_volatile()) };
}

fn mirror_of(at: u64) -> u64 {
    at ^ MIRROR
}

fn is_mirror(mirrored: &[Region], at: u64) -> bool {
    mirrored.iter().any(|region| (region.start..region.end).contains(&mirror_of(at)))
}

/// The mirror of these pages holds zeros.
fn empty(start: u64, end: u64) {
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
