//! Which parts of mapped files the program has used, told for the memory of earlier runs.
//!
//! A mapping is told when it is made, whole (`record`): its page faults are not seen. What was used of it the kernel
//! knows as long as it is there: the pages that this process has (`/proc/self/pagemap`, proc_pid_pagemap(5)). So it is
//! asked before they are gone, at the end of the program and before a large mapping is taken away.
//!
//! Invariant: no call takes longer for it than [`PATIENCE_US`], and only where accesses are recorded and the process
//! has joined.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::config::tell;
use runahead_abi::record::{RECORDED, TOUCHED};
use runahead_abi::{HintKind, Identity, PATH_MAX};

use super::Target;
use crate::arch::ticks;
use crate::hints::{self, Hint};
use crate::maps;
use crate::paths;
use crate::plane::{self, quiet};
use crate::session::Session;
use crate::sys::{self, AT_FDCWD, Fd};

/// How long looking at mappings may take at a time, in microseconds.
const PATIENCE_US: u64 = 4_000;
/// Between two looks whether there is room for a record, in microseconds.
const NAP_US: u64 = 50;
/// Mappings of at least so many bytes are looked at before they are taken away.
const LARGE_BYTES: u64 = 1 << 20;
/// Large mappings that are remembered.
const LARGE: usize = 16;
const PAGE: u64 = 4096;
/// Pages that are told as one.
const GRANULE: u64 = 4;
/// Longest range of one record, in pages.
const LONGEST: u64 = (8 << 20) / PAGE;
/// Entries that are read at a time.
const ENTRIES: usize = 512;

/// The large mappings of files that were made last.
pub(super) struct Mapped {
    all: [Large; LARGE],
    next: AtomicU64,
}

/// A large mapping of a file; threads may see parts of two, and tell of pages that nobody used.
struct Large {
    /// First address; 0: none.
    start: AtomicU64,
    /// Where in its file the mapping begins.
    offset: AtomicU64,
    /// [`Identity`] of the file.
    file: AtomicU64,
}

impl Large {
    const fn none() -> Self {
        let [start, offset, file] = [const { AtomicU64::new(0) }; 3];
        Large { start, offset, file }
    }
}

impl Mapped {
    pub(super) const fn new() -> Self {
        Mapped { all: [const { Large::none() }; LARGE], next: AtomicU64::new(0) }
    }

    /// `length` bytes of `file` from `offset` were mapped at `at`.
    pub(super) fn note(&self, at: u64, length: u64, file: Identity, offset: u64) {
        if length >= LARGE_BYTES {
            let place = &self.all[self.next.fetch_add(1, Relaxed) as usize % LARGE];
            place.offset.store(offset, Relaxed);
            place.file.store(file.raw(), Relaxed);
            place.start.store(at, Relaxed);
        }
    }

    /// Of the one that begins at `at`, its file and where that begins; it is forgotten.
    fn take(&self, at: u64) -> Option<(Identity, u64)> {
        let found = self.all.iter().find(|large| large.start.load(Relaxed) == at)?;
        found.start.store(0, Relaxed);
        Some((Identity::from_raw(found.file.load(Relaxed)), found.offset.load(Relaxed)))
    }
}

impl Target {
    /// The program, or what it was, is about to end.
    pub(super) fn tell_all_mapped(&self, session: &'static Session) {
        if !records(session) {
            return;
        }
        let mask = quiet::begin();
        if let Ok(pages) = Pages::of_this_process() {
            let until = ticks() + PATIENCE_US * session.config.ticks_per_us;
            self.sending.try_with(|()| {
                let _ = maps::each::<PATH_MAX>(|mapping, name| {
                    if mapping.inode == 0 || !paths::is_lasting(name) {
                        return Ok(());
                    }
                    let file = (Identity::ROOT.join(name), name);
                    let range = (mapping.start, mapping.end, mapping.offset);
                    tell_used(session, &pages, file, range, until)
                });
            });
            pages.close();
        }
        quiet::end(mask);
    }

