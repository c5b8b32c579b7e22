//! Entry of one path: all that is known of the path, and the clients that want something of it.
//!
//! The object that the path names is found out once for all clients, and each step on it is taken
//! once: while a worker is on it, it is so for every [`Share`] that wants the same.

use std::ops::Range;
use std::sync::Arc;

use runahead_estimators::Identity;
use runahead_predict::{
    ClientId, Effects, EntryId, ExpansionRequest, Item, Rank, StepFailure, Tag, TaskQueue,
};

use super::client_requests::Share;
use super::worker_job::{Class, Found, Step};
use crate::byte_ranges::Added;
use crate::device_number::Home;
use crate::fair_queue::ClientQueues;

/// State of the lookup of a path.
pub(crate) enum Stage<F> {
    /// No lookup has begun; the first item to be taken starts it.
    Waiting,
    /// A worker is looking it up; the items are parked.
    Looking,
    /// The lookup is done; items can be served independently.
    Open(Found<F>),
}

/// Entry of one path.
pub(crate) struct Entry<F> {
    id: EntryId,
    pub path: Arc<[u8]>,
    pub stage: Stage<F>,
    /// Known or probable device of the path.
    pub home: Home,
    /// The path waits for others of its directory to be looked up first; its items are parked.
    pub held: bool,
    /// The path is being looked up, and others of its directory may wait for that.
    pub takes_turn: bool,
    /// A lookup succeeded, though its result may have been given up for another.
    seen: bool,
    pub shares: Vec<Share>,
    /// A worker reads its entries.
    listing: bool,
    /// A worker reads its text.
    linking: bool,
    /// Ranges of its data that workers read.
    reading: Vec<Range<u64>>,
    /// Workers on it.
    pub running: u32,
}

impl<F> Entry<F> {
    pub(crate) fn new(id: EntryId, path: Arc<[u8]>, home: Home) -> Self {
        Entry {
            id,
            path,
            stage: Stage::Waiting,
            home,
            held: false,
            takes_turn: false,
            seen: false,
            shares: Vec::with_capacity(1),
            listing: false,
            linking: false,
            reading: Vec::new(),
            running: 0,
        }
    }

    /// The share of `client`, if it has one.
    pub(crate) fn share(&self, client: ClientId) -> Option<&Share> {
        self.shares.iter().find(|share| share.client == client)
    }

    pub(crate) fn share_mut(&mut self, client: ClientId) -> Option<&mut Share> {
        self.shares.iter_mut().find(|share| share.client == client)
    }

    /// `client` wants something of it, under the name `key`; `follows` says whether that is what
    /// a symbolic link leads to.
    pub(crate) fn join(
        &mut self,
        client: ClientId,
        key: Identity,
        follows: bool,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) {
        if self.share(client).is_none() {
            self.shares.push(Share::new(client, self.id));
            queues.join(client, self.id, self.home);
        }
        if follows && let Stage::Open(Found { class: Class::Link, file, .. }) = &self.stage {
            // It was looked at as a link, and has to be looked up again.
            fx.files.push(file.clone());
            self.stage = Stage::Waiting;
        }
        if matches!(self.stage, Stage::Open(_)) || self.seen && !follows {
            fx.done.push((client, key));
        }
        if let Some(share) = self.share_mut(client) {
            share.add_key(key);
            share.follow |= follows;
        }
    }

    /// True if a client wants the target of a symbolic link.
    pub(crate) fn follows(&self) -> bool {
        self.shares.iter().any(|share| share.follow)
    }

    pub(crate) fn is_looking(&self) -> bool {
        matches!(self.stage, Stage::Looking)
    }

    /// True if the entry's items are not free to be taken.
    pub(crate) fn is_parked(&self) -> bool {
        self.held || self.is_looking()
    }

    /// Kind of the path's object, if it is known.
    fn class(&self) -> Option<Class> {
        match &self.stage {
            Stage::Open(found) => Some(found.class),
            _ => None,
        }
    }

