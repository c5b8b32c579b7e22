//! Groups of pages that are writable while all other memory is protected.

/// Limit of groups.
const MOST: usize = 8192;
/// Slots of the hash table: four times the number of groups, so that chains stay short.
const PLACES: usize = 4 * MOST;

/// Pages that are protected together: a store to one opens all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    pub start: u64,
    pub end: u64,
    /// True if its contents differ from those at the checkpoint.
    pub is_changed: bool,
    /// Its slot in the hash table.
    place: u16,
}

/// The open groups. All-zero is valid and empty.
pub struct WritableGroups {
    groups: [Group; MOST],
    count: usize,
    /// Index of the group in each slot, counted from 1; 0 if empty.
    places: [u16; PLACES],
}

const _: () = assert!(PLACES < u16::MAX as usize);

impl WritableGroups {
    /// Returns all open groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups[..self.count]
    }

    /// Returns how many more groups fit.
    pub fn room(&self) -> usize {
        MOST - self.count
    }

    /// Returns the slot of the group that begins at `start`, or the free slot for it.
    fn place(&self, start: u64) -> usize {
        // Fibonacci hashing (Knuth, volume 3, 6.4).
        let hash = (start >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mut place = hash as usize % PLACES;
        while self.places[place] != 0 && self.groups[self.places[place] as usize - 1].start != start
        {
            place = (place + 1) % PLACES;
        }
        place
    }

    /// True if the group that begins at `start` is open.
    pub fn has(&self, start: u64) -> bool {
        self.places[self.place(start)] != 0
    }

    /// Adds a group that is not open yet. There is [room](Self::room).
    pub fn add(&mut self, start: u64, end: u64) {
        let place = self.place(start);
        self.groups[self.count] = Group { start, end, is_changed: false, place: place as u16 };
        self.count += 1;
        self.places[place] = self.count as u16;
    }

    /// Marks the group that begins at `start` as changed, if it is open.
    pub fn note_changed(&mut self, start: u64) {
        if let Some(n) = usize::from(self.places[self.place(start)]).checked_sub(1) {
            self.groups[n].is_changed = true;
        }
    }

    /// Keeps the groups for which `stays` returns true, in the order of addresses.
    pub fn retain(&mut self, mut stays: impl FnMut(&Group) -> bool) {
        for group in &self.groups[..self.count] {
            self.places[usize::from(group.place)] = 0;
        }
        let all = self.count;
        self.groups[..all].sort_unstable_by_key(|group| group.start);
        self.count = 0;
        for n in 0..all {
            let group = self.groups[n];
            if stays(&group) {
                self.add(group.start, group.end);
            }
        }
    }

    /// Removes all groups.
    pub fn clear(&mut self) {
        self.retain(|_| false);
    }
}
