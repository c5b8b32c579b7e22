//! All that is known and wanted of one path.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use runahead_abi::record::LENGTH_UNKNOWN;
use runahead_abi::{HintKind, Identity};

use super::job::{Class, Effects, Found, Step, Trouble};
use crate::EXTEND_MAX_BYTES;
use crate::expand::Wish;
use crate::order::{Item, Rank, Shelf, Tag};
use crate::ranges::{Added, Ranges, chunks};

/// Identities that one path may go by: a program can reach it from the root and from its working
/// directory, seldom in a third way. Bounded, because every key done is done once for each.
const KEYS_MAX: usize = 4;

/// How much is known of what the path names.
pub(crate) enum Stage<F> {
    /// Nothing; the first of its items to be taken starts the lookup.
    Waiting,
    /// A worker is looking it up; the items are parked.
    Looking,
    /// All; items can be served independently.
    Open(Found<F>),
}

/// A want other than data, and whether a worker is on it.
struct Slot {
    tag: Tag,
    rank: Rank,
    started: bool,
}

/// See the module's text.
pub(crate) struct Entry<F> {
    pub path: Arc<[u8]>,
    keys: Vec<Identity>,
    /// Some hint means what a symbolic link leads to. The lookup then passes the link itself, so
    /// it serves those too that do not follow.
    pub follow: bool,
    pub stage: Stage<F>,
    /// It waits for others of its directory to be looked up first; its items are parked.
    pub held: bool,
    /// It is being looked up as one of those.
    pub takes_turn: bool,
    /// A lookup succeeded, though its result may have been given up for another.
    seen: bool,
    /// Lookup, listing, link.
    slots: [Option<Slot>; 3],
    pub data: Ranges,
    /// Chunks that a hint got all its bytes of, while another still waits for bytes of them.
    partly_read: HashSet<u64>,
    /// Workers on it.
    pub running: u32,
}

fn index(item: Item) -> usize {
    match item {
        Item::Lookup => 0,
        Item::Listing => 1,
        Item::Link => 2,
        Item::Data(_) => unreachable!("data has no slot"),
    }
}

const SLOTS: [(Item, HintKind); 3] = [
    (Item::Lookup, HintKind::Lookup),
    (Item::Listing, HintKind::Listing),
    (Item::Link, HintKind::Link),
];

/// The log key of what a slot stands for.
fn slot_key(item: Item, key: Identity) -> Identity {
    match item {
        Item::Listing => key.listing(),
        Item::Link => key.link(),
        _ => key,
    }
}

impl<F> Entry<F> {
    pub(crate) fn new(path: Arc<[u8]>) -> Self {
        Entry {
            path,
            keys: Vec::with_capacity(1),
            follow: false,
            stage: Stage::Waiting,
            held: false,
            takes_turn: false,
            seen: false,
            slots: [const { None }; 3],
            data: Ranges::default(),
            partly_read: HashSet::new(),
            running: 0,
        }
    }

    pub(crate) fn has_key(&self, key: Identity) -> bool {
        self.keys.contains(&key)
    }

    pub(crate) fn has_room_for(&self, key: Identity) -> bool {
        self.keys.len() < KEYS_MAX || self.has_key(key)
    }

    pub(crate) fn add_key(&mut self, key: Identity) {
        if !self.has_key(key) {
            self.keys.push(key);
        }
    }

    pub(crate) fn has(&self, item: Item) -> bool {
        self.slots[index(item)].is_some()
    }

    pub(crate) fn is_looking(&self) -> bool {
        matches!(self.stage, Stage::Looking)
    }

    /// Its items are not for everybody to take.
    pub(crate) fn is_parked(&self) -> bool {
        self.held || self.is_looking()
    }

    /// Somebody wants to know what the path leads to: if it was found to be a symbolic link, and
    /// looked at as such, it is to be looked up again.
    pub(crate) fn follow(&mut self, fx: &mut Effects<F>) {
        self.follow = true;
        if let Stage::Open(Found { class: Class::Link, file }) = &self.stage {
            fx.files.push(file.clone());
            self.stage = Stage::Waiting;
        }
    }

    /// True when the lookup that a hint implies is over; `follows` says how far it has to go.
    pub(crate) fn is_known(&self, follows: bool) -> bool {
        matches!(self.stage, Stage::Open(_)) || self.seen && !follows
    }

