//! What is to be read, as data: no thread, no file, no clock.
//!
//! There is one entry for each path, from the first hint that names it until nothing is left to do
//! for it. A worker looks the path up once ([`Step::Look`]), which answers `Lookup` hints and tells
//! what the others may do; the handle it brings back serves all of them, those too that arrive
//! while it is being looked up. See [`crate::order`] for the order and [`crate::ranges`] for data.
//!
//! Invariants: a hint that was accepted is completed once (possibly merged with others) or dropped;
//! each of its log keys is marked done when nothing that it covers is left to be read, or
//! forgotten, after which no trace of it remains; no entry without work or worker exists.
//!
//! Nothing here calls out: what has to be told to the [`crate::Sink`] is collected in [`Effects`],
//! for the caller to act on once it has let go of the lock.

use std::collections::HashMap;
use std::sync::Arc;

use runahead_abi::record::{DEMAND, LENGTH_UNKNOWN, NO_FOLLOW};
use runahead_abi::{HintKind, Identity, Record};

mod entry;
mod job;
mod siblings;
#[cfg(test)]
mod tests;

use self::entry::{Entry, Stage};
pub(crate) use self::job::{Class, Effects, Found, Job, Step, Trouble};
use self::siblings::Siblings;
use crate::HINT_MAX_BYTES;
use crate::order::{EntryId, Item, Order, Tag};
use crate::ranges::{Added, chunks};

/// What became of a submitted hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Submitted {
    /// It waits, as a job of its own.
    Queued,
    /// It waits, joined to what was there for the path.
    Merged,
    /// All of it waits already or is being read.
    Duplicate,
    /// Its answer is known: completed at once.
    Answered,
    /// No room: its keys were forgotten.
    Refused,
}

/// Files kept open at most while lookups go first.
const OPEN_MAX: usize = 512;

/// See the module's text. `F` is the handle of an open file.
pub(crate) struct Queue<F> {
    entries: HashMap<EntryId, Entry<F>>,
    paths: HashMap<Arc<[u8]>, EntryId>,
    order: Order,
    siblings: Siblings,
    lookups_first: bool,
    next_id: EntryId,
    max_items: usize,
}

impl<F> Queue<F> {
    /// A queue that refuses hints once `max_items` parts of hints wait.
    pub(crate) fn new(max_items: usize) -> Self {
        Queue {
            entries: HashMap::new(),
            paths: HashMap::new(),
            order: Order::default(),
            siblings: Siblings::default(),
            lookups_first: false,
            next_id: 0,
            max_items,
        }
    }

    /// Parts of hints that wait.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Parts of hints that a worker could start on now.
    pub(crate) fn ready(&self) -> usize {
        self.order.ready()
    }

    /// Takes a hint in.
    pub(crate) fn submit(&mut self, record: &Record<'_>, fx: &mut Effects<F>) -> Submitted {
        let tag = Tag::of(&record.header);
        let key = Identity::from_raw(record.header.key);
        let known = self.paths.get(record.path).copied();
        let full = self.order.len() >= self.max_items && tag.flags & DEMAND == 0;
        let room = known.is_none_or(|id| self.entries[&id].has_room_for(key));
        if full || !room {
            self.refuse(record, known, fx);
            return Submitted::Refused;
        }
        let id = known.unwrap_or_else(|| self.create(record.path));
        if tag.flags & DEMAND != 0 {
            self.let_go(id);
        }
        let Some(entry) = self.entries.get_mut(&id) else { unreachable!("{id} is a live entry") };
        entry.add_key(key);
        let follows = record.kind != HintKind::Link && record.header.flags & NO_FOLLOW == 0;
        if follows {
            entry.follow(fx);
        }
        if entry.is_known(follows) {
            fx.done.push(key);
        }
        let mut shelf = self.order.shelf(id, entry.is_parked());
        let header = &record.header;
        let done = match record.kind {
            HintKind::Lookup => entry.want(Item::Lookup, tag, &mut shelf, fx),
            HintKind::Listing => entry.want(Item::Listing, tag, &mut shelf, fx),
            HintKind::Link => entry.want(Item::Link, tag, &mut shelf, fx),
            HintKind::Data if header.length == 0 && header.flags & LENGTH_UNKNOWN == 0 => {
                entry.want(Item::Lookup, tag, &mut shelf, fx)
            }
            HintKind::Data => {
                let length = header.length.clamp(1, HINT_MAX_BYTES);
                let range = header.offset..header.offset.saturating_add(length);
                entry.want_data(range, tag, &mut shelf, fx)
            }
        };
        self.retire_if_idle(id, fx);
        match done {
            Some(Added::New) if known.is_none() => Submitted::Queued,
            Some(Added::New | Added::Joined) => Submitted::Merged,
            Some(Added::Known) => Submitted::Duplicate,
            None => Submitted::Answered,
        }
    }

