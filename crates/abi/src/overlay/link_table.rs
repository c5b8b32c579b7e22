//! Files of the lower tree that have several names: which have an indexed copy, and by how much the
//! view changes their link counts.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::FileId;

const SLOTS: usize = 1 << 17;
/// Number of slots that are probed.
const PROBES: usize = 64;

#[repr(C)]
struct Slot {
    /// Hash of the file; 0 if the slot is free. Two files have the same hash with a chance of 1 in
    /// 2^64 per pair.
    key: AtomicU64,
    /// Link count in the lower tree when the file was copied up; 0 if it has no indexed copy.
    copied_links: AtomicU64,
    /// Names that the view has more than the lower tree.
    more_links: AtomicI64,
}

/// Hash table that only grows. Starts as zeroes.
#[repr(C)]
pub struct LinkTable {
    /// Nonzero once a slot is used.
    any_file: AtomicU64,
    /// Nonzero once a file has an indexed copy.
    any_copy: AtomicU64,
    unused: [u64; 6],
    slots: [Slot; SLOTS],
}

impl LinkTable {
    fn key(file: FileId) -> u64 {
        let mix = |number: u64| {
            let mixed = (number ^ number >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 29
        };
        mix(mix(file.device) ^ file.inode).max(1)
    }

    fn probed_slots(&self, key: u64) -> impl Iterator<Item = &Slot> {
        let first = (key >> 40) as usize;
        (0..PROBES).map(move |n| &self.slots[(first + n) % SLOTS])
    }

    fn find(&self, file: FileId) -> Option<&Slot> {
        let key = Self::key(file);
        let mut slots = self.probed_slots(key).map(|slot| (slot, slot.key.load(Relaxed)));
        let found = slots.find(|(_, seen)| *seen == key || *seen == 0);
        found.filter(|(_, seen)| *seen == key).map(|(slot, _)| slot)
    }

    fn find_or_add(&self, file: FileId) -> Option<&Slot> {
        let key = Self::key(file);
        let added = self.probed_slots(key).find(|slot| {
            match slot.key.compare_exchange(0, key, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(seen) => seen == key,
            }
        });
        self.any_file.store(1, Relaxed);
        added
    }

    /// True if no link count differs from the kernel's and there is no indexed copy.
    pub fn is_empty(&self) -> bool {
        self.any_file.load(Relaxed) == 0
    }

    /// True if some file has an indexed copy.
    pub fn has_copies(&self) -> bool {
        self.any_copy.load(Relaxed) != 0
    }

    /// Makes room for a file. Returns false if the probed slots are full.
    pub fn reserve(&self, file: FileId) -> bool {
        self.find_or_add(file).is_some()
    }

    /// Marks a file for which [`LinkTable::reserve`] made room as copied; `links` is its link count
    /// in the lower tree.
    pub fn set_copied(&self, file: FileId, links: u32) {
        if let Some(slot) = self.find(file) {
            slot.copied_links.store(u64::from(links).max(1), Relaxed);
            self.any_copy.store(1, Relaxed);
        }
    }

    /// True if the file has an indexed copy.
    pub fn is_copied(&self, file: FileId) -> bool {
        self.find(file).is_some_and(|slot| slot.copied_links.load(Relaxed) != 0)
    }

    /// Changes the link count of a file by `by`. Without a free slot the count stays.
    pub fn add_links(&self, file: FileId, by: i64) {
        if let Some(slot) = self.find_or_add(file) {
            slot.more_links.fetch_add(by, Relaxed);
        }
    }

    /// Link count of a file in the view. `links` is what the kernel says of it, or of its copy.
    pub fn links(&self, file: FileId, links: u32) -> u32 {
        let Some(slot) = self.find(file) else { return links };
        let lower = match slot.copied_links.load(Relaxed) {
            0 => i64::from(links),
            copied => copied as i64,
        };
        (lower + slot.more_links.load(Relaxed)).clamp(0, u32::MAX.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    fn table() -> std::boxed::Box<LinkTable> {
        // SAFETY: atomics, for which zero is valid.
        unsafe { std::boxed::Box::new_zeroed().assume_init() }
    }

    #[test]
    fn link_counts_follow_names_that_come_and_go() {
        let (table, file) = (table(), FileId { device: 7, inode: 8 });
        assert!(table.is_empty() && !table.is_copied(file));
        table.add_links(file, -1);
        assert_eq!((table.links(file, 3), table.has_copies()), (2, false));
        assert!(table.reserve(file));
        assert!(!table.is_copied(file), "until the copy is in the index");
        table.set_copied(file, 3);
        assert!(table.is_copied(file) && table.has_copies());
        assert_eq!(table.links(file, 9), 2, "the copy's own count does not matter");
        table.add_links(file, 2);
        assert_eq!(table.links(file, 9), 4);
        assert_eq!(table.links(FileId { device: 8, inode: 8 }, 9), 9);
    }

    #[test]
    fn files_are_refused_when_slots_are_full() {
        let table = table();
        let file = |inode| FileId { device: 1, inode };
        let added = (0..2 * SLOTS as u64).map(|n| table.reserve(file(n)));
        let added = added.collect::<std::vec::Vec<_>>();
        assert!(added[..SLOTS / 2].iter().all(|added| *added) && added.contains(&false));
        (0..2 * SLOTS as u64).for_each(|n| table.set_copied(file(n), 2));
        assert!((0..).zip(&added).all(|(n, added)| table.is_copied(file(n)) == *added));
    }
}
