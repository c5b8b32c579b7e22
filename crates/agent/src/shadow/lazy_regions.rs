//! Lazy memory of a shadow: regions whose contents are brought when they are touched, and their
//! sources.
//!
//! The mappings of a program may be large, or not in memory, and a run uses little of them. So they
//! have no contents in a shadow at first, and [`runner_faults`](super::runner_faults) brings each
//! piece when it is touched.

use core::ops::Range;

use runahead_estimators::Identity;

use crate::plane::AddressRange;
use crate::sys::{Errno, Fd, Result};
use crate::thread_owned::Owned;
use crate::uninherited_memory::TargetMemory;

/// Most lazy regions; further mappings stay as they are.
const REGIONS_MAX: usize = 384;
/// Most bytes for the names of their files.
const NAMES_BYTES_MAX: usize = 32 << 10;

/// Mapped part of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilePart {
    /// Descriptor for reading.
    pub fd: Fd,
    /// File offset at which the mapping begins, in bytes.
    pub offset: u64,
    /// Size of the whole file, in bytes.
    pub size: u64,
    /// Identity of the file in the hint log.
    pub identity: Identity,
    /// Absolute name of the file, stored in [`LazyRegions::name`].
    pub name: (u32, u32),
    /// True if the program may store here: pages are then not brought a second time.
    pub writable: bool,
}

/// Source of a region's contents. The first variant is all zeroes, for [`REGIONS`].
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum ContentSource {
    /// Memory shared with other processes, moved to this address.
    Moved(u64),
    /// A file.
    File(FilePart),
    /// The target, as it is at the time of the fetch.
    Target(TargetMemory),
}

impl ContentSource {
    /// Source of the memory that lies `by` bytes farther on.
    fn advanced_by(self, by: u64) -> Self {
        match self {
            ContentSource::Moved(from) => ContentSource::Moved(from + by),
            ContentSource::File(part) => {
                ContentSource::File(FilePart { offset: part.offset + by, ..part })
            }
            ContentSource::Target(_) => self,
        }
    }
}

/// A region of lazy memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct LazyRegion {
    /// First address.
    pub at: u64,
    /// End address.
    pub end: u64,
    pub source: ContentSource,
}

impl LazyRegion {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.at < range.end && range.start < self.end
    }
}

/// Lazy regions of a shadow.
pub(super) struct LazyRegions {
    list: [LazyRegion; REGIONS_MAX],
    count: usize,
    names: [u8; NAMES_BYTES_MAX],
    named: usize,
}

const NO_REGION: LazyRegion = LazyRegion { at: 0, end: 0, source: ContentSource::Moved(0) };

// SAFETY: zeroes, like all of it that is large; placed at the end of the image so that small
// statics share pages.
#[unsafe(link_section = ".bss.large")]
static REGIONS: Owned<LazyRegions> = Owned::new(LazyRegions::new());

/// Lazy regions of this shadow.
///
/// # Safety
/// In a shadow, with no other reference to them in use.
pub(super) unsafe fn of_this_shadow() -> &'static mut LazyRegions {
    // SAFETY: passed on to the caller.
    unsafe { REGIONS.get() }
}

/// True if the memory at `at` comes from the target. Called in a shadow, without a reference to the
/// regions in use.
pub(super) fn comes_from_target(at: u64) -> bool {
    // SAFETY: as the caller says.
    let region = unsafe { of_this_shadow() }.find(at);
    region.is_some_and(|region| matches!(region.source, ContentSource::Target(_)))
}

impl LazyRegions {
    const fn new() -> Self {
        LazyRegions {
            list: [NO_REGION; REGIONS_MAX],
            count: 0,
            names: [0; NAMES_BYTES_MAX],
            named: 0,
        }
    }

    /// Adds a region.
    pub(super) fn add(&mut self, region: LazyRegion) -> Result<()> {
        *self.list.get_mut(self.count).ok_or(Errno(crate::sys::ENOMEM))? = region;
        self.count += 1;
        Ok(())
    }

    /// True if there is room for another region.
    pub(super) fn has_room(&self) -> bool {
        self.count < REGIONS_MAX
    }

    /// Region that contains `at`.
    pub(super) fn find(&self, at: u64) -> Option<LazyRegion> {
        self.list[..self.count].iter().find(|region| (region.at..region.end).contains(&at)).copied()
    }

