//! Whose turn it is.
//!
//! Every client has a *lane*: the ordered set of all that waits for it. What some target waits for
//! goes before everything else; then what shadows foresee; then guesses. Within each of these tiers
//! clients share: each lane has an account of what was served to it, and the lane that was served
//! least is next (start-time fair queueing). A lane that was empty starts level with the others, so
//! that idling earns nothing.
//!
//! Items of a path that a worker is looking up are *parked*: that worker serves them as soon as it
//! knows what the path names, so nobody else may take them.
//!
//! Invariant: an item is in its client's set, or counted as parked, exactly as long as its owner
//! holds the part it stands for; [`Shelf`] is the only way to change either. `turns` holds every
//! lane whose set is not empty, under the tier of its first item.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::order::{ClientId, EntryId, Item, Rank, Tier};

/// What waits for one client.
#[derive(Default)]
pub(crate) struct Lane {
    set: BTreeSet<(Rank, EntryId, Item)>,
    parked: usize,
    /// Of the set, those that nobody hinted.
    extra: usize,
    /// Names in its batches.
    names: usize,
    /// All that has a share of it, whether anything waits there or not.
    members: HashSet<EntryId>,
    /// What was served to it.
    served: u64,
    /// Where it stands in `turns`.
    place: Option<(Tier, u64)>,
}

impl Lane {
    /// Parts of hints that wait.
    fn parts(&self) -> usize {
        self.set.len() - self.extra + self.parked
    }
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Lanes {
    lanes: HashMap<ClientId, Lane>,
    turns: BTreeSet<(Tier, u64, ClientId)>,
    /// The account of the lane that was served last.
    now: u64,
    ready: usize,
    parts: usize,
    names: usize,
}

impl Lanes {
    /// A new client.
    pub(crate) fn open(&mut self, client: ClientId) {
        self.lanes.entry(client).or_default();
    }

    /// The client is gone; nothing waits for it any more.
    pub(crate) fn close(&mut self, client: ClientId) {
        let lane = self.lanes.remove(&client);
        debug_assert!(lane.is_none_or(|lane| lane.place.is_none() && lane.parts() == 0));
    }

    pub(crate) fn is_open(&self, client: ClientId) -> bool {
        self.lanes.contains_key(&client)
    }

    /// All clients.
    pub(crate) fn clients(&self) -> Vec<ClientId> {
        self.lanes.keys().copied().collect()
    }

    /// Whose turn it is, and what is first there.
    pub(crate) fn first(&self) -> Option<(ClientId, EntryId, Item)> {
        let &(_, _, client) = self.turns.first()?;
        let (_, id, item) = *self.lanes.get(&client)?.set.first()?;
        Some((client, id, item))
    }

    /// Everything that could be taken now for one client, in order.
    pub(crate) fn of(&self, client: ClientId) -> impl Iterator<Item = (EntryId, Item)> + '_ {
        let lane = self.lanes.get(&client);
        lane.into_iter().flat_map(|lane| lane.set.iter().map(|&(_, id, item)| (id, item)))
    }

    /// The tier of what comes first.
    pub(crate) fn tier(&self) -> Option<Tier> {
        self.turns.first().map(|&(tier, ..)| tier)
    }

    /// Items that a worker could take now.
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// Parts of hints that wait, parked ones too; names in batches not counted.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// The same for one client.
    pub(crate) fn parts_of(&self, client: ClientId) -> usize {
        self.lanes.get(&client).map_or(0, Lane::parts)
    }

    /// Names in batches.
    pub(crate) fn names(&self) -> usize {
        self.names
    }

    /// The same for one client.
    pub(crate) fn names_of(&self, client: ClientId) -> usize {
        self.lanes.get(&client).map_or(0, |lane| lane.names)
    }

    /// Puts a batch of `names` in.
    pub(crate) fn add_names(&mut self, client: ClientId, id: EntryId, names: usize) {
        if let Some(lane) = self.lanes.get_mut(&client) {
            lane.names += names;
            self.names += names;
            self.shelf(client, id, false).insert(Rank::names(id), Item::Names);
        }
    }