    fn create(&mut self, path: &[u8]) -> EntryId {
        let id = self.next_id;
        self.next_id += 1;
        let path: Arc<[u8]> = path.into();
        self.paths.insert(path.clone(), id);
        self.entries.insert(id, Entry::new(path));
        id
    }

    fn refuse(&self, record: &Record<'_>, known: Option<EntryId>, fx: &mut Effects<F>) {
        let header = &record.header;
        let key = Identity::from_raw(header.key);
        let before = header.run.saturating_add(1);
        let entry = known.map(|id| &self.entries[&id]).filter(|entry| entry.has_key(key));
        if entry.is_none() {
            fx.forget.push((key, before));
        }
        match record.kind {
            HintKind::Lookup => {}
            HintKind::Listing if entry.is_some_and(|e| e.has(Item::Listing)) => {}
            HintKind::Link if entry.is_some_and(|e| e.has(Item::Link)) => {}
            HintKind::Listing => fx.forget.push((key.listing(), before)),
            HintKind::Link => fx.forget.push((key.link(), before)),
            HintKind::Data => {
                let length = header.length.min(HINT_MAX_BYTES);
                let range = header.offset..header.offset.saturating_add(length);
                let idle = |&c: &_| entry.is_none_or(|e| !e.data.has_work_in(c));
                let idle = chunks(&range).filter(idle);
                fx.forget.extend(idle.map(|chunk| (key.chunk(chunk), before)));
            }
        }
    }

    /// True when the target waits for what comes first.
    pub(crate) fn is_urgent(&self) -> bool {
        self.order.is_urgent()
    }

    /// The next step to take, if there is one. The worker that gets it calls [`Queue::looked`] or
    /// [`Queue::finish`] when it is over.
    pub(crate) fn pop(&mut self) -> Option<Job<F>> {
        loop {
            let urgent = self.order.is_urgent();
            let (id, item) = if urgent { self.order.first()? } else { self.next()? };
            let entry = self.entries.get_mut(&id)?;
            if matches!(entry.stage, Stage::Waiting) && !urgent {
                entry.takes_turn = self.siblings.begin(id, &entry.path);
                if !entry.takes_turn {
                    entry.held = true;
                    for (rank, item) in entry.items() {
                        self.order.shelf(id, false).park(rank, item);
                    }
                    continue;
                }
            }
            return self.take(id, item);
        }
    }

    /// What to take next, if nothing is urgent.
    fn next(&self) -> Option<(EntryId, Item)> {
        let waits = |&(id, _): &(EntryId, Item)| {
            self.entries.get(&id).is_some_and(|e| matches!(e.stage, Stage::Waiting))
        };
        let lookup = match self.lookups_first {
            true => self.order.iter().take(OPEN_MAX).find(waits),
            false => None,
        };
        lookup.or_else(|| self.order.first())
    }

    /// Whether names are looked up before any of their data is read. Where requests seek, names
    /// lie together and data lies together, and going back and forth costs a seek each way.
    pub(crate) fn set_lookups_first(&mut self, lookups_first: bool) {
        self.lookups_first = lookups_first;
    }

    /// Whether lookups in one directory share what they read: not on a remote file system.
    pub(crate) fn set_take_turns(&mut self, take_turns: bool) {
        self.siblings.take_turns = take_turns;
    }

    /// Ends the hold on an entry, if there is one.
    fn let_go(&mut self, id: EntryId) {
        let Some(entry) = self.entries.get_mut(&id).filter(|e| e.held) else { return };
        entry.held = false;
        for (rank, item) in entry.items() {
            self.order.shelf(id, true).unpark(rank, item);
        }
    }

