//! Memory of a shadow that comes as it is used: where it lies, and from where it comes.
//!
//! What a program has mapped may be large, or not be in memory, and a run uses little of it. So it has no contents in a
//! shadow at first, and [`minor_faults`](super::runner_faults) has each piece brought when it is touched.

use core::ops::Range;

use runahead_abi::Identity;

use crate::sys::{Errno, Fd, Result};
use crate::thread_owned::Owned;
use crate::uninherited_memory::TargetMemory;

/// Mappings that come so at most; further ones do without.
const REGIONS_MAX: usize = 384;
/// Bytes for the names of their files.
const NAMES_BYTES_MAX: usize = 32 << 10;

/// A part of a file that is mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilePart {
    /// Opened for reading.
    pub fd: Fd,
    /// Where in the file the mapping begins, in bytes.
    pub offset: u64,
    /// Bytes of the whole file.
    pub size: u64,
    /// What the log calls the file.
    pub identity: Identity,
    /// The file's absolute name, in [`Regions::name`].
    pub name: (u32, u32),
    /// The program may store here: what was brought is not brought again.
    pub writable: bool,
}

/// From where the contents come. (The first is zeroes, for [`REGIONS`].)
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum ContentSource {
    /// Memory shared with others, which lies at this address now.
    Moved(u64),
    /// A file.
    File(FilePart),
    /// The target, as it is now.
    Target(TargetMemory),
}

impl ContentSource {
    /// The source of what lies `by` bytes farther on.
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

/// Memory that comes as it is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct LazyRegion {
    /// First address.
    pub at: u64,
    /// Address behind the last.
    pub end: u64,
    pub source: ContentSource,
}

impl LazyRegion {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.at < range.end && range.start < self.end
    }
}

/// See the module's text.
pub(super) struct LazyRegions {
    list: [LazyRegion; REGIONS_MAX],
    count: usize,
    names: [u8; NAMES_BYTES_MAX],
    named: usize,
}

const NO_REGION: LazyRegion = LazyRegion { at: 0, end: 0, source: ContentSource::Moved(0) };

// SAFETY: zeroes, like all of it that is large. (At its end, so that the small ones share pages.)
#[unsafe(link_section = ".bss.large")]
static REGIONS: Owned<LazyRegions> = Owned::new(LazyRegions::new());

/// Those of this shadow.
///
/// # Safety
/// In a shadow, with no other reference to them in use.
pub(super) unsafe fn of_this_shadow() -> &'static mut LazyRegions {
    // SAFETY: passed on to the caller.
    unsafe { REGIONS.get() }
}

/// Whether what lies at `at` comes from the target. In a shadow, where nobody holds them.
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

    /// One more.
    pub(super) fn add(&mut self, region: LazyRegion) -> Result<()> {
        *self.list.get_mut(self.count).ok_or(Errno(crate::sys::ENOMEM))? = region;
        self.count += 1;
        Ok(())
    }

    /// There is room for one more.
    pub(super) fn has_room(&self) -> bool {
        self.count < REGIONS_MAX
    }

    /// The one that `at` lies in.
    pub(super) fn find(&self, at: u64) -> Option<LazyRegion> {
        self.list[..self.count].iter().find(|region| (region.at..region.end).contains(&at)).copied()
    }

    /// Some of `range` is such memory.
    pub(super) fn overlap(&self, range: &Range<u64>) -> bool {
        self.list[..self.count].iter().any(|region| region.overlaps(range))
    }

    /// The program may store to those that `range` is of.
    pub(super) fn allow_stores(&mut self, range: &Range<u64>) {
        for region in self.list[..self.count].iter_mut().filter(|region| region.overlaps(range)) {
            if let ContentSource::File(part) = &mut region.source {
                part.writable = true;
            }
        }
    }

    /// First addresses and ends of those that may be dropped, and come again: of files, and of a target of which some is
    /// swapped out.
    pub(super) fn droppable(&self) -> impl Iterator<Item = (u64, u64)> {
        let list = self.list[..self.count].iter();
        let is_droppable = |region: &&LazyRegion| match region.source {
            ContentSource::File(_) => true,
            ContentSource::Target(from) => from.pages.is_some(),
            ContentSource::Moved(_) => false,
        };
        list.filter(is_droppable).map(|r| (r.at, r.end))
    }

    /// What lies in `range` is such memory no more. (Of a region that is cut in two for which there is no room, what lies
    /// behind is forgotten as well.)
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

    /// Keeps a name: where it is. `None`: there is no room.
    pub(super) fn store_name(&mut self, name: &[u8]) -> Option<(u32, u32)> {
        let at = self.named;
        self.names.get_mut(at..at + name.len())?.copy_from_slice(name);
        self.named += name.len();
        Some((at as u32, name.len() as u32))
    }

    /// What was kept there.
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

    /// Where what lies at an address comes from.
    fn origin(all: &LazyRegions, at: u64) -> Option<u64> {
        let region = all.find(at)?;
        match region.source {
            ContentSource::Moved(from) => Some(from + at - region.at),
            _ => None,
        }
    }

    proptest! {
        /// Whatever is forgotten, what is left is what it was, and comes from where it came.
        #[test]
        fn what_is_left_comes_from_where_it_came(
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