    /// True if part of `range` is lazy.
    pub(super) fn overlap(&self, range: &Range<u64>) -> bool {
        self.list[..self.count].iter().any(|region| region.overlaps(range))
    }

    /// Lets the program store to the regions that overlap `range`.
    pub(super) fn allow_stores(&mut self, range: &Range<u64>) {
        for region in self.list[..self.count].iter_mut().filter(|region| region.overlaps(range)) {
            if let ContentSource::File(part) = &mut region.source {
                part.writable = true;
            }
        }
    }

    /// Addresses of the regions that may be dropped and brought again: those of files, and of a
    /// target with swapped memory.
    pub(super) fn droppable(&self) -> impl Iterator<Item = AddressRange> {
        let list = self.list[..self.count].iter();
        let is_droppable = |region: &&LazyRegion| match region.source {
            ContentSource::File(_) => true,
            ContentSource::Target(from) => from.pages.is_some(),
            ContentSource::Moved(_) => false,
        };
        list.filter(is_droppable).map(|region| AddressRange::new(region.at, region.end))
    }

    /// Forgets the regions in `range`. If cutting a region in two needs an entry that does not
    /// exist, the part behind is forgotten too.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        let mut n = 0;
        while n < self.count {
            let region = self.list[n];
            if !region.overlaps(range) {
                n += 1;
                continue;
            }
            self.count -= 1;
            self.list[n] = self.list[self.count];
            if region.at < range.start {
                let _ = self.add(LazyRegion { end: range.start, ..region });
            }
            if range.end < region.end {
                let source = region.source.advanced_by(range.end - region.at);
                let _ = self.add(LazyRegion { at: range.end, source, ..region });
            }
        }
    }

    /// Stores a name. Returns its place, or `None` without room.
    pub(super) fn store_name(&mut self, name: &[u8]) -> Option<(u32, u32)> {
        let at = self.named;
        self.names.get_mut(at..at + name.len())?.copy_from_slice(name);
        self.named += name.len();
        Some((at as u32, name.len() as u32))
    }

    /// Name stored at that place.
    pub(super) fn name(&self, (at, len): (u32, u32)) -> &[u8] {
        self.names.get(at as usize..(at + len) as usize).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn regions(list: &[(u64, u64)]) -> Box<LazyRegions> {
        let mut all = Box::new(LazyRegions::new());
        for &(at, end) in list {
            all.add(LazyRegion { at, end, source: ContentSource::Moved(at + 1_000_000) })
                .expect("room");
        }
        all
    }

    /// Origin of the memory at an address.
    fn origin(all: &LazyRegions, at: u64) -> Option<u64> {
        let region = all.find(at)?;
        match region.source {
            ContentSource::Moved(from) => Some(from + at - region.at),
            _ => None,
        }
    }

    proptest! {
        /// After any cuts, what is left is lazy as before and has the same origin.
        #[test]
        fn remaining_regions_keep_their_origin(
            cuts in proptest::collection::vec((0..400u64, 1..60u64), 0..40),
        ) {
            let mut all = regions(&[(10, 90), (100, 140), (140, 300), (350, 351)]);
            let mut expected: Vec<bool> = (0..400).map(|at| all.find(at).is_some()).collect();
            for (at, len) in cuts {
                let range = at..at + len;
                all.forget(&range);
                prop_assert!(!all.overlap(&range));
                range.for_each(|at| if let Some(there) = expected.get_mut(at as usize) { *there = false });
                for (at, &there) in (0..).zip(&expected) {
                    prop_assert_eq!(origin(&all, at), there.then_some(at + 1_000_000));
                }
            }
        }
    }

    #[test]
    fn no_more_than_fit() {
        let many: Vec<_> = (0..REGIONS_MAX as u64).map(|n| (3 * n, 3 * n + 3)).collect();
        let mut all = regions(&many);
        assert!(!all.has_room() && all.add(NO_REGION).is_err());
        all.forget(&(1..2));
        assert_eq!(
            (origin(&all, 0), origin(&all, 1), origin(&all, 2)),
            (Some(1_000_000), None, None)
        );
        assert_eq!(all.store_name(&[1; NAMES_BYTES_MAX + 1]), None);
        let kept = all.store_name(b"/x").expect("room");
        assert_eq!(all.name(kept), b"/x");
        assert_eq!(all.name((u32::MAX - 5, 5)), b"");
    }
}