    /// Starts on `item`, which is the first of what waits, or was just unparked.
    fn take(&mut self, id: EntryId, item: Item) -> Option<Job<F>> {
        let entry = self.entries.get_mut(&id)?;
        entry.running += 1;
        let step = match &entry.stage {
            Stage::Open(found) => {
                let file = found.file.clone();
                let mut shelf = self.order.shelf(id, false);
                entry.start(item, file, &mut shelf)
            }
            Stage::Waiting | Stage::Looking => {
                entry.stage = Stage::Looking;
                for (rank, item) in entry.items() {
                    self.order.shelf(id, false).park(rank, item);
                }
                entry.start_lookup(&mut self.order.shelf(id, true));
                Step::Look { path: entry.path.clone(), follow: entry.follow }
            }
        };
        Some(Job { entry: id, step })
    }

    /// A [`Step::Look`] came back. The step that the same worker shall take next, if there is one.
    pub(crate) fn looked(
        &mut self,
        job: Job<F>,
        result: Result<Found<F>, Trouble>,
        fx: &mut Effects<F>,
    ) -> Option<Job<F>> {
        let id = job.entry;
        let entry = self.entries.get_mut(&id)?;
        if std::mem::take(&mut entry.takes_turn) {
            for free in self.siblings.ended(&entry.path) {
                self.let_go(free);
            }
        }
        let entry = self.entries.get_mut(&id)?;
        entry.running -= 1;
        let followed = matches!(job.step, Step::Look { follow: true, .. });
        match result {
            Ok(found) if found.class == Class::Link && entry.follow && !followed => {
                // A hint that follows came in meanwhile.
                fx.files.push(found.file);
                entry.running += 1;
                let step = Step::Look { path: entry.path.clone(), follow: true };
                return Some(Job { entry: id, step });
            }
            Ok(found) => entry.open(found, &mut self.order.shelf(id, true), fx),
            Err(trouble) => {
                entry.stage = Stage::Waiting;
                entry.fail(trouble, &mut self.order.shelf(id, true), fx);
            }
        }
        let mut items = entry.items();
        items.sort_unstable();
        for &(rank, item) in &items {
            self.order.shelf(id, true).unpark(rank, item);
        }
        match items.first() {
            Some(_) if self.lookups_first => None,
            Some(&(_, item)) => self.take(id, item),
            None => {
                self.retire_if_idle(id, fx);
                None
            }
        }
    }

    /// A step other than [`Step::Look`] is over: how many bytes it read, or what went wrong.
    pub(crate) fn finish(
        &mut self,
        job: Job<F>,
        result: Result<u64, Trouble>,
        fx: &mut Effects<F>,
    ) {
        let Some(entry) = self.entries.get_mut(&job.entry) else { return };
        entry.running -= 1;
        entry.finish(&job.step, result, fx);
        self.retire_if_idle(job.entry, fx);
        if let Step::List { file, .. } | Step::Read { file, .. } = job.step {
            fx.files.push(file);
        }
    }

    /// Gives up all parts of hints of runs before `before` that no worker has started on, except
    /// what the target waits for; with `None`, all parts. Returns how many hints that ends.
    pub(crate) fn drop_stale(&mut self, before: Option<u32>, fx: &mut Effects<F>) -> usize {
        let mut dropped = 0;
        let ids: Vec<EntryId> = self.entries.keys().copied().collect();
        for id in ids {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            let mut shelf = self.order.shelf(id, entry.is_parked());
            dropped += entry.drop_stale(before, &mut shelf, fx);
            if entry.is_unwanted() {
                entry.give_up_lookup(before, fx);
            }
            self.retire_if_idle(id, fx);
        }
        dropped
    }

    fn retire_if_idle(&mut self, id: EntryId, fx: &mut Effects<F>) {
        if self.entries.get(&id).is_some_and(Entry::is_idle)
            && let Some(entry) = self.entries.remove(&id)
        {
            self.paths.remove(&entry.path);
            // Closing a file may wait for a server: not under the lock.
            if let Stage::Open(found) = entry.stage {
                fx.files.push(found.file);
            }
        }
    }
}
