//! How a page is kept from being touched unseen.
//!
//! Memory that comes as it is touched has no access at first. At the first touch some of it around is made accessible, and
//! each of its pages gets a guard (`MADV_GUARD_INSTALL`, madvise(2), Linux 6.13), which is taken off as the page is brought: so
//! no mapping is split for a page. On older kernels each piece becomes accessible by itself, and a runner that
//! touches more than the kernel allows mappings (`vm.max_map_count`) ends there.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::lazy_regions::LazyRegion;
use crate::sys;

const ACCESS: u32 = k::PROT_READ | k::PROT_WRITE;

/// Whether the kernel knows guards. Found out once.
pub(super) fn are_supported() -> bool {
    const UNKNOWN: u32 = 0;
    static KNOWN: AtomicU32 = AtomicU32::new(UNKNOWN);
    if KNOWN.load(Relaxed) == UNKNOWN {
        // Of no pages. SAFETY: changes nothing.
        let has = unsafe { sys::advise(0, 0, k::MADV_GUARD_INSTALL) }.is_ok();
        KNOWN.store(1 + u32::from(has), Relaxed);
    }
    KNOWN.load(Relaxed) == 2
}

/// Makes `len` bytes from `at`, of which nothing has been touched, accessible, and guards each of their pages.
pub(super) fn guard(at: u64, len: u64) -> Option<()> {
    if !are_supported() {
        return Some(());
    }
    // SAFETY: memory of the program's that has no contents yet.
    unsafe {
        sys::protect(at, len, ACCESS).ok()?;
        sys::advise(at, len, k::MADV_GUARD_INSTALL).ok()?;
    }
    Some(())
}

/// As [`guard`], of the part of a region around `at` that is aligned to `len`.
pub(super) fn guard_extent(region: &LazyRegion, at: u64, len: u64) -> Option<()> {
    let start = at - at % len;
    let end = start.saturating_add(len).min(region.end);
    let start = start.max(region.at);
    guard(start, end - start)
}

/// The pages of `len` bytes from `at` can be touched from now on.
pub(super) fn unguard(at: u64, len: u64) -> Option<()> {
    // SAFETY: memory of the program's, which has contents from now on.
    let opened = unsafe {
        match are_supported() {
            true => sys::advise(at, len, k::MADV_GUARD_REMOVE),
            false => sys::protect(at, len, ACCESS),
        }
    };
    opened.ok().map(|_| ())
}
