//! Originals of copies in the lower tree, so that a copy keeps the original's inode number.

use core::sync::atomic::{AtomicU64, Ordering::*};

use crate::FileId;

/// Number of slots. A copy without a slot has its own number.
const SLOTS: usize = 1 << 16;
/// Number of slots that are probed.
const PROBES: usize = 32;
/// Markers of a slot that was never used, one that is free again, and one that is being filled. No
/// file has such a number.
const NEVER: u64 = 0;
const FREE: u64 = u64::MAX;
const BUSY: u64 = u64::MAX - 1;

#[repr(C)]
struct Slot {
    copy: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
}

/// Hash table keyed by the copy's inode number: all copies are on one device. Starts as zeroes.
#[repr(C)]
pub struct InodeOrigins {
    /// Device of the copies, plus one; 0 if there are none.
    device: AtomicU64,
    unused: [u64; 7],
    slots: [Slot; SLOTS],
}

impl InodeOrigins {
    fn probed_slots(&self, copy: u64) -> impl Iterator<Item = &Slot> {
        let first = copy.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        (0..PROBES).map(move |n| &self.slots[(first as usize + n) % SLOTS])
    }

    /// True if there are copies.
    pub fn has_copies(&self) -> bool {
        self.device.load(Relaxed) != 0
    }

    /// Adds a copy and its original.
    pub fn add(&self, copy: FileId, of: FileId) {
        for place in self.probed_slots(copy.inode) {
            let seen = place.copy.load(Relaxed);
            if (seen == NEVER || seen == FREE)
                && place.copy.compare_exchange(seen, BUSY, Acquire, Relaxed).is_ok()
            {
                place.device.store(of.device, Relaxed);
                place.inode.store(of.inode, Relaxed);
                place.copy.store(copy.inode, Release);
                self.device.store(copy.device.wrapping_add(1), Relaxed);
                return;
            }
        }
    }

    /// Returns the original of a copy.
    pub fn origin_of(&self, file: FileId) -> Option<FileId> {
        if self.device.load(Relaxed) != file.device.wrapping_add(1) {
            return None;
        }
        let place = self.find(file.inode)?;
        Some(FileId { device: place.device.load(Relaxed), inode: place.inode.load(Relaxed) })
    }

    fn find(&self, copy: u64) -> Option<&Slot> {
        let mut places = self.probed_slots(copy).map(|place| (place, place.copy.load(Acquire)));
        let found = places.find(|(_, seen)| *seen == copy || *seen == NEVER);
        found.filter(|(_, seen)| *seen == copy).map(|(place, _)| place)
    }

    /// Forgets a copy that is about to be removed: another file may get its number.
    pub fn remove(&self, file: FileId) {
        if self.origin_of(file).is_some()
            && let Some(place) = self.find(file.inode)
        {
            place.copy.store(FREE, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn copies_are_found_until_removed() {
        // SAFETY: atomics, for which zero is valid.
        let inodes: std::boxed::Box<InodeOrigins> =
            unsafe { std::boxed::Box::new_zeroed().assume_init() };
        assert!(!inodes.has_copies());
        let (device, other) = (5, 6);
        let id = |device, inode| FileId { device, inode };
        for n in 1..20_000 {
            inodes.add(id(device, n), id(other, n + 7));
        }
        assert!(inodes.has_copies());
        assert!((1..20_000).all(|n| inodes.origin_of(id(device, n)) == Some(id(other, n + 7))));
        assert_eq!(
            [inodes.origin_of(id(device, 20_000)), inodes.origin_of(id(other, 3))],
            [None; 2]
        );
        (1..20_000).filter(|n| n % 2 == 0).for_each(|n| inodes.remove(id(device, n)));
        assert!((1..20_000).all(|n| inodes.origin_of(id(device, n)).is_some() == (n % 2 == 1)));
        inodes.add(id(device, 4), id(other, 4));
        assert_eq!(inodes.origin_of(id(device, 4)), Some(id(other, 4)));
    }

    #[test]
    fn copies_without_a_slot_are_not_found() {
        // SAFETY: atomics, for which zero is valid.
        let inodes: std::boxed::Box<InodeOrigins> =
            unsafe { std::boxed::Box::new_zeroed().assume_init() };
        let id = |device, inode| FileId { device, inode };
        (1..2 * SLOTS as u64).for_each(|n| inodes.add(id(0, n), id(1, n)));
        let device_of = |n| inodes.origin_of(id(0, n)).map(|origin| origin.device);
        assert!((1..2 * SLOTS as u64).all(|n| matches!(device_of(n), None | Some(1))));
    }
}