    /// True when nothing is left to do for it and nobody is doing anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.running == 0 && self.slots.iter().all(Option::is_none) && self.data.is_idle()
    }

    /// True when it was not looked up and nothing is left that would need that.
    pub(crate) fn is_unwanted(&self) -> bool {
        matches!(self.stage, Stage::Waiting) && self.items().is_empty()
    }

    /// Everything that waits.
    pub(crate) fn items(&self) -> Vec<(Rank, Item)> {
        let waiting = |slot: &&Slot| !slot.started;
        let slots = SLOTS.iter().zip(&self.slots);
        slots
            .filter_map(|((item, _), slot)| Some((slot.as_ref().filter(waiting)?.rank, *item)))
            .chain(self.data.items())
            .collect()
    }

    /// Marks a key done under all names that the path goes by.
    fn done(&self, fx: &mut Effects<F>, of: impl Fn(Identity) -> Identity) {
        fx.done.extend(self.keys.iter().map(|&key| of(key)));
    }

    fn forget(&self, before: Option<u32>, fx: &mut Effects<F>, of: impl Fn(Identity) -> Identity) {
        let before = before.unwrap_or(u32::MAX);
        fx.forget.extend(self.keys.iter().map(|&key| (of(key), before)));
    }

    /// Nobody will look it up any more. A link that was looked up as such, before somebody wanted
    /// to follow it, is known nevertheless.
    pub(crate) fn give_up_lookup(&self, before: Option<u32>, fx: &mut Effects<F>) {
        if self.seen { self.done(fx, |key| key) } else { self.forget(before, fx, |key| key) }
    }

    /// Tells what became of `key`: an answer, or nothing.
    fn settle(
        &self,
        trouble: Option<Trouble>,
        fx: &mut Effects<F>,
        of: impl Fn(Identity) -> Identity,
    ) {
        match trouble {
            Some(Trouble::Ours) => self.forget(None, fx, of),
            Some(Trouble::Answer) | None => self.done(fx, of),
        }
    }

    /// The same for those chunks of `range` that nothing else is going to read. The others are
    /// settled with what is left of them.
    fn settle_data(&mut self, trouble: Option<Trouble>, range: &Range<u64>, fx: &mut Effects<F>) {
        for chunk in chunks(range) {
            if self.data.has_work_in(chunk) {
                self.partly_read.insert(chunk.0);
            } else {
                self.partly_read.remove(&chunk.0);
                self.settle(trouble, fx, |key| key.chunk(chunk));
            }
        }
    }

    /// Wants something other than data. `None` when that was answered at once.
    pub(crate) fn want(
        &mut self,
        item: Item,
        tag: Tag,
        shelf: &mut Shelf<'_>,
        fx: &mut Effects<F>,
    ) -> Option<Added> {
        if let Stage::Open(found) = &self.stage {
            let failed = item == Item::Listing && found.class != Class::Directory;
            if failed || item == Item::Lookup {
                if failed {
                    self.done(fx, |key| slot_key(item, key));
                }
                fx.complete(SLOTS[index(item)].1, &tag, 0, failed);
                return None;
            }
        }
        // A lookup under way is the answer to one that is wanted now.
        let started = item == Item::Lookup && self.is_looking();
        match &mut self.slots[index(item)] {
            Some(slot) => {
                if !slot.started {
                    shelf.remove(slot.rank, item);
                }
                slot.tag.renew(&tag);
                slot.rank = slot.tag.rank();
                if !slot.started {
                    shelf.insert(slot.rank, item);
                }
                Some(Added::Known)
            }
            empty => {
                let rank = tag.rank();
                *empty = Some(Slot { tag, rank, started });
                if !started {
                    shelf.insert(rank, item);
                }
                Some(Added::New)
            }
        }
    }

    /// Wants a range of data, not empty. `None` when that was answered at once.
    pub(crate) fn want_data(
        &mut self,
        range: Range<u64>,
        tag: Tag,
        shelf: &mut Shelf<'_>,
        fx: &mut Effects<F>,
    ) -> Option<Added> {
        let Stage::Open(found) = &self.stage else {
            return Some(self.data.add(range, &tag, shelf));
        };
        let Class::File { size } = found.class else {
            self.settle_data(None, &range, fx);
            fx.complete(HintKind::Data, &tag, 0, true);
            return None;
        };
        let extend = tag.flags & LENGTH_UNKNOWN != 0 && size <= EXTEND_MAX_BYTES;
        let end = if extend { size } else { range.end.min(size) };
        let added = (range.start < end).then(|| self.data.add(range.start..end, &tag, shelf));
        if range.end > end {
            self.settle_data(None, &(end.max(range.start)..range.end), fx);
        }
        if added.is_none() {
            fx.complete(HintKind::Data, &tag, 0, false);
        }
        added
    }

    /// The lookup starts: it is the answer to what waits for one.
    pub(crate) fn start_lookup(&mut self, shelf: &mut Shelf<'_>) {
        if let Some(slot) = &mut self.slots[index(Item::Lookup)]
            && !slot.started
        {
            shelf.remove(slot.rank, Item::Lookup);
            slot.started = true;
        }
    }

    /// Starts on an item of an open entry.
    pub(crate) fn start(&mut self, item: Item, file: Arc<F>, shelf: &mut Shelf<'_>) -> Step<F> {
        if let Item::Data(start) = item {
            let range = self.data.cut(start, shelf).unwrap_or(start..start);
            return Step::Read { file, range };
        }
        let mut wish = None;
        if let Some(slot) = &mut self.slots[index(item)] {
            shelf.remove(slot.rank, item);
            slot.started = true;
            wish = Wish::of(&self.path, &self.keys, &slot.tag);
        }
        match item {
            Item::Link => Step::Link { path: self.path.clone() },
            _ => Step::List { file, wish },
        }
    }

    /// Ends what slot `item` holds, and says how.
    fn end_slot(&mut self, item: Item, trouble: Option<Trouble>, fx: &mut Effects<F>) {
        if let Some(slot) = self.slots[index(item)].take() {
            // The path's own key is settled by the lookup, whether a hint asked for one or not.
            if item != Item::Lookup {
                self.settle(trouble, fx, |key| slot_key(item, key));
            }
            fx.complete(SLOTS[index(item)].1, &slot.tag, 0, trouble.is_some());
        }
    }

    /// The lookup brought `found`: answers what that answers, and opens the way for the rest.
    pub(crate) fn open(&mut self, found: Found<F>, shelf: &mut Shelf<'_>, fx: &mut Effects<F>) {
        let class = found.class;
        self.stage = Stage::Open(found);
        self.seen = true;
        self.done(fx, |key| key);
        self.end_slot(Item::Lookup, None, fx);
        if class != Class::Directory {
            self.end_waiting_slot(Item::Listing, Trouble::Answer, shelf, fx);
        }
        let (size, refused) = match class {
            Class::File { size } => (size, false),
            _ => (0, true),
        };
        let (cut, groups) = self.data.fit(size, EXTEND_MAX_BYTES, shelf);
        cut.iter().for_each(|range| self.settle_data(None, range, fx));
        fx.complete_groups(groups, refused);
    }

    /// The lookup failed, and with it all that waits.
    pub(crate) fn fail(&mut self, trouble: Trouble, shelf: &mut Shelf<'_>, fx: &mut Effects<F>) {
        self.settle(Some(trouble), fx, |key| key);
        self.end_slot(Item::Lookup, Some(trouble), fx);
        self.end_waiting_slot(Item::Listing, trouble, shelf, fx);
        self.end_waiting_slot(Item::Link, trouble, shelf, fx);
        let (cut, groups) = self.data.fit(0, 0, shelf);
        cut.iter().for_each(|range| self.settle_data(Some(trouble), range, fx));
        fx.complete_groups(groups, true);
    }

    fn end_waiting_slot(
        &mut self,
        item: Item,
        trouble: Trouble,
        shelf: &mut Shelf<'_>,
        fx: &mut Effects<F>,
    ) {
        if let Some(slot) = &self.slots[index(item)]
            && !slot.started
        {
            shelf.remove(slot.rank, item);
            self.end_slot(item, Some(trouble), fx);
        }
    }

    /// A step on the open entry is over.
    pub(crate) fn finish(
        &mut self,
        step: &Step<F>,
        result: Result<u64, Trouble>,
        fx: &mut Effects<F>,
    ) {
        let trouble = result.err();
        match step {
            Step::List { .. } => self.end_slot(Item::Listing, trouble, fx),
            Step::Link { .. } => self.end_slot(Item::Link, trouble, fx),
            Step::Read { range, .. } => {
                let bytes = result.unwrap_or(0);
                let group = self.data.finish(range.start, bytes, trouble.is_some());
                self.settle_data(trouble, range, fx);
                fx.complete_groups(group.into_iter().collect(), false);
            }
            Step::Look { .. } => unreachable!("a lookup ends in Queue::looked"),
        }
    }

    /// See [`super::Queue::drop_stale`].
    pub(crate) fn drop_stale(
        &mut self,
        before: Option<u32>,
        shelf: &mut Shelf<'_>,
        fx: &mut Effects<F>,
    ) -> usize {
        let mut dropped = 0;
        for (item, _) in SLOTS {
            let stale = |slot: &mut Slot| !slot.started && slot.tag.is_stale(before);
            let Some(slot) = self.slots[index(item)].take_if(stale) else { continue };
            shelf.remove(slot.rank, item);
            dropped += slot.tag.hints as usize;
            if item != Item::Lookup {
                self.forget(before, fx, |key| slot_key(item, key));
            }
        }
        let (ranges, groups) = self.data.drop_stale(before, shelf);
        for chunk in ranges.iter().flat_map(chunks) {
            if self.data.has_work_in(chunk) {
                continue;
            }
            if self.partly_read.remove(&chunk.0) {
                self.done(fx, |key| key.chunk(chunk));
            } else {
                self.forget(before, fx, |key| key.chunk(chunk));
            }
        }
        dropped + groups.iter().map(|group| group.tag.hints as usize).sum::<usize>()
    }
}
