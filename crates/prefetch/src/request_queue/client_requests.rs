//! Requests of one client for one path.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashSet;
use runahead_abi::HintKind;
use runahead_estimators::Identity;
use runahead_predict::{
    ClientId, EXTEND_MAX_BYTES, Effects, EntryId, ExpansionRequest, Item, PIECE_BYTES, Rank,
    StepFailure, Tag,
};

use super::worker_job::Class;
use crate::byte_ranges::{Added, Group, Ranges, chunks};
use crate::fair_queue::{ClientQueues, QueueHandle};

/// Identities that one path may go by: a program can reach it from the root and from its working
/// directory, seldom in a third way. Bounded, because every key done is done once for each.
const KEYS_MAX: usize = 4;

/// A want other than data, and whether a worker is on it.
pub(super) struct Slot {
    pub tag: Tag,
    pub rank: Rank,
    pub started: bool,
}

/// Share of one client in a path.
pub(crate) struct Share {
    pub client: ClientId,
    pub(super) entry: EntryId,
    keys: Vec<Identity>,
    /// Some hint means what a symbolic link leads to. The lookup then passes the link itself, so
    /// it serves those too that do not follow.
    pub follow: bool,
    /// Lookup, listing, link.
    pub(super) slots: [Option<Slot>; 3],
    pub(super) data: Ranges,
    /// Chunks that a hint got all its bytes of, while another still waits for bytes of them.
    pub(super) partly_read: HashSet<u64>,
}

pub(super) fn index(item: Item) -> usize {
    match item {
        Item::Lookup => 0,
        Item::Listing => 1,
        Item::Link => 2,
        _ => unreachable!("{item:?} has no slot"),
    }
}

pub(super) const SLOTS: [(Item, HintKind); 3] = [
    (Item::Lookup, HintKind::Lookup),
    (Item::Listing, HintKind::Listing),
    (Item::Link, HintKind::Link),
];

/// The log key of what a slot stands for.
pub(super) fn slot_key(item: Item, key: Identity) -> Identity {
    match item {
        Item::Listing => key.listing(),
        Item::Link => key.link(),
        _ => key,
    }
}

impl Share {
    pub(crate) fn new(client: ClientId, entry: EntryId) -> Self {
        Share {
            client,
            entry,
            keys: Vec::with_capacity(1),
            follow: false,
            slots: [const { None }; 3],
            data: Ranges::default(),
            partly_read: HashSet::new(),
        }
    }

