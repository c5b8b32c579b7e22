//! Guard pages: make the first touch of each page fault.
//!
//! Lazy memory is inaccessible at first. The first touch makes some memory around it accessible and
//! puts a guard on each of its pages (`MADV_GUARD_INSTALL`, madvise(2), Linux 6.13). The guard is
//! removed when the page is brought, so no mapping is split for a page. On older kernels each piece
//! becomes accessible by itself. A runner that touches more pieces than the kernel allows mappings
//! (`vm.max_map_count`) ends there.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::lazy_regions::LazyRegion;
use crate::sys;

const ACCESS: u32 = k::PROT_READ | k::PROT_WRITE;

/// True if the kernel supports guard pages; determined once.
pub(super) fn are_supported() -> bool {
    const UNKNOWN: u32 = 0;
    static KNOWN: AtomicU32 = AtomicU32::new(UNKNOWN);
    if KNOWN.load(Relaxed) == UNKNOWN {
        // Applies to no pages. SAFETY: changes nothing.
        let has = unsafe { sys::advise(0, 0, k::MADV_GUARD_INSTALL) }.is_ok();
        KNOWN.store(1 + u32::from(has), Relaxed);
    }
    KNOWN.load(Relaxed) == 2
}

/// Makes `len` untouched bytes from `at` accessible, with a guard on each page.
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

/// Guards the part of a region around `at` that is aligned to `len`.
pub(super) fn guard_extent(region: &LazyRegion, at: u64, len: u64) -> Option<()> {
    let start = at - at % len;
    let end = start.saturating_add(len).min(region.end);
    let start = start.max(region.at);
    guard(start, end - start)
}

/// Removes the guards of `len` bytes from `at`.
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
