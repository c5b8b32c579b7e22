//! Submission of hints: they are accepted, merged by path, or refused.

use std::sync::Arc;
use std::time::Duration;

use runahead_abi::hint_record::{LENGTH_UNKNOWN, NO_FOLLOW};
use runahead_abi::{HintKind, Record};
use runahead_estimators::Identity;
use runahead_predict::{
    ClientId, Effects, EntryId, HINT_MAX_BYTES, Item, Submitted, Tag, TaskQueue, has_room,
};

use super::path_entry::{Entry, Stage};
use super::queue_state::Queue;
use crate::byte_ranges::{Added, chunks};

impl<F> Queue<F> {
    /// True if there is no room for another hint. A demand is refused only if there is far too much
    /// of it.
    fn is_full(&self, client: ClientId, tag: &Tag) -> bool {
        let (own, all) = (self.queues.parts_of(client), self.queues.parts());
        match tag.is_demand() {
            true => own >= self.max_items || all >= 2 * self.max_items,
            false => !has_room(own + 1, all + 1, self.max_items),
        }
    }

    /// Takes a hint in.
    pub(crate) fn submit(
        &mut self,
        client: ClientId,
        record: &Record<'_>,
        now: Duration,
        fx: &mut Effects<F>,
    ) -> Submitted {
        if !self.queues.is_open(client) {
            return self.refuse(client, record, fx);
        }
        let tag = Tag::of(&record.header);
        let key = Identity::from_raw(record.header.key);
        if record.kind == HintKind::Program {
            if !self.loads_programs || self.is_full(client, &tag) {
                return self.refuse(client, record, fx);
            }
            let (id, hint) = (self.new_id(), (client, key, tag));
            return self.programs.submit(id, hint, (record.path, now), &mut self.queues, fx);
        }
        let known = self.paths.get(record.path).copied();
        let share = known.and_then(|id| self.entries[&id].share(client));
        let room = share.is_none_or(|share| share.has_room_for(key));
        if !room || self.is_full(client, &tag) {
            return self.refuse(client, record, fx);
        }
        self.guesses.saw(client, record, &mut self.queues);
        let id = known.unwrap_or_else(|| self.create(record.path));
        if tag.is_demand() {
            self.let_go(id);
        }
        let Some(entry) = self.entries.get_mut(&id) else { unreachable!("{id} is a live entry") };
        if tag.is_demand() && matches!(entry.stage, Stage::Waiting) {
            // It must not wait for room on a device that its directory is not on.
            let better = self.queues.whereabouts.find(&entry.path);
            if better.is_some() {
                entry.move_to(better, &mut self.queues);
            }
        }
        let header = &record.header;
        let follows = record.kind != HintKind::Link && header.flags & NO_FOLLOW == 0;
        let queues = &mut self.queues;
        entry.join(client, key, follows, queues, fx);
        let item = match record.kind {
            HintKind::Lookup => Item::Lookup,
            HintKind::Listing => Item::Listing,
            HintKind::Link => Item::Link,
            _ if header.length == 0 && header.flags & LENGTH_UNKNOWN == 0 => Item::Lookup,
            _ => Item::Data(header.offset),
        };
        let done = match item {
            Item::Data(start) => {
                let length = header.length.clamp(1, HINT_MAX_BYTES);
                let range = start..start.saturating_add(length);
                entry.want_data(client, range, tag, queues, fx)
            }
            _ => entry.want(client, item, tag, queues, fx),
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
        let id = self.new_id();
        let path: Arc<[u8]> = path.into();
        self.paths.insert(path.clone(), id);
        let home = self.queues.whereabouts.find(&path);
        self.entries.insert(id, Entry::new(id, path, home));
        id
    }

    /// Turns a hint away.
    pub(crate) fn refuse(
        &self,
        client: ClientId,
        record: &Record<'_>,
        fx: &mut Effects<F>,
    ) -> Submitted {
        let header = &record.header;
        let key = Identity::from_raw(header.key);
        let before = header.run.saturating_add(1);
        let entry = self.paths.get(record.path).map(|id| &self.entries[id]);
        let share = entry.and_then(|e| e.share(client)).filter(|share| share.has_key(key));
        let mut forget = |key| fx.forget.push((client, key, before));
        if share.is_none() {
            forget(key);
        }
        match record.kind {
            HintKind::Lookup | HintKind::Program | HintKind::Cancel => {}
            HintKind::Listing if share.is_some_and(|s| s.has(Item::Listing)) => {}
            HintKind::Link if share.is_some_and(|s| s.has(Item::Link)) => {}
            HintKind::Listing => forget(key.listing()),
            HintKind::Link => forget(key.link()),
            HintKind::Data => {
                let length = header.length.min(HINT_MAX_BYTES);
                let range = header.offset..header.offset.saturating_add(length);
                let waits = |chunk| share.is_some_and(|s| s.has_work_in(chunk));
                chunks(&range).filter(|&c| !waits(c)).for_each(|c| forget(key.chunk(c)));
            }
        }
        Submitted::Refused
    }
}
