//! Which pages of the program's memory were written, as the kernel has noted it (ioctl_pagemap_scan(2)).
//!
//! A scan looks at each page that is there. One that asks for nothing but that a page was written takes 0.7 ns for each, one that asks what kind of
//! page it is 2 ns; and the former also lists pages that are not there. So where there is much memory the former finds out where something
//! was written, and the latter looks at those places.

use linux_raw_sys::general as k;

use super::userfault_fd;
use crate::sys::{self, AT_FDCWD, Fd};

const PAGE: u64 = 4096;
/// From so much memory on it is looked at twice.
const COARSE: u64 = 512 * PAGE;
/// Written pages that are so near to each other are looked at with what lies between: another call takes as long as so many pages.
const NEAR: u64 = 256 * PAGE;
/// With one written page in so many, to look once is faster.
const DENSE: u64 = 384 * PAGE;
/// Where they are that dense, so many times the memory behind them is only looked at once.
const AHEAD: u64 = 8;
/// Pieces of memory that are listed at once.
const AT_ONCE: usize = 64;

/// Pages that a scan lists, of the same categories: `struct page_region` (linux/fs.h).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PageRange {
    pub start: u64,
    pub end: u64,
    categories: u64,
}

const NOTHING: PageRange = PageRange { start: 0, end: 0, categories: 0 };

impl PageRange {
    /// These pages are the kernel's page of zeros.
    pub fn is_zero(&self) -> bool {
        self.categories & ZERO != 0
    }
}

const WRITTEN: u64 = 1 << 1;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;

/// Of the pages that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PageFilter {
    /// Those that were written since they were protected. EPERM: nobody notes stores any more.
    Written,
    All,
}

/// When pages that are listed become such as were not written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protect {
    /// Before anything is done with them: whoever writes to one then has it listed again.
    Before,
    /// After that, so that nobody who writes to them faults. Whoever else wrote to one meanwhile would be missed.
    After,
    Never,
}

/// What lists them.
#[derive(Clone, Copy)]
pub struct Pagemap(pub Fd);

impl Pagemap {
    /// What is mapped, and what was written of it (proc_pid_pagemap(5)).
    pub fn open() -> sys::Result<Pagemap> {
        let path = c"/proc/self/pagemap".as_ptr() as u64;
        sys::openat2(AT_FDCWD, path, k::O_RDONLY | k::O_CLOEXEC, 0, 0).map(Pagemap)
    }

    pub fn close(self) -> sys::Result<()> {
        sys::close(self.0).map(drop)
    }

    /// Calls `each` with pages from `start` to `end`, in their order. If it fails, some may count as not written that were not listed.
    pub fn each(
        self,
        (start, end): (u64, u64),
        which: PageFilter,
        protect: Protect,
        each: &mut impl FnMut(&PageRange),
    ) -> sys::Result<()> {
        if which == PageFilter::All || end - start < COARSE {
            return self.list((start, end), which, protect, each);
        }
        let mut found = [NOTHING; AT_ONCE];
        let mut at = start;
        while at < end {
            let asked = (WRITTEN, 0, WRITTEN);
            let (count, walked) =
                self.scan((at, end), userfault_fd::IF_PROTECTED, asked, &mut found)?;
            let mut near = (at, at);
            for found in &found[..count] {
                if found.start - near.1 > NEAR {
                    self.list(near, which, protect, each)?;
                    near.0 = found.start;
                }
                near.1 = found.end;
            }
            self.list(near, which, protect, each)?;
            let is_dense = count == AT_ONCE && walked - at < AT_ONCE as u64 * DENSE;
            let ahead = if is_dense { end.min(walked + AHEAD * (walked - at)) } else { walked };
            self.list((walked, ahead), which, protect, each)?;
            at = ahead;
        }
        Ok(())
    }

    fn list(
        self,
        (start, end): (u64, u64),
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
            let (count, walked) = self.scan((at, end), first, asked, &mut found)?;
            found[..count].iter().for_each(&mut *each);
            if protect == Protect::After && count != 0 {
                // (It lists the same pages again: it has room for all.)
                self.scan((found[0].start, walked), protecting, asked, &mut found)?;
            }
            at = walked;
        }
        Ok(())
    }

    /// Looks for pages of the categories `asked` for: all of these, any of those, and which are to be told. How many pieces of
    /// memory were found, and where that has come to.
    fn scan(
        self,
        (start, end): (u64, u64),
        flags: u64,
        (all, any, told): (u64, u64, u64),
        found: &mut [PageRange; AT_ONCE],
    ) -> sys::Result<(usize, u64)> {
        /// Of the arguments: where the scan has come to.
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

    /// What is listed is what was written, and is there, whatever lies how dense; and once, if it is protected.
    #[test]
    fn pages_are_listed_that_were_written_and_are_there() {
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
            pagemap.each((at, at + PAGES * PAGE), which, protect, each).unwrap();
            assert!(listed.is_sorted_by(|one, next| one < next));
            listed.into_iter().collect::<BTreeSet<_>>()
        };
        let mut there = BTreeSet::new();
        for round in 0..60 {
            let mut written = BTreeSet::new();
            let count = [0, 1, 10, 1000, 12_000][round % 5];
            // From half of them on, or all over.
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
        let gone = pagemap.each((at, at + PAGE), PageFilter::Written, Protect::Before, &mut |_| {});
        assert_eq!(gone, Err(sys::Errno(sys::EPERM)));
        pagemap.close().unwrap();
    }
}
