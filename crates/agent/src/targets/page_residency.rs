//! Sources that know which pages of mappings are present.
//!
//! For this process's own pages the kernel has `/proc/self/pagemap` (proc_pid_pagemap(5)): since
//! Linux 6.7 PAGEMAP_SCAN lists the present ones; before, there is an entry for each page. Without
//! a descriptor, mincore(2) tells which pages are in memory.

use core::ops::Range;

use linux_raw_sys::general as k;

use crate::plane::AddressRange;
pub(super) use crate::sys::PAGE;
use crate::sys::{self, AT_FDCWD, Fd};

/// Entries per read.
const ENTRIES_PER_READ: usize = 512;
/// Runs of pages per PAGEMAP_SCAN.
const RUNS_PER_SCAN: usize = 128;

/// Source of the residency of pages.
pub(super) enum PageSource {
    /// Pages that are mapped in this process.
    Own(Fd),
    /// Pages that are in the page cache, whichever process has read them. For files that the
    /// process may not write, all count as present.
    Cached,
}

impl PageSource {
    pub(super) fn of_this_process() -> sys::Result<Self> {
        let path = c"/proc/thread-self/pagemap".as_ptr() as u64;
        sys::openat2(AT_FDCWD, path, k::O_CLOEXEC, 0, 0).map(PageSource::Own)
    }

    /// Calls `each` with the runs of present pages among `pages`, which are page numbers,
    /// ascending. Fails with EAGAIN once this thread has used processor time `until_ns`.
    pub(super) fn each(
        &self,
        pages: Range<u64>,
        until_ns: u64,
        mut each: impl FnMut(Range<u64>) -> sys::Result<()>,
    ) -> sys::Result<()> {
        let PageSource::Own(map) = self else { return self.each_entry(pages, until_ns, each) };
        let mut runs = [sys::PageRegion::default(); RUNS_PER_SCAN];
        let Range { start: mut at, end } = pages;
        while at < end {
            check_deadline(until_ns)?;
            let left = AddressRange::new(at * PAGE, end * PAGE);
            let (got, up_to) = match sys::scan_pages(*map, left, &mut runs) {
                Ok(scanned) => scanned,
                Err(_) => return self.each_entry(at..end, until_ns, each),
            };
            for run in &runs[..got] {
                each(run.start / PAGE..run.end / PAGE)?;
            }
            let before = core::mem::replace(&mut at, up_to / PAGE);
            if at <= before {
                break;
            }
        }
        Ok(())
    }

    fn each_entry(
        &self,
        pages: Range<u64>,
        until_ns: u64,
        mut each: impl FnMut(Range<u64>) -> sys::Result<()>,
    ) -> sys::Result<()> {
        let mut buf = [0u8; 8 * ENTRIES_PER_READ];
        let Range { start: mut at, end } = pages;
        while at < end {
            check_deadline(until_ns)?;
            let most = (end - at).min(ENTRIES_PER_READ as u64) as usize;
            let (got, size) = match self {
                PageSource::Own(map) => (sys::pread(*map, &mut buf[..8 * most], at * 8)? / 8, 8),
                PageSource::Cached => (sys::mincore(at * PAGE, &mut buf[..most])?, 1),
            };
            if got == 0 {
                return Ok(());
            }
            for (entry, page) in buf[..got * size].chunks_exact(size).zip(at..) {
                // The mark is the highest bit of a pagemap entry, the lowest of a mincore byte.
                let there = match self {
                    PageSource::Own(_) => entry[7] & 0x80 != 0,
                    PageSource::Cached => entry[0] & 1 != 0,
                };
                if there {
                    each(page..page + 1)?;
                }
            }
            at += got as u64;
        }
        Ok(())
    }

    pub(super) fn close(self) {
        if let PageSource::Own(map) = self {
            let _ = sys::close(map);
        }
    }
}

/// Fails with EAGAIN once this thread has used processor time `until_ns`. Time in which it does not
/// run is not the look's.
fn check_deadline(until_ns: u64) -> sys::Result<()> {
    if sys::thread_ns() > until_ns { Err(sys::Errno(sys::EAGAIN)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::sys::nr;
    use std::vec::Vec;

    const MAPPED: u64 = 64;
    const USED: u64 = 40;

    /// A mapping of this program's file of which one page has been used. Returns its first page.
    fn mapping() -> u64 {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        let args = [0, MAPPED * PAGE, 1, 2, file.as_raw_fd() as u64, 0];
        // SAFETY: a fresh mapping of a file, without other users.
        let at = unsafe { sys::raw(nr::MMAP, args) as u64 };
        // SAFETY: within it.
        let _ = unsafe { core::ptr::read_volatile((at + USED * PAGE) as *const u8) };
        at / PAGE
    }

    type Look = fn(&PageSource, Range<u64>, &mut dyn FnMut(Range<u64>)) -> sys::Result<()>;

    fn found(pages: &PageSource, first: u64, look: Look) -> Vec<u64> {
        let mut found = Vec::new();
        let range = first..first + MAPPED;
        let looked = look(pages, range, &mut |run| found.extend(run.map(|page| page - first)));
        looked.expect("told in time");
        assert!(found.contains(&USED) && found.is_sorted(), "{found:?}");
        assert!(found.len() <= MAPPED as usize, "{found:?}");
        found
    }

    /// Both sources report the used page of a file that this process owns.
    #[test]
    fn pages_that_are_there_are_told_from_those_that_are_not() {
        let first = mapping();
        let all: Look = |pages, range, each| {
            pages.each(range, u64::MAX, |run| {
                each(run);
                Ok(())
            })
        };
        let entries: Look = |pages, range, each| {
            pages.each_entry(range, u64::MAX, |run| {
                each(run);
                Ok(())
            })
        };
        let own = PageSource::of_this_process().expect("proc is mounted");
        assert_eq!(
            found(&own, first, all),
            found(&own, first, entries),
            "the kernel says it twice"
        );
        found(&PageSource::Cached, first, all);
        own.close();
        // SAFETY: the mapping above.
        let _ = unsafe { sys::unmap(first * PAGE, MAPPED * PAGE) };
    }

    #[test]
    fn a_wait_for_a_processor_is_no_part_of_a_scan() {
        const MOST_NS: u64 = 20_000_000;
        let until_ns = sys::thread_ns() + MOST_NS;
        sys::sleep_us(2 * MOST_NS / 1000);
        assert_eq!(check_deadline(until_ns), Ok(()));
    }

    #[test]
    fn a_scan_stops_at_its_deadline() {
        let first = mapping();
        let own = PageSource::of_this_process().expect("proc is mounted");
        for pages in [&own, &PageSource::Cached] {
            let late = pages.each(first..first + MAPPED, 0, |_| panic!("too late"));
            assert_eq!(late, Err(sys::Errno(sys::EAGAIN)));
        }
        own.close();
        // SAFETY: the mapping above.
        let _ = unsafe { sys::unmap(first * PAGE, MAPPED * PAGE) };
    }
}
