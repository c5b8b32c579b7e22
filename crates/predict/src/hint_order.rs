//! In which order the hints of one client are served.
//!
//! What the target itself waits for comes first, then names that expansions foresee, then what the
//! target will reach first, and last what nobody asked for.

use runahead_abi::hint_record::{DEMAND, DISCLOSED, DISCLOSURE, Header, LENGTH_UNKNOWN, STEERS};

use crate::read_sizes::HINT_MAX_BYTES;

/// Names a client; never reused.
pub type ClientId = u64;

/// Names what an item belongs to: an entry of the queue, a batch, a program, a guess. Never reused.
pub type EntryId = u64;

/// What is compared first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    Demand,
    Names,
    Hint,
    Guess,
}

/// What is compared between clients: within one tier they share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tier {
    /// What some target waits for now.
    Demand,
    /// What a shadow foresees, within the horizon.
    Hint,
    /// What a shadow foresees, beyond the horizon.
    Far,
    /// What nobody asked for.
    Guess,
}

/// Smaller is served earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank {
    class: Class,
    /// Accesses that the target will have made before this one.
    position: u64,
}

impl Rank {
    /// Of what a target waits for now.
    pub fn demand(position: u64) -> Self {
        Rank { class: Class::Demand, position }
    }

    /// Of what the target will want after `position` accesses.
    pub fn hint(position: u64) -> Self {
        Rank { class: Class::Hint, position }
    }

    /// Of a batch of names; an earlier one has a smaller number.
    pub fn names(number: u64) -> Self {
        Rank { class: Class::Names, position: number }
    }

    /// Of what nobody asked for.
    pub fn guess(position: u64) -> Self {
        Rank { class: Class::Guess, position }
    }

    /// With a horizon that ends at `reach`.
    pub fn tier(self, reach: u64) -> Tier {
        match self.class {
            Class::Demand => Tier::Demand,
            Class::Hint if self.position > reach => Tier::Far,
            Class::Names | Class::Hint => Tier::Hint,
            Class::Guess => Tier::Guess,
        }
    }
}

/// Who wants a part, and how urgently: the sum of the hints that were merged into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The newest run among the hints.
    pub run: u32,
    /// Flags of the hints, or-ed.
    pub flags: u32,
    /// Where the newest run expects the access.
    pub position: u64,
    /// Hints merged, repetitions not counted.
    pub hints: u32,
    /// Hints merged that steer the shadow.
    pub steers: u32,
}

impl Tag {
    /// Tag of one hint.
    pub fn of(header: &Header) -> Self {
        let steers = u32::from(header.flags & STEERS != 0);
        Tag { run: header.run, flags: header.flags, position: header.position, hints: 1, steers }
    }

    /// What was wanted is wanted again. A newer run knows better where the access will come; a hint
    /// of an older one that was under way for long must not move it back.
    pub fn renew(&mut self, again: &Tag) {
        if again.run > self.run {
            self.run = again.run;
            self.position = again.position;
        } else if again.run == self.run {
            self.position = self.position.min(again.position);
        }
        self.flags |= again.flags;
        if again.flags & STEERS != 0 {
            self.steers = self.steers.max(1);
        }
    }

    /// Another want, to be served together with this one.
    pub fn join(&mut self, other: &Tag) {
        let (hints, steers) = (self.hints + other.hints, self.steers + other.steers);
        self.renew(other);
        (self.hints, self.steers) = (hints, steers);
    }

    /// True if a target waits for it.
    pub fn is_demand(&self) -> bool {
        self.flags & DEMAND != 0
    }

    /// The program itself asked for it, among others.
    pub fn is_disclosed(&self) -> bool {
        self.flags & DISCLOSURE != 0
    }

    /// What was disclosed in `run` is taken back, and so is this: in a shadow's run what only that has
    /// disclosed, in the target's all. (That includes what shadows hinted of the same piece of a file,
    /// and what the target waits for there, which it reads by itself in any case.)
    pub fn is_taken_back(&self, run: u32) -> bool {
        self.is_disclosed() && (self.run == run || run >= DISCLOSED && self.run < run)
    }

    /// Where a want that starts at `start` ends in a file of `size` bytes, if its length was unknown:
    /// at the end of the file if that is at most `extend_max` long, or the program itself says so.
    pub fn end_in(&self, start: u64, size: u64, extend_max: u64) -> Option<u64> {
        if self.flags & LENGTH_UNKNOWN == 0 {
            return None;
        }
        match self.is_disclosed() {
            true => Some(size.min(start.saturating_add(HINT_MAX_BYTES))),
            false => (size <= extend_max).then_some(size),
        }
    }

    /// Place in the order of its client.
    pub fn rank(&self) -> Rank {
        if self.is_demand() { Rank::demand(self.position) } else { Rank::hint(self.position) }
    }

    /// True when the shadow that wanted it strayed: `before` is the oldest run that still counts,
    /// `None` that none does and not even the target (the session ends).
    pub fn is_stale(&self, before: Option<u32>) -> bool {
        before.is_none_or(|run| self.run < run && !self.is_demand())
    }
}

/// A part of an entry, or of something else that has an [`EntryId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Item {
    /// Lookup of the path.
    Lookup,
    /// Entries of the directory.
    Listing,
    /// Text of the symbolic link.
    Link,
    /// The wanted range that starts at this byte.
    Data(u64),
    /// The next thing to do for a program.
    Program,
    /// A batch of names.
    Names,
    /// A guess.
    Guess,
}

impl Item {
    /// The item stands for something that was hinted.
    pub fn is_hinted(self) -> bool {
        !matches!(self, Item::Names | Item::Guess)
    }
}