    fn shelf<'a>(&self, queues: &'a mut ClientQueues, parked: bool) -> QueueHandle<'a> {
        queues.shelf(self.client, self.entry, parked)
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

    /// True while a byte of the chunk is wanted or being read.
    pub(crate) fn has_work_in(&self, chunk: runahead_estimators::ChunkIndex) -> bool {
        self.data.has_work_in(chunk)
    }

    /// True if nothing is left to do and no worker is busy with it.
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.iter().all(Option::is_none) && self.data.is_idle()
    }

    /// Everything that waits.
    pub(crate) fn items(&self) -> impl Iterator<Item = (Rank, Item)> + '_ {
        let waiting = |slot: &&Slot| !slot.started;
        let slots = SLOTS.iter().zip(&self.slots);
        slots
            .filter_map(move |((item, _), slot)| Some((slot.as_ref().filter(waiting)?.rank, *item)))
            .chain(self.data.items())
    }

    /// Moves all items to where they belong once their entry is parked, or no longer is.
    pub(crate) fn park(&self, park: bool, queues: &mut ClientQueues) {
        for (rank, item) in self.items() {
            let mut shelf = self.shelf(queues, !park);
            if park { shelf.park(rank, item) } else { shelf.unpark(rank, item) }
        }
    }

    /// Marks a key done under all names that the path goes by.
    pub(crate) fn done<F>(&self, fx: &mut Effects<F>, of: impl Fn(Identity) -> Identity) {
        fx.done.extend(self.keys.iter().map(|&key| (self.client, of(key))));
    }

    pub(crate) fn forget<F>(
        &self,
        before: Option<u32>,
        fx: &mut Effects<F>,
        of: impl Fn(Identity) -> Identity,
    ) {
        let before = before.unwrap_or(u32::MAX);
        fx.forget.extend(self.keys.iter().map(|&key| (self.client, of(key), before)));
    }

    /// Tells what became of `key`: an answer, or nothing.
    pub(crate) fn settle<F>(
        &self,
        trouble: Option<StepFailure>,
        fx: &mut Effects<F>,
        of: impl Fn(Identity) -> Identity,
    ) {
        match trouble {
            Some(StepFailure::Ours) => self.forget(None, fx, of),
            Some(StepFailure::Answer) | None => self.done(fx, of),
        }
    }

    /// Settles those chunks of `range` that nothing else is going to read. The others are
    /// settled with what is left of them.
    fn settle_data<F>(
        &mut self,
        trouble: Option<StepFailure>,
        range: &Range<u64>,
        fx: &mut Effects<F>,
    ) {
        for chunk in chunks(range) {
            if self.data.has_work_in(chunk) {
                self.partly_read.insert(chunk.0);
            } else {
                self.partly_read.remove(&chunk.0);
                self.settle(trouble, fx, |key| key.chunk(chunk));
            }
        }
    }

    /// Wants something other than data, which a worker is already on if `started`. `None` when
    /// that was answered at once by `class`, which says what the path names.
    pub(crate) fn want<F>(
        &mut self,
        item: Item,
        tag: Tag,
        (class, started): (Option<Class>, bool),
        shelf: &mut QueueHandle<'_>,
        fx: &mut Effects<F>,
    ) -> Option<Added> {
        if let Some(class) = class {
            let failed = item == Item::Listing && class != Class::Directory;
            if failed || item == Item::Lookup {
                if failed {
                    self.done(fx, |key| slot_key(item, key));
                }
                fx.complete(self.client, SLOTS[index(item)].1, &tag, 0, failed);
                return None;
            }
        }
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
    pub(crate) fn want_data<F>(
        &mut self,
        range: Range<u64>,
        tag: Tag,
        class: Option<Class>,
        shelf: &mut QueueHandle<'_>,
        fx: &mut Effects<F>,
    ) -> Option<Added> {
        let Some(class) = class else {
            return Some(self.data.add(range, &tag, shelf));
        };
        let Class::File { size } = class else {
            self.settle_data(None, &range, fx);
            fx.complete(self.client, HintKind::Data, &tag, 0, true);
            return None;
        };
        let extended = tag.end_in(range.start, size, EXTEND_MAX_BYTES);
        let end = extended.unwrap_or(range.end.min(size));
        let added = (range.start < end).then(|| self.data.add(range.start..end, &tag, shelf));
        if range.end > end {
            self.settle_data(None, &(end.max(range.start)..range.end), fx);
        }
        if added.is_none() {
            fx.complete(self.client, HintKind::Data, &tag, 0, false);
        }
        added
    }

    /// A worker is on `item`, which is not data: it is so for this client, too, if it wants that.
    pub(crate) fn start(&mut self, item: Item, queues: &mut ClientQueues, parked: bool) {
        if let Some(slot) = &mut self.slots[index(item)]
            && !slot.started
        {
            slot.started = true;
            queues.shelf(self.client, self.entry, parked).remove(slot.rank, item);
        }
    }

    /// True if `item` waits.
    pub(crate) fn waits(&self, item: Item) -> bool {
        match item {
            Item::Data(start) => self.data.tag(start).is_some(),
            Item::Lookup | Item::Listing | Item::Link => {
                self.slots[index(item)].as_ref().is_some_and(|slot| !slot.started)
            }
            Item::Program | Item::Names | Item::Guess => false,
        }
    }

    /// Returns the tag of `item`.
    pub(crate) fn tag(&self, item: Item) -> Option<Tag> {
        match item {
            Item::Data(start) => self.data.tag(start),
            Item::Lookup | Item::Listing | Item::Link => {
                self.slots[index(item)].as_ref().map(|slot| slot.tag)
            }
            Item::Program | Item::Names | Item::Guess => None,
        }
    }

    /// Cuts off the first piece of the want that starts at `start`, of so many bytes at most if
    /// that is given.
    pub(crate) fn cut(
        &mut self,
        (start, most): (u64, Option<u64>),
        queues: &mut ClientQueues,
    ) -> Option<Range<u64>> {
        let mut shelf = queues.shelf(self.client, self.entry, false);
        self.data.cut(start, most.unwrap_or(PIECE_BYTES), &mut shelf)
    }

    /// A worker reads `range`: it does so for this client, too.
    pub(crate) fn claim(&mut self, range: &Range<u64>, queues: &mut ClientQueues) {
        let mut shelf = queues.shelf(self.client, self.entry, false);
        self.data.claim(range, &mut shelf);
    }

    /// Returns the request to expand the directory `path`, whose reading has begun.
    pub(crate) fn wish(&self, path: &Arc<[u8]>) -> Option<ExpansionRequest> {
        let slot = self.slots[index(Item::Listing)].as_ref().filter(|slot| slot.started)?;
        ExpansionRequest::of(self.client, path, &self.keys, &slot.tag)
    }

    /// Completes slot `item`, if no worker has begun it: there is nothing to be read.
    pub(crate) fn end<F>(&mut self, item: Item, trouble: Option<StepFailure>, fx: &mut Effects<F>) {
        if let Some(slot) = self.slots[index(item)].take_if(|slot| slot.started) {
            // The path's own key is settled by the lookup, whether a hint asked for one or not.
            if item != Item::Lookup {
                self.settle(trouble, fx, |key| slot_key(item, key));
            }
            fx.complete(self.client, SLOTS[index(item)].1, &slot.tag, 0, trouble.is_some());
        }
    }

    /// Completes slot `item`, if no worker has begun it: there is nothing to be read.
    fn end_waiting<F>(
        &mut self,
        item: Item,
        trouble: StepFailure,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) {
        if self.slots[index(item)].as_ref().is_some_and(|slot| !slot.started) {
            self.start(item, queues, true);
            self.end(item, Some(trouble), fx);
        }
    }

    /// The lookup brought `class`: what that answers is answered. The entry is still parked.
    pub(crate) fn open<F>(&mut self, class: Class, queues: &mut ClientQueues, fx: &mut Effects<F>) {
        self.done(fx, |key| key);
        self.end(Item::Lookup, None, fx);
        if class != Class::Directory {
            self.end_waiting(Item::Listing, StepFailure::Answer, queues, fx);
        }
        let (size, refused) = match class {
            Class::File { size } => (size, false),
            _ => (0, true),
        };
        self.fit(size, refused, None, queues, fx);
    }

    fn fit<F>(
        &mut self,
        size: u64,
        refused: bool,
        trouble: Option<StepFailure>,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) {
        let mut shelf = queues.shelf(self.client, self.entry, true);
        let (cut, groups) = self.data.fit(size, EXTEND_MAX_BYTES, &mut shelf);
        cut.iter().for_each(|range| self.settle_data(trouble, range, fx));
        complete_groups(fx, self.client, groups, refused);
    }

    /// The lookup failed, and with it all that waits. The entry is still parked.
    pub(crate) fn fail<F>(
        &mut self,
        trouble: StepFailure,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) {
        self.settle(Some(trouble), fx, |key| key);
        self.end(Item::Lookup, Some(trouble), fx);
        self.end_waiting(Item::Listing, trouble, queues, fx);
        self.end_waiting(Item::Link, trouble, queues, fx);
        self.fit(0, true, Some(trouble), queues, fx);
    }

    /// A worker read the first `bytes` of `range`, or nothing.
    pub(crate) fn read<F>(
        &mut self,
        range: &Range<u64>,
        result: Result<u64, StepFailure>,
        fx: &mut Effects<F>,
    ) {
        let trouble = result.err();
        let (pieces, groups) = self.data.finish(range, result.unwrap_or(0), trouble.is_some());
        pieces.iter().for_each(|piece| self.settle_data(trouble, piece, fx));
        complete_groups(fx, self.client, groups, false);
    }
}

/// Reports `groups` as completed.
fn complete_groups<F>(fx: &mut Effects<F>, client: ClientId, groups: Vec<Group>, failed: bool) {
    for group in groups {
        let failed = group.failed || failed;
        fx.complete(client, HintKind::Data, &group.tag, group.bytes, failed);
    }
}