    /// Takes it out.
    pub(crate) fn remove_names(&mut self, client: ClientId, id: EntryId, names: usize) {
        if let Some(lane) = self.lanes.get_mut(&client) {
            lane.names -= names;
            self.names -= names;
            self.shelf(client, id, false).remove(Rank::names(id), Item::Names);
        }
    }

    /// `id` has something for `client`.
    pub(crate) fn join(&mut self, client: ClientId, id: EntryId) {
        if let Some(lane) = self.lanes.get_mut(&client) {
            lane.members.insert(id);
        }
    }

    /// It no longer has.
    pub(crate) fn leave(&mut self, client: ClientId, id: EntryId) {
        if let Some(lane) = self.lanes.get_mut(&client) {
            lane.members.remove(&id);
        }
    }

    /// All that has something for `client`.
    pub(crate) fn members(&self, client: ClientId) -> Vec<EntryId> {
        let mut all: Vec<_> =
            self.lanes.get(&client).into_iter().flat_map(|l| l.members.iter().copied()).collect();
        // In the order of their coming, so that a run can be repeated.
        all.sort_unstable();
        all
    }

    /// Something was served to `client`.
    pub(crate) fn charge(&mut self, client: ClientId, cost: u64) {
        let Some(lane) = self.lanes.get_mut(&client) else { return };
        self.now = self.now.max(lane.served);
        lane.served += cost;
        self.place(client);
    }

    /// The view of one owner's items.
    pub(crate) fn shelf(&mut self, client: ClientId, entry: EntryId, parked: bool) -> Shelf<'_> {
        Shelf { lanes: self, client, entry, parked }
    }

    /// Puts a lane where it belongs after its first item or its account may have changed.
    fn place(&mut self, client: ClientId) {
        let Some(lane) = self.lanes.get_mut(&client) else { return };
        let tier = lane.set.first().map(|(rank, ..)| rank.tier());
        if lane.place.is_none() && tier.is_some() {
            lane.served = lane.served.max(self.now);
        }
        let place = tier.map(|tier| (tier, lane.served));
        if place == lane.place {
            return;
        }
        if let Some((tier, served)) = lane.place {
            self.turns.remove(&(tier, served, client));
        }
        if let Some((tier, served)) = place {
            self.turns.insert((tier, served, client));
        }
        lane.place = place;
    }
}

/// Puts the items of one owner into a client's lane and takes them out.
pub(crate) struct Shelf<'a> {
    lanes: &'a mut Lanes,
    client: ClientId,
    entry: EntryId,
    parked: bool,
}

impl Shelf<'_> {
    fn count(&mut self, item: Item, parked: bool, by: isize) {
        let Some(lane) = self.lanes.lanes.get_mut(&self.client) else { return };
        if parked {
            lane.parked = lane.parked.saturating_add_signed(by);
        } else {
            self.lanes.ready = self.lanes.ready.saturating_add_signed(by);
        }
        if item.is_hinted() {
            self.lanes.parts = self.lanes.parts.saturating_add_signed(by);
        } else {
            lane.extra = lane.extra.saturating_add_signed(by);
        }
    }

    pub(crate) fn insert(&mut self, rank: Rank, item: Item) {
        self.count(item, self.parked, 1);
        if !self.parked
            && let Some(lane) = self.lanes.lanes.get_mut(&self.client)
        {
            let new = lane.set.insert((rank, self.entry, item));
            assert!(new, "{item:?} was listed twice");
            self.lanes.place(self.client);
        }
    }

    pub(crate) fn remove(&mut self, rank: Rank, item: Item) {
        self.count(item, self.parked, -1);
        if !self.parked
            && let Some(lane) = self.lanes.lanes.get_mut(&self.client)
        {
            let was = lane.set.remove(&(rank, self.entry, item));
            assert!(was, "{item:?} was not listed");
            self.lanes.place(self.client);
        }
    }

    /// Moves an item that its owner holds to where it belongs after its entry was parked.
    pub(crate) fn park(&mut self, rank: Rank, item: Item) {
        self.parked = false;
        self.remove(rank, item);
        self.parked = true;
        self.insert(rank, item);
    }

    /// The reverse of [`Shelf::park`].
    pub(crate) fn unpark(&mut self, rank: Rank, item: Item) {
        self.parked = true;
        self.remove(rank, item);
        self.parked = false;
        self.insert(rank, item);
    }
}
