//! Groups of pages that can be written, while all else is protected. All-zero is valid, and holds none.

/// Most groups.
const MOST: usize = 8192;
/// Places of the table by which they are found: twice as many and more.
const PLACES: usize = 4 * MOST;

/// Pages that are protected together, and where a store to one opens all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    pub start: u64,
    pub end: u64,
    /// It does not hold what it held at the checkpoint.
    pub is_changed: bool,
    /// Where the table has it.
    place: u16,
}

/// See the module's text.
pub struct WritableGroups {
    groups: [Group; MOST],
    count: usize,
    /// Of each place, which group is there, counted from 1; 0: none is.
    places: [u16; PLACES],
}

const _: () = assert!(PLACES < u16::MAX as usize);

impl WritableGroups {
    /// All of them.
    pub fn groups(&self) -> &[Group] {
        &self.groups[..self.count]
    }

    /// How many more there can be.
    pub fn room(&self) -> usize {
        MOST - self.count
    }

    /// The place of the group that begins at `start`, or where it would be.
    fn place(&self, start: u64) -> usize {
        // (Fibonacci hashing: Knuth, volume 3, 6.4.)
        let hash = (start >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mut place = hash as usize % PLACES;
        while self.places[place] != 0 && self.groups[self.places[place] as usize - 1].start != start
        {
            place = (place + 1) % PLACES;
        }
        place
    }

    /// Whether the group that begins at `start` is one of them.
    pub fn has(&self, start: u64) -> bool {
        self.places[self.place(start)] != 0
    }

    /// Another one, which is not among them. (There is [room](Self::room).)
    pub fn add(&mut self, start: u64, end: u64) {
        let place = self.place(start);
        self.groups[self.count] = Group { start, end, is_changed: false, place: place as u16 };
        self.count += 1;
        self.places[place] = self.count as u16;
    }

    /// The group that begins at `start` has changed, if it is one of them.
    pub fn note_changed(&mut self, start: u64) {
        if let Some(n) = usize::from(self.places[self.place(start)]).checked_sub(1) {
            self.groups[n].is_changed = true;
        }
    }

    /// Those stay that `stays` says; it is asked in the order of addresses.
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

    /// None stays.
    pub fn clear(&mut self) {
        self.retain(|_| false);
    }
}