    /// What is mapped at `at` is about to be taken away.
    pub(super) fn tell_unmapped(&self, session: &'static Session, at: u64, len: u64) {
        if at == 0 || !records(session) {
            return;
        }
        let Some((file, offset)) = self.mapped.take(at) else { return };
        let mask = quiet::begin();
        // Another thread could notice a descriptor.
        let pages = match plane::has_threads() {
            true => Ok(Pages::Cached),
            false => Pages::of_this_process(),
        };
        if let Ok(pages) = pages {
            let until = ticks() + PATIENCE_US * session.config.ticks_per_us;
            // The supervisor knows it by its identity.
            let (file, range) = ((file, &b"/"[..]), (at, at.saturating_add(len), offset));
            self.sending.try_with(|()| _ = tell_used(session, &pages, file, range, until));
            pages.close();
        }
        quiet::end(mask);
    }
}

/// Accesses are recorded, and can be told. (Faults make no device slow: nobody sees them.)
fn records(session: &'static Session) -> bool {
    session.is_joined() && !matches!(session.config.tell, tell::NOTHING | tell::SOME)
}

/// Who knows which pages of mappings there are.
enum Pages {
    /// Pages that this process has: `/proc/self/pagemap`.
    Own(Fd),
    /// Pages that are in memory, and that somebody may have read (mincore(2)). Of files that the process may not
    /// write, all are said to be.
    Cached,
}

impl Pages {
    fn of_this_process() -> sys::Result<Self> {
        let path = c"/proc/self/pagemap".as_ptr() as u64;
        sys::openat2(AT_FDCWD, path, k::O_CLOEXEC, 0, 0).map(Pages::Own)
    }

    /// Calls `each` with the numbers of those from page `first` to `end` that are there.
    fn each(
        &self,
        first: u64,
        end: u64,
        mut each: impl FnMut(u64) -> sys::Result<()>,
    ) -> sys::Result<()> {
        let mut buf = [0u8; 8 * ENTRIES];
        let mut at = first;
        while at < end {
            let most = (end - at).min(ENTRIES as u64) as usize;
            let (got, size) = match self {
                Pages::Own(map) => (sys::pread(*map, &mut buf[..8 * most], at * 8)? / 8, 8),
                Pages::Cached => (sys::mincore(at * PAGE, &mut buf[..most])?, 1),
            };
            if got == 0 {
                return Ok(());
            }
            for (entry, page) in buf[..got * size].chunks_exact(size).zip(at..) {
                // The mark is the last bit of an entry there, the first bit here.
                let there = match self {
                    Pages::Own(_) => entry[7] & 0x80 != 0,
                    Pages::Cached => entry[0] & 1 != 0,
                };
                if there {
                    each(page)?;
                }
            }
            at += got as u64;
        }
        Ok(())
    }

    fn close(self) {
        if let Pages::Own(map) = self {
            let _ = sys::close(map);
        }
    }
}

/// Tells which parts of a mapping are there: of that `file` (by identity and name), from the first address to the
/// one behind the last, which begins at an offset.
fn tell_used(
    session: &'static Session,
    pages: &Pages,
    (object, path): (Identity, &[u8]),
    (start, end, offset): (u64, u64, u64),
    until: u64,
) -> sys::Result<()> {
    let mut ranges = Ranges::default();
    let tell = |(first, pages): (u64, u64)| {
        let (offset, length) = (first * PAGE, pages * PAGE);
        let flags = RECORDED | TOUCHED;
        let hint = Hint { kind: HintKind::Data, object, offset, length, flags, path };
        send(session, &hint, until)
    };
    let (first, end) = (start / PAGE, end.div_ceil(PAGE));
    pages.each(first, end, |page| match ranges.add(offset / PAGE + page - first) {
        Some(range) => tell(range),
        None => Ok(()),
    })?;
    ranges.end().map_or(Ok(()), tell)
}

