//! In which order waiting hints are served.
//!
//! Every part of every waiting hint is one element of one ordered set: what the target itself waits
//! for comes first, then what it will reach first. Parts of a path that a worker is looking up are
//! *parked*: that worker serves them as soon as it knows what the path names, so nobody else may
//! take them.
//!
//! Invariant: an element is in the set, or counted as parked, exactly as long as its entry holds
//! the part it stands for; [`Shelf`] is the only way to change either.

use std::collections::BTreeSet;

use runahead_abi::record::{DEMAND, Header, STEERS};

/// Names an entry of the queue; never reused.
pub(crate) type EntryId = u64;

/// Smaller is served earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    /// False for what the target waits for now.
    speculative: bool,
    /// Accesses that the target will have made before this one.
    position: u64,
}

/// Who wants a part, and how urgently: the sum of the hints that were merged into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag {
    /// The newest run among them.
    pub run: u32,
    /// Their flags, or-ed.
    pub flags: u32,
    /// Where that run expects the access.
    pub position: u64,
    /// Hints merged, repetitions not counted.
    pub hints: u32,
    /// Those of them that steer the shadow.
    pub steers: u32,
}

impl Tag {
    pub(crate) fn of(header: &Header) -> Self {
        let steers = u32::from(header.flags & STEERS != 0);
        Tag { run: header.run, flags: header.flags, position: header.position, hints: 1, steers }
    }

    /// The same want, stated again. A newer run knows better where the access will come; a hint
    /// of an older one that was under way for long must not move it back.
    pub(crate) fn renew(&mut self, again: &Tag) {
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
    pub(crate) fn join(&mut self, other: &Tag) {
        let (hints, steers) = (self.hints + other.hints, self.steers + other.steers);
        self.renew(other);
        (self.hints, self.steers) = (hints, steers);
    }

    pub(crate) fn rank(&self) -> Rank {
        Rank { speculative: self.flags & DEMAND == 0, position: self.position }
    }

    /// True when the shadow that wanted it strayed: `before` is the oldest run that still counts,
    /// `None` that none does and not even the target (the session ends).
    pub(crate) fn is_stale(&self, before: Option<u32>) -> bool {
        before.is_none_or(|run| self.run < run && self.flags & DEMAND == 0)
    }
}

/// A part of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Item {
    Lookup,
    Listing,
    Link,
    /// The wanted range that starts at this byte.
    Data(u64),
}

/// The ordered set, and how many items are parked.
#[derive(Default)]
pub(crate) struct Order {
    set: BTreeSet<(Rank, EntryId, Item)>,
    parked: usize,
}

impl Order {
    /// What is to be served next.
    pub(crate) fn first(&self) -> Option<(EntryId, Item)> {
        self.set.first().map(|&(_, id, item)| (id, item))
    }

    /// Everything that could be taken now, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EntryId, Item)> + '_ {
        self.set.iter().map(|&(_, id, item)| (id, item))
    }

    /// True when the target waits for what is first.
    pub(crate) fn is_urgent(&self) -> bool {
        self.set.first().is_some_and(|(rank, ..)| !rank.speculative)
    }

    /// Items that a worker could take now.
    pub(crate) fn ready(&self) -> usize {
        self.set.len()
    }

    /// All items, parked ones too.
    pub(crate) fn len(&self) -> usize {
        self.set.len() + self.parked
    }

    /// The view of one entry.
    pub(crate) fn shelf(&mut self, entry: EntryId, parked: bool) -> Shelf<'_> {
        Shelf { order: self, entry, parked }
    }
}

/// Puts the items of one entry into the order and takes them out.
pub(crate) struct Shelf<'a> {
    order: &'a mut Order,
    entry: EntryId,
    parked: bool,
}

impl Shelf<'_> {
    pub(crate) fn insert(&mut self, rank: Rank, item: Item) {
        if self.parked {
            self.order.parked += 1;
        } else {
            let new = self.order.set.insert((rank, self.entry, item));
            assert!(new, "{item:?} was listed twice");
        }
    }

    pub(crate) fn remove(&mut self, rank: Rank, item: Item) {
        if self.parked {
            self.order.parked -= 1;
        } else {
            let was = self.order.set.remove(&(rank, self.entry, item));
            assert!(was, "{item:?} was not listed");
        }
    }

    /// Moves an item that the entry holds to where it belongs after its entry was parked.
    pub(crate) fn park(&mut self, rank: Rank, item: Item) {
        self.parked = false;
        self.remove(rank, item);
        self.order.parked += 1;
    }

    /// The reverse of [`Shelf::park`].
    pub(crate) fn unpark(&mut self, rank: Rank, item: Item) {
        self.order.parked -= 1;
        self.parked = false;
        self.insert(rank, item);
    }
}
