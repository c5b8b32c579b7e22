//! Dirty pages of the program's memory, as tracked by the kernel (ioctl_pagemap_scan(2)).
//!
//! A scan visits each page that exists. A scan for written pages alone takes 0.7 ns a page; one
//! that also returns the page's kind takes 2 ns. The former also lists pages that do not exist. So
//! a large range is scanned first for places with written pages, and then these places with their
//! kinds.

use linux_raw_sys::general as k;

use super::userfault_fd;
use crate::plane::AddressRange;
use crate::sys::{self, AT_FDCWD, Fd, PAGE};

/// Memory size from which a range is scanned in two passes: 2 MiB.
const COARSE: u64 = 512 * PAGE;
/// Largest gap between written pages that one detailed scan covers: another call takes as long as
/// 256 pages.
const NEAR: u64 = 256 * PAGE;
/// Bytes per written page below which a single detailed scan is faster.
const DENSE: u64 = 384 * PAGE;
/// Multiple of a dense piece's size that is scanned in one pass after it.
const AHEAD: u64 = 8;
/// Ranges that one scan lists.
const AT_ONCE: usize = 64;

/// Range of pages of the same categories: `struct page_region` (linux/fs.h).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PageRange {
    pub start: u64,
    pub end: u64,
    categories: u64,
}

const NOTHING: PageRange = PageRange { start: 0, end: 0, categories: 0 };

impl PageRange {
    /// True if these pages are the kernel's zero page.
    pub fn is_zero(&self) -> bool {
        self.categories & ZERO != 0
    }
}

const WRITTEN: u64 = 1 << 1;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;

/// Selection among the pages that exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PageFilter {
    /// Pages written since they were protected. EPERM: stores are not tracked any more.
    Written,
    All,
}

/// Time at which listed pages become clean again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protect {
    /// Before they are processed: a page that is written meanwhile is listed again.
    Before,
    /// After they are processed, so that processing causes no faults. Stores of other threads
    /// meanwhile would be missed.
    After,
    Never,
}

/// Descriptor of /proc/self/pagemap.
#[derive(Clone, Copy)]
pub struct Pagemap(pub Fd);

impl Pagemap {
    /// Opens the map of the process's pages (proc_pid_pagemap(5)).
    pub fn open() -> sys::Result<Pagemap> {
        let path = c"/proc/thread-self/pagemap".as_ptr() as u64;
        sys::openat2(AT_FDCWD, path, k::O_RDONLY | k::O_CLOEXEC, 0, 0).map(Pagemap)
    }

    pub fn close(self) -> sys::Result<()> {
        sys::close(self.0).map(drop)
    }

    /// Calls `each` with the selected pages of a range, in order. After an error, some pages may be
    /// clean that were not listed.
    pub fn each(
        self,
        range: AddressRange,
        which: PageFilter,
        protect: Protect,
        each: &mut impl FnMut(&PageRange),
    ) -> sys::Result<()> {
        if which == PageFilter::All || range.bytes() < COARSE {
            return self.list(range, which, protect, each);
        }
        let mut found = [NOTHING; AT_ONCE];
        let AddressRange { start: mut at, end } = range;
        while at < end {
            let asked = (WRITTEN, 0, WRITTEN);
            let left = AddressRange::new(at, end);
            let (count, walked) = self.scan(left, userfault_fd::IF_PROTECTED, asked, &mut found)?;
            let mut near = AddressRange::new(at, at);
            for found in &found[..count] {
                if found.start - near.end > NEAR {
                    self.list(near, which, protect, each)?;
                    near.start = found.start;
                }
                near.end = found.end;
            }
            self.list(near, which, protect, each)?;
            let is_dense = count == AT_ONCE && walked - at < AT_ONCE as u64 * DENSE;
            let ahead = if is_dense { end.min(walked + AHEAD * (walked - at)) } else { walked };
            self.list(AddressRange::new(walked, ahead), which, protect, each)?;
            at = ahead;
        }
        Ok(())
    }