    /// True if nothing is left to do and no worker is busy with it.
    pub(crate) fn is_idle(&self) -> bool {
        self.running == 0 && self.shares.is_empty()
    }

    /// Everything that waits.
    pub(crate) fn items(&self) -> impl Iterator<Item = (Rank, ClientId, Item)> + '_ {
        let of = |share: &Share| {
            let client = share.client;
            share.items().map(move |(rank, item)| (rank, client, item)).collect::<Vec<_>>()
        };
        self.shares.iter().flat_map(of)
    }

    /// The path is on another device than was thought.
    pub(crate) fn move_to(&mut self, home: Home, queues: &mut ClientQueues) {
        if home == self.home {
            return;
        }
        let ready = !self.is_parked();
        if ready {
            self.park(true, queues);
        }
        self.home = home;
        self.shares.iter().for_each(|share| queues.join(share.client, self.id, home));
        if ready {
            self.park(false, queues);
        }
    }

    /// Keeps others from taking its items, or no longer.
    pub(crate) fn park(&self, park: bool, queues: &mut ClientQueues) {
        self.shares.iter().for_each(|share| share.park(park, queues));
    }

    /// Wants something other than data. `None` when that was answered at once.
    pub(crate) fn want(
        &mut self,
        client: ClientId,
        item: Item,
        tag: Tag,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) -> Option<Added> {
        // What is under way is the answer to what is wanted now.
        let started = match item {
            Item::Lookup => self.is_looking(),
            Item::Listing => self.listing,
            Item::Link => self.linking,
            _ => false,
        };
        let known = (self.class(), started);
        let mut shelf = queues.shelf(client, self.id, self.is_parked());
        self.share_mut(client)?.want(item, tag, known, &mut shelf, fx)
    }

    /// Wants a range of data, not empty. `None` when that was answered at once.
    pub(crate) fn want_data(
        &mut self,
        client: ClientId,
        range: Range<u64>,
        tag: Tag,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) -> Option<Added> {
        let class = self.class();
        let mut shelf = queues.shelf(client, self.id, self.is_parked());
        let share = self.shares.iter_mut().find(|share| share.client == client)?;
        let added = share.want_data(range, tag, class, &mut shelf, fx);
        // Something is being read only while the entry is open, and then it is not parked.
        self.reading.iter().for_each(|range| share.claim(range, queues));
        added
    }

    /// The lookup starts: it is the answer to what waits for one. The entry is parked.
    pub(crate) fn start_lookup(&mut self, queues: &mut ClientQueues) -> Step<F> {
        self.stage = Stage::Looking;
        self.running += 1;
        self.shares.iter_mut().for_each(|share| share.start(Item::Lookup, queues, true));
        Step::Look { path: self.path.clone(), follow: self.follows() }
    }

    /// Starts on an item of `client`; the entry is open and `file` its handle, of which `most`
    /// bytes are read at a time.
    pub(crate) fn start(
        &mut self,
        client: ClientId,
        item: Item,
        (file, most): (Arc<F>, Option<u64>),
        queues: &mut ClientQueues,
    ) -> Step<F> {
        self.running += 1;
        if let Item::Data(start) = item {
            let share = self.share_mut(client);
            let range = share.and_then(|s| s.cut((start, most), queues)).unwrap_or(start..start);
            self.shares.iter_mut().for_each(|share| share.claim(&range, queues));
            self.reading.push(range.clone());
            return Step::Read { file, range };
        }
        self.shares.iter_mut().for_each(|share| share.start(item, queues, false));
        if item == Item::Link {
            self.linking = true;
            return Step::Link { path: self.path.clone() };
        }
        self.listing = true;
        let names = self.wishes().next().is_some();
        Step::List { file, names }
    }

    /// Returns the clients' requests to expand the directory that is being read.
    pub(crate) fn wishes(&self) -> impl Iterator<Item = ExpansionRequest> + '_ {
        self.shares.iter().filter_map(|share| share.wish(&self.path))
    }

    /// The lookup brought `found`: answers what that answers, and opens the way for the rest.
    pub(crate) fn open(&mut self, found: Found<F>, queues: &mut ClientQueues, fx: &mut Effects<F>) {
        let class = found.class;
        self.shares.iter_mut().for_each(|share| share.open(class, queues, fx));
        self.stage = Stage::Open(found);
        self.seen = true;
    }

    /// The lookup failed, and with it all that waits.
    pub(crate) fn fail(
        &mut self,
        trouble: StepFailure,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) {
        self.shares.iter_mut().for_each(|share| share.fail(trouble, queues, fx));
        self.stage = Stage::Waiting;
    }

    /// A step on the open entry is over.
    pub(crate) fn finish(
        &mut self,
        step: &Step<F>,
        result: Result<u64, StepFailure>,
        fx: &mut Effects<F>,
    ) {
        self.running -= 1;
        match step {
            Step::List { .. } => self.listing = false,
            Step::Link { .. } => self.linking = false,
            Step::Read { range, .. } => self.reading.retain(|reading| reading != range),
            _ => unreachable!("not a step on an open entry"),
        }
        for share in &mut self.shares {
            match step {
                Step::Read { range, .. } => share.read(range, result, fx),
                Step::List { .. } => share.end(Item::Listing, result.err(), fx),
                _ => share.end(Item::Link, result.err(), fx),
            }
        }
    }

    /// Drops what `client` hinted in runs before `before`: how many hints.
    pub(crate) fn drop_stale(
        &mut self,
        client: ClientId,
        before: Option<u32>,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) -> usize {
        self.give_up(client, before, fx, |share, parked, fx| {
            share.drop_stale(before, parked, queues, fx)
        })
    }

    /// Drops what was disclosed and is taken back in `run`: how many hints.
    pub(crate) fn cancel(
        &mut self,
        client: ClientId,
        run: u32,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) -> usize {
        self.give_up(client, Some(run.saturating_add(1)), fx, |share, parked, fx| {
            share.cancel(run, parked, queues, fx)
        })
    }

    fn give_up(
        &mut self,
        client: ClientId,
        before: Option<u32>,
        fx: &mut Effects<F>,
        drop: impl FnOnce(&mut Share, bool, &mut Effects<F>) -> usize,
    ) -> usize {
        let (parked, seen) = (self.is_parked(), self.seen);
        let waiting = matches!(self.stage, Stage::Waiting);
        let Some(share) = self.share_mut(client) else { return 0 };
        let dropped = drop(share, parked, fx);
        if waiting && share.items().next().is_none() {
            // No lookup for this client follows. A link that was looked up as such, before a client
            // wanted to follow it, is known nevertheless.
            if seen { share.done(fx, |key| key) } else { share.forget(before, fx, |key| key) }
        }
        dropped
    }

    /// `client` is gone: how many of its hints are given up, under way or not.
    pub(crate) fn abandon(
        &mut self,
        client: ClientId,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) -> usize {
        let Some(at) = self.shares.iter().position(|share| share.client == client) else {
            return 0;
        };
        let mut share = self.shares.swap_remove(at);
        let dropped = share.abandon(self.is_parked(), queues, fx);
        let known = matches!(self.stage, Stage::Open(_)) || self.seen && !share.follow;
        if !known {
            share.forget(None, fx, |key| key);
        }
        queues.leave(client, self.id);
        dropped
    }

    /// Ends the shares that have nothing left to wait for.
    pub(crate) fn prune(&mut self, queues: &mut ClientQueues) {
        if self.is_looking() {
            // What they are told is still to come.
            return;
        }
        let id = self.id;
        self.shares.retain(|share| {
            let keep = !share.is_idle();
            if !keep {
                queues.leave(share.client, id);
            }
            keep
        });
    }
}
