//! Memory that a shadow has not inherited from its target ([`uninherited_memory`]): it is fetched
//! when it is touched.
//!
//! A fetch copies an aligned unit of [`UNIT_BYTES`] from the target as it is at that time. It uses
//! a descriptor of the target's `/proc/self/mem`, which Landlock lets a shadow read as it was
//! opened before. Units that runs have touched and the target changes are fetched at the sync, in
//! one go, so that all runs of a sync see them as they were then
//! ([`runahead_estimators::touched_blocks`]).
//!
//! The kernel's own accesses do not run a fault handler, so the arguments of a call are touched
//! before it is answered ([`touch_arguments`]).

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use runahead_abi::swapped_memory::PAGE_BYTES;

use super::guard_pages;
use super::lazy_regions::{self, ContentSource, LazyRegion};
use super::mapped_pages::PageFault;
use super::swapped_pages::{self, SwappedPages};
use crate::sys::{self, Errno, Fd};
use crate::uninherited_memory::{self, TargetMemory};

/// Bytes that one fault brings.
pub(super) const UNIT_BYTES: u64 = 8 << 10;
/// Bytes that become accessible at a time.
const EXTENT_BYTES: u64 = 128 << 10;

/// True if there is memory of this kind.
static HAS_REGIONS: AtomicBool = AtomicBool::new(false);

/// Makes uninherited memory lazy. Called in a template, once.
pub(super) fn make_uninherited_lazy() -> sys::Result<()> {
    // SAFETY: as above.
    let ((list, from), regions) =
        unsafe { (uninherited_memory::of_shadow(), lazy_regions::of_this_shadow()) };
    for range in list {
        // SAFETY: nothing is mapped there, as the fork left it out. If something is, the shadow
        // ends.
        unsafe { sys::map_nothing(sys::Place::IfFree(range.start), range.bytes())? };
        let source = ContentSource::Target(from);
        regions.add(LazyRegion { at: range.start, end: range.end, source })?;
        HAS_REGIONS.store(true, Relaxed);
    }
    Ok(())
}

/// A fetched unit.
pub(super) struct FetchedUnit {
    pub at: u64,
    pub len: u64,
}

/// Result of fetching a page from the target after a fault.
pub(super) enum FetchResult {
    /// A unit from the target.
    Unit(FetchedUnit),
    /// Swapped-out pages that zeros stand in for, or less than a whole unit.
    Other,
}

/// Unit around `at`.
fn unit_around(region: &LazyRegion, at: u64) -> FetchedUnit {
    let start = (at - at % UNIT_BYTES).max(region.at);
    let end = (start - start % UNIT_BYTES + UNIT_BYTES).min(region.end);
    FetchedUnit { at: start, len: end - start }
}

/// Brings the unit around `at` from a target whose memory is all present.
pub(super) fn bring_unit(region: &LazyRegion, from: TargetMemory, at: u64) -> Option<FetchedUnit> {
    fetch(region, from.memory, unit_around(region, at))
}

/// Brings the unit around the fault from the target, if it is in memory there.
pub(super) fn bring_from_target(
    region: &LazyRegion,
    from: TargetMemory,
    fault: PageFault,
) -> Option<FetchResult> {
    let (at, unit) = (fault.at, unit_around(region, fault.at));
    let Some(pages) = from.pages else {
        return fetch(region, from.memory, unit).map(FetchResult::Unit);
    };
    swapped_pages::count_copied(unit.len)?;
    let page = at - at % PAGE_BYTES;
    let around = SwappedPages::around(pages, page);
    if around.contains(page) {
        if fault.is_first {
            guard_pages::guard_extent(region, at, EXTENT_BYTES)?;
        }
        guard_pages::unguard(page, PAGE_BYTES)?;
        swapped_pages::hint_swapped_page(page, fault.stack)?;
        return Some(FetchResult::Other);
    }
    let mut pages = (unit.at..unit.at + unit.len).step_by(PAGE_BYTES as usize);
    if !pages.any(|page| around.contains(page)) {
        return fetch(region, from.memory, unit).map(FetchResult::Unit);
    }
    fetch(region, from.memory, FetchedUnit { at: page, len: PAGE_BYTES })?;
    Some(FetchResult::Other)
}

/// Reads a unit, or a page, from the target.
fn fetch(region: &LazyRegion, memory: Fd, unit: FetchedUnit) -> Option<FetchedUnit> {
    let FetchedUnit { at, len } = unit;
    let fetch = || {
        guard_pages::unguard(at, len)?;
        // SAFETY: memory of the program's that has no contents yet.
        let to = unsafe { core::slice::from_raw_parts_mut(at as *mut u8, len as usize) };
        Some(sys::pread(memory, to, at))
    };
    if fetch()? == Err(Errno(sys::EFAULT)) {
        // No memory around it has been accessible yet.
        guard_pages::guard_extent(region, at, EXTENT_BYTES)?;
        let _ = fetch()?;
    }
    // Memory that the target has unmapped meanwhile reads as zeros.
    Some(unit)
}

/// Touches the first pages that the arguments of a call point to, so that the kernel finds them.
pub(super) fn touch_arguments(args: &[u64; 6]) {
    if !HAS_REGIONS.load(Relaxed) {
        return;
    }
    for &at in args {
        for at in [at, at.saturating_add(PAGE_BYTES)] {
            if lazy_regions::comes_from_target(at) {
                // SAFETY: memory that comes when it is touched.
                unsafe { (at as *const u8).read_volatile() };
            }
        }
    }
}

const _: () = assert!(EXTENT_BYTES.is_multiple_of(UNIT_BYTES));
