//! Types and inode numbers of names that directories listed and that have not been looked up yet.
//!
//! The target and its shadows fill the table as they read directories; shadows answer from it for
//! names that are not in memory. It is a direct-mapped cache: a newer name replaces an older one.
//! It is written without locks; a torn entry is a wrong guess and nothing more.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::access_identity::Identity;

/// Entries kept; a power of two. 512 KiB, touched as it fills.
const ENTRIES: usize = 1 << 15;
/// Bits of the inode number that are kept.
const INODE_BITS: u32 = 56;
const SEEN: u64 = 1 << 63;

#[repr(C)]
struct Slot {
    key: AtomicU64,
    /// Bits 0-55 inode, 56-59 type, 63 looked up since.
    value: AtomicU64,
}

/// Table of the entries that directories listed.
#[repr(C)]
pub struct Entries {
    slots: [Slot; ENTRIES],
}

/// Inode number and type of a name, as its directory listed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Inode number.
    pub inode: u64,
    /// Type as in a directory entry (`DT_REG` and its like; getdents(2)).
    pub kind: u8,
}

impl Entries {
    fn slot(&self, name: Identity) -> &Slot {
        &self.slots[name.raw() as usize & (ENTRIES - 1)]
    }

    /// A directory named `name`. True if that is news.
    pub fn insert(&self, name: Identity, entry: Entry) -> bool {
        let slot = self.slot(name);
        if slot.key.load(Relaxed) == name.raw() {
            return false;
        }
        let inode = entry.inode & ((1 << INODE_BITS) - 1);
        let kind = u64::from(entry.kind & 0xf) << INODE_BITS;
        slot.value.store(inode | kind, Relaxed);
        slot.key.store(name.raw(), Relaxed);
        true
    }

    /// Entry of `name`, if a directory has listed it.
    pub fn find(&self, name: Identity) -> Option<Entry> {
        let slot = self.slot(name);
        let value = slot.value.load(Relaxed);
        (slot.key.load(Relaxed) == name.raw()).then_some(Entry {
            inode: value & ((1 << INODE_BITS) - 1),
            kind: (value >> INODE_BITS & 0xf) as u8,
        })
    }

    /// The program looks `name` up: what is known of it, the first time it does.
    pub fn first_use(&self, name: Identity) -> Option<Entry> {
        let entry = self.find(name)?;
        let seen = self.slot(name).value.fetch_or(SEEN, Relaxed) & SEEN != 0;
        (!seen).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;

    #[test]
    fn entries_are_found_and_their_first_use_is_told() {
        // SAFETY: Entries is atomics throughout, for which all-zero bytes are a valid value.
        let entries: Box<Entries> = unsafe { Box::new_zeroed().assume_init() };
        let (a, b) = (Identity::ROOT.join(b"a"), Identity::ROOT.join(b"b"));
        let entry = Entry { inode: (1 << 40) + 7, kind: 4 };
        assert_eq!(entries.find(a), None);
        assert!(entries.insert(a, entry));
        assert!(!entries.insert(a, entry));
        assert_eq!(entries.first_use(a), Some(entry));
        assert_eq!(entries.first_use(a), None);
        assert_eq!(entries.find(a), Some(entry));
        assert_eq!(entries.find(b), None);
    }
}