    fn list(
        self,
        AddressRange { start, end }: AddressRange,
        which: PageFilter,
        protect: Protect,
        each: &mut impl FnMut(&PageRange),
    ) -> sys::Result<()> {
        let (flags, wanted) = match which {
            PageFilter::Written => (userfault_fd::IF_PROTECTED, WRITTEN),
            PageFilter::All => (0, 0),
        };
        let asked = (wanted, PRESENT | SWAPPED, ZERO);
        let protecting = userfault_fd::IF_PROTECTED | userfault_fd::PROTECT;
        let first = if protect == Protect::Before { protecting } else { flags };
        let mut found = [NOTHING; AT_ONCE];
        let mut at = start;
        while at < end {
            let left = AddressRange::new(at, end);
            let (count, walked) = self.scan(left, first, asked, &mut found)?;
            found[..count].iter().for_each(&mut *each);
            if protect == Protect::After && count != 0 {
                // This scan lists the same pages again: the buffer has room for all.
                let listed = AddressRange::new(found[0].start, walked);
                self.scan(listed, protecting, asked, &mut found)?;
            }
            at = walked;
        }
        Ok(())
    }

    /// Scans for pages with all categories `all` and one of `any`, and returns the categories
    /// `told`. Returns the number of ranges found, and the address that the scan has reached.
    fn scan(
        self,
        AddressRange { start, end }: AddressRange,
        flags: u64,
        (all, any, told): (u64, u64, u64),
        found: &mut [PageRange; AT_ONCE],
    ) -> sys::Result<(usize, u64)> {
        /// Index of the argument in which the kernel returns the end of the scan.
        const WALKED: usize = 4;
        let (room, list) = (AT_ONCE as u64, found.as_mut_ptr() as u64);
        let bytes = 8 * userfault_fd::SCAN_WORDS as u64;
        let mut scan: [u64; userfault_fd::SCAN_WORDS] =
            [bytes, flags, start, end, 0, list, room, 0, 0, all, any, told];
        let count = userfault_fd::ioctl(self.0, userfault_fd::SCAN, scan.as_mut_ptr() as u64)?;
        Ok((count as usize, scan[WALKED]))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    /// Random writes of any density: exactly the written pages are listed, and once if they are
    /// protected.
    #[test]
    fn scans_list_exactly_the_written_pages() {
        const PAGES: u64 = 16 << 10;
        // SAFETY: memory of this test's own.
        let at = unsafe { sys::map_private(sys::Place::Anywhere, PAGES * PAGE) }.unwrap();
        let Ok(protector) = userfault_fd::new() else {
            std::eprintln!("skipped: no userfaultfd");
            return;
        };
        userfault_fd::register(protector, at, at + PAGES * PAGE).unwrap();
        let pagemap = Pagemap::open().unwrap();
        let state = &mut 88_172_645_463_325_252;
        let listed = |which, protect| {
            let mut listed = Vec::new();
            let each = &mut |found: &PageRange| {
                listed.extend((found.start..found.end).step_by(PAGE as usize));
                if protect == Protect::After {
                    // SAFETY: as above.
                    unsafe { ((found.end - 1) as *mut u8).write_volatile(2) };
                }
            };
            pagemap.each(AddressRange::of_bytes(at, PAGES * PAGE), which, protect, each).unwrap();
            assert!(listed.is_sorted_by(|one, next| one < next));
            listed.into_iter().collect::<BTreeSet<_>>()
        };
        let mut there = BTreeSet::new();
        for round in 0..60 {
            let mut written = BTreeSet::new();
            let count = [0, 1, 10, 1000, 12_000][round % 5];
            // In the upper half, or everywhere.
            let first = random(state) % 2 * (PAGES / 2);
            for _ in 0..count {
                let page = at + (first + random(state) % (PAGES - first)) * PAGE;
                // SAFETY: as above.
                unsafe { (page as *mut u8).write_volatile(1) };
                written.insert(page);
            }
            there.extend(&written);
            assert_eq!(listed(PageFilter::Written, Protect::Never), written);
            let protect = [Protect::Before, Protect::After][random(state) as usize % 2];
            assert_eq!(listed(PageFilter::Written, protect), written);
            assert!(listed(PageFilter::Written, Protect::Before).is_empty());
            assert_eq!(listed(PageFilter::All, Protect::Never), there);
        }
        sys::close(protector).unwrap();
        let page = AddressRange::of_bytes(at, PAGE);
        let gone = pagemap.each(page, PageFilter::Written, Protect::Before, &mut |_| {});
        assert_eq!(gone, Err(sys::Errno(sys::EPERM)));
        pagemap.close().unwrap();
    }
}
