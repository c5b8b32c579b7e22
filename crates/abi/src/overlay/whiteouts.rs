//! Set of the whiteouts, by the hashes of their paths. Two paths have the same hash with a chance
//! of 1 in 2^64 per pair.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::path_hash::PathHash;

const SLOTS: usize = 1 << 20;
/// Number of slots that are probed.
const PROBES: usize = 128;

/// Set that only grows. Starts as zeroes.
#[repr(C)]
pub struct WhiteoutSet {
    slots: [AtomicU64; SLOTS],
}

impl WhiteoutSet {
    fn probed_slots(&self, key: u64) -> impl Iterator<Item = &AtomicU64> {
        let first = (key >> 44) as usize;
        (0..PROBES).map(move |n| &self.slots[(first + n) % SLOTS])
    }

    fn key(path: PathHash) -> u64 {
        path.bits().max(1)
    }

    /// Adds a path. Returns false if the probed slots are full.
    pub fn add(&self, path: PathHash) -> bool {
        let key = Self::key(path);
        self.probed_slots(key).any(|place| match place.compare_exchange(0, key, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(seen) => seen == key,
        })
    }

    /// True if the path was added.
    pub fn has(&self, path: PathHash) -> bool {
        let key = Self::key(path);
        let seen = self.probed_slots(key).map(|place| place.load(Relaxed));
        seen.take_while(|seen| *seen != 0).any(|seen| seen == key)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn added_paths_are_found_until_slots_are_full() {
        // SAFETY: atomics, for which zero is valid.
        let gone: std::boxed::Box<WhiteoutSet> =
            unsafe { std::boxed::Box::new_zeroed().assume_init() };
        let path = |n: usize| PathHash::of(std::format!("/a/{n}").as_bytes());
        let added = (0..2 * SLOTS).map(|n| gone.add(path(n))).collect::<std::vec::Vec<_>>();
        assert!(added[..SLOTS / 2].iter().all(|added| *added) && added.contains(&false));
        assert!(added.iter().enumerate().all(|(n, added)| gone.has(path(n)) == *added));
        assert!((2 * SLOTS..3 * SLOTS).all(|n| !gone.has(path(n))));
    }
}
