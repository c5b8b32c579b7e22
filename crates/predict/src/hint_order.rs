//! Order in which the hints of one client are served.
//!
//! Demands of the target come first, then names from expansions, then hints in the order in which
//! the target will reach them, then guesses.

use runahead_abi::hint_record::{DEMAND, DISCLOSED, DISCLOSURE, Header, LENGTH_UNKNOWN, STEERS};

use crate::read_sizes::HINT_MAX_BYTES;

/// Names a client; never reused.
pub type ClientId = u64;

/// Names what an item belongs to: an entry of the queue, a batch, a program, a guess. Never reused.
pub type EntryId = u64;

/// First criterion of a rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    Demand,
    Names,
    Hint,
    Guess,
}

/// Urgency of an item, compared between clients. Within one tier clients share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tier {
    /// A demand: some target waits for it now.
    Demand,
    /// A hint of a shadow within the horizon.
    Hint,
    /// A hint of a shadow beyond the horizon.
    Far,
    /// A guess, which no hint asked for.
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
    /// Returns the rank of a demand.
    pub fn demand(position: u64) -> Self {
        Rank { class: Class::Demand, position }
    }

    /// Returns the rank of a hint for what the target wants after `position` accesses.
    pub fn hint(position: u64) -> Self {
        Rank { class: Class::Hint, position }
    }

    /// Returns the rank of a batch of names; an earlier one has a smaller number.
    pub fn names(number: u64) -> Self {
        Rank { class: Class::Names, position: number }
    }

    /// Returns the rank of a guess.
    pub fn guess(position: u64) -> Self {
        Rank { class: Class::Guess, position }
    }

    /// Returns the tier, given a horizon that ends at `reach`.
    pub fn tier(self, reach: u64) -> Tier {
        match self.class {
            Class::Demand => Tier::Demand,
            Class::Hint if self.position > reach => Tier::Far,
            Class::Names | Class::Hint => Tier::Hint,
            Class::Guess => Tier::Guess,
        }
    }
}

/// Run, position and urgency of a part: the sum of the hints that were merged into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The newest run among the hints.
    pub run: u32,
    /// Flags of the hints, or-ed.
    pub flags: u32,
    /// Accesses before the expected one, as the newest run counts.
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

    /// Merges a repeated want. A newer run has the better position. A hint of an older run that was
    /// in flight for long must not move it back.
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

    /// Merges another want, which is served together with this one.
    pub fn join(&mut self, other: &Tag) {
        let (hints, steers) = (self.hints + other.hints, self.steers + other.steers);
        self.renew(other);
        (self.hints, self.steers) = (hints, steers);
    }

    /// True if a target waits for it.
    pub fn is_demand(&self) -> bool {
        self.flags & DEMAND != 0
    }

    /// True if the program disclosed it, maybe among other sources.
    pub fn is_disclosed(&self) -> bool {
        self.flags & DISCLOSURE != 0
    }

    /// True if a cancel of `run` cancels this. In a shadow's run it cancels what only that run
    /// disclosed, in the target's run everything disclosed. That includes shadow hints for the same
    /// piece of a file, and demands there, which the target reads itself in any case.
    pub fn is_taken_back(&self, run: u32) -> bool {
        self.is_disclosed() && (self.run == run || run >= DISCLOSED && self.run < run)
    }

    /// Returns the end of a want of unknown length that starts at `start`, in a file of `size`
    /// bytes. The end is that of the file if the file has at most `extend_max` bytes, or if the
    /// program disclosed the want.
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