/// Puts a record on its way, and waits for room until `until`; then an error ends it all.
fn send(session: &'static Session, hint: &Hint<'_>, until: u64) -> sys::Result<()> {
    let shared = session.shared();
    let position = shared.control.accesses.load(Relaxed);
    while !hints::send(shared, 0, position, hint) {
        if ticks() > until {
            shared.control.untold.fetch_add(1, Relaxed);
            return Err(sys::Errno(sys::EAGAIN));
        }
        sys::sleep_us(NAP_US);
    }
    Ok(())
}

/// Pages, ascending, as ranges of whole granules: first page and how many.
#[derive(Default)]
struct Ranges {
    now: Option<(u64, u64)>,
}

impl Ranges {
    /// One more page; the range before it, if that is over.
    fn add(&mut self, page: u64) -> Option<(u64, u64)> {
        let first = page / GRANULE * GRANULE;
        match &mut self.now {
            Some((start, pages)) if first < *start + *pages => None,
            Some((start, pages)) if first == *start + *pages && *pages < LONGEST => {
                *pages += GRANULE;
                None
            }
            now => now.replace((first, GRANULE)),
        }
    }

    fn end(self) -> Option<(u64, u64)> {
        self.now
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::sys::nr;
    use std::vec::Vec;

    #[test]
    fn pages_become_ranges_of_granules() {
        let mut ranges = Ranges::default();
        let mut all: Vec<_> =
            [1, 2, 3, 5, 11, 16, 17, 40].into_iter().filter_map(|page| ranges.add(page)).collect();
        all.extend(ranges.end());
        assert_eq!(all, [(0, 12), (16, 4), (40, 4)]);
        let mut ranges = Ranges::default();
        let mut all: Vec<_> = (0..3 * LONGEST).filter_map(|page| ranges.add(page)).collect();
        all.extend(ranges.end());
        assert_eq!(all, [(0, LONGEST), (LONGEST, LONGEST), (2 * LONGEST, LONGEST)]);
    }

    #[test]
    fn large_mappings_are_remembered_once() {
        let (mapped, file) = (Mapped::new(), Identity::ROOT.join(b"/x"));
        mapped.note(0x1000, LARGE_BYTES - 1, file, 0);
        mapped.note(0x2000, LARGE_BYTES, file, 7);
        assert_eq!(mapped.take(0x1000), None);
        assert_eq!(mapped.take(0x2000), Some((file, 7)));
        assert_eq!(mapped.take(0x2000), None);
        (1..100).for_each(|n| mapped.note(n << 30, LARGE_BYTES, file, 0));
        assert_eq!((1..100).filter(|n| mapped.take(n << 30).is_some()).count(), LARGE);
        mapped.note(99 << 30, LARGE_BYTES, file, 0);
        assert!(mapped.take(99 << 30).is_some(), "the newest are kept");
    }

    /// Of a file that this process owns both sources say the same of what it has just used.
    #[test]
    fn pages_that_are_there_are_told_from_those_that_are_not() {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        // SAFETY: a fresh mapping of a file, which nobody else knows.
        let at =
            unsafe { sys::raw(nr::MMAP, [0, 64 * PAGE, 1, 2, file.as_raw_fd() as u64, 0]) as u64 };
        // SAFETY: within it.
        let _ = unsafe { core::ptr::read_volatile((at + 40 * PAGE) as *const u8) };
        let own = Pages::of_this_process().expect("proc is mounted");
        for pages in [own, Pages::Cached] {
            let mut found = Vec::new();
            pages
                .each(at / PAGE, at / PAGE + 64, |page| {
                    found.push(page - at / PAGE);
                    Ok(())
                })
                .expect("told");
            assert!(found.contains(&40) && found.is_sorted() && found.len() <= 64, "{found:?}");
            pages.close();
        }
        // SAFETY: the mapping above.
        let _ = unsafe { sys::unmap(at, 64 * PAGE) };
    }
}
