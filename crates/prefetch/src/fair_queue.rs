//! Fair queueing: selects the client that is served next on a device.
//!
//! Every client has a *queue*, with a *flow* for each device: the ordered set of all that waits for
//! it there. Devices do not wait for each other: what is next is asked of each by itself
//! ([`ClientQueues::heads`]), and the caller says which of them has room. On one device, what some
//! target waits for goes before everything else; then what shadows foresee within the horizon; then
//! what they foresee beyond it; then guesses. Within each of these tiers clients share: each flow
//! has an account of what was served to it, and the one that was served least is next (start-time
//! fair queueing). A flow that was empty starts level with the others, so that idling earns
//! nothing.
//!
//! The device of a path is not known before it was looked up: until then it is that of the nearest
//! directory whose device is ([`device_map`]).
//!
//! Items of a path that a worker is looking up are *parked*: that worker serves them as soon as it
//! knows what the path names, so no other worker may take them.
//!
//! Invariant: an item is in its client's set, or counted as parked, exactly as long as its owner
//! holds the part it stands for; [`QueueHandle`] is the only way to change either. `turns` holds
//! every flow whose set is not empty and may be served at all, under the tier of its first item.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hashbrown::HashMap;
use runahead_predict::{ClientId, EntryId, Item, Rank, TaskQueue, Tier};

use crate::device_number::Home;
use crate::horizon::Speed;

mod client_queue;
mod device_map;

use client_queue::ClientQueue;
pub(crate) use client_queue::Reach;
use device_map::DeviceMap;

/// First item of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub home: Home,
    pub tier: Tier,
    /// Items that wait on the device, of all tiers and clients.
    pub waiting: usize,
}

/// Flows of one device.
#[derive(Default)]
struct Device {
    turns: BTreeSet<(Tier, u64, ClientId)>,
    /// The account of the flow that was served last.
    now: u64,
    waiting: usize,
    speed: Speed,
}

/// Queues of all clients.
#[derive(Default)]
pub(crate) struct ClientQueues {
    by_client: HashMap<ClientId, ClientQueue>,
    devices: BTreeMap<Home, Device>,
    pub whereabouts: DeviceMap,
    parts: usize,
    names: usize,
}

impl ClientQueues {
    /// A new client.
    pub(crate) fn open(&mut self, client: ClientId) {
        self.by_client.entry(client).or_default();
    }

    /// The client is gone; nothing waits for it any more.
    pub(crate) fn close(&mut self, client: ClientId) {
        let queue = self.by_client.remove(&client);
        debug_assert!(queue.is_none_or(|queue| queue.is_empty()));
    }

    /// Returns the clients.
    pub(crate) fn clients(&self) -> Vec<ClientId> {
        self.by_client.keys().copied().collect()
    }

    /// Returns the first item of each device that may be served.
    pub(crate) fn heads(&self) -> impl Iterator<Item = Head> + '_ {
        self.devices.iter().filter_map(|(&home, device)| {
            let &(tier, ..) = device.turns.first()?;
            Some(Head { home, tier, waiting: device.waiting })
        })
    }

    /// The device on which the most urgent item waits.
    #[cfg(test)]
    pub(crate) fn first_home(&self) -> Option<Home> {
        let first = |(home, device): (&Home, &Device)| Some((*device.turns.first()?, *home));
        Some(self.devices.iter().filter_map(first).min()?.1)
    }

    /// The tier of what is first on `home`.
    pub(crate) fn tier_at(&self, home: Home) -> Option<Tier> {
        Some(self.devices.get(&home)?.turns.first()?.0)
    }

    /// Returns the client whose turn it is on `home`, with its first item.
    pub(crate) fn first_at(&self, home: Home) -> Option<(ClientId, EntryId, Item)> {
        let &(_, _, client) = self.devices.get(&home)?.turns.first()?;
        let (_, id, item) = *self.by_client.get(&client)?.flows.get(&home)?.set.first()?;
        Some((client, id, item))
    }

    /// Returns the items of one client on `home` that could be taken now, in order. If the first is
    /// within the horizon, only those within it.
    pub(crate) fn of(
        &self,
        client: ClientId,
        home: Home,
    ) -> impl Iterator<Item = (EntryId, Item)> + '_ {
        let queue = self.by_client.get(&client);
        let reach = queue.map_or(Reach::default(), |queue| self.reach(queue, home));
        let set = queue.and_then(|queue| queue.flows.get(&home)).into_iter().flat_map(|t| &t.set);
        let mut set = set.peekable();
        let tier = set.peek().map(|(rank, ..)| rank.tier(reach.position));
        let near =
            move |rank: &Rank| tier != Some(Tier::Hint) || rank.tier(reach.position) <= Tier::Hint;
        set.take_while(move |(rank, ..)| near(rank)).map(|&(_, id, item)| (id, item))
    }

    /// Items that a worker could take, were there room.
    pub(crate) fn ready(&self) -> usize {
        self.devices.values().map(|device| device.waiting).sum()
    }

    /// Parts of hints that wait, parked ones too; names in batches not counted.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// Parts that wait for `client`.
    pub(crate) fn parts_of(&self, client: ClientId) -> usize {
        self.by_client.get(&client).map_or(0, ClientQueue::parts)
    }

    /// `id` has something for `client`, on `home`.
    pub(crate) fn join(&mut self, client: ClientId, id: EntryId, home: Home) {
        if let Some(queue) = self.by_client.get_mut(&client) {
            queue.members.insert(id, home);
        }
    }

    /// Returns the owners that have items for `client`.
    pub(crate) fn members(&self, client: ClientId) -> Vec<EntryId> {
        let queue = self.by_client.get(&client).into_iter();
        let mut all: Vec<_> = queue.flat_map(|queue| queue.members.keys().copied()).collect();
        // In the order of their coming, so that a run can be repeated.
        all.sort_unstable();
        all
    }

    /// Something was served to `client` on `home`.
    pub(crate) fn charge(&mut self, client: ClientId, home: Home, cost: u64) {
        let Some(queue) = self.by_client.get_mut(&client) else { return };
        let flow = queue.flows.entry(home).or_default();
        let device = self.devices.entry(home).or_default();
        device.now = device.now.max(flow.served);
        flow.served += cost;
        self.place(client, home);
    }

    /// Returns the planned items of `client` on `home`.
    pub(crate) fn plan(
        &mut self,
        client: ClientId,
        home: Home,
    ) -> Option<&mut VecDeque<(EntryId, Item)>> {
        Some(&mut self.by_client.get_mut(&client)?.flows.get_mut(&home)?.plan)
    }

    /// Sets how far ahead of its target hints of `client` may be served.
    pub(crate) fn set_reach(&mut self, client: ClientId, reach: Option<Reach>) {
        let Some(queue) = self.by_client.get_mut(&client) else { return };
        if queue.reach.map(|reach| reach.compute) != reach.map(|reach| reach.compute) {
            // The horizon may be nearer than when they were made.
            queue.flows.values_mut().for_each(|flow| flow.plan.clear());
        }
        queue.reach = reach;
        let homes: Vec<Home> = queue.flows.keys().copied().collect();
        homes.into_iter().for_each(|home| self.place(client, home));
    }

    /// Sets the measured speed of `home`.
    pub(crate) fn set_speed(&mut self, home: Home, speed: Speed) {
        let device = self.devices.entry(home).or_default();
        if device.speed != speed {
            device.speed = speed;
            for client in self.clients() {
                let flow = self.by_client.get_mut(&client).and_then(|l| l.flows.get_mut(&home));
                flow.into_iter().for_each(|flow| flow.plan.clear());
                self.place(client, home);
            }
        }
    }

    /// The last position of `client` that is within its horizon on `home`.
    fn reach(&self, queue: &ClientQueue, home: Home) -> Reach {
        let Some(Reach { position, compute, held }) = queue.reach else { return Reach::default() };
        let speed = self.devices.get(&home).map(|device| device.speed).unwrap_or_default();
        let ahead = speed.horizon(compute).accesses();
        Reach { position: position.saturating_add(ahead), compute, held }
    }

    /// The view of one owner's items.
    pub(crate) fn shelf(
        &mut self,
        client: ClientId,
        entry: EntryId,
        parked: bool,
    ) -> QueueHandle<'_> {
        let home = self.by_client.get(&client).and_then(|queue| queue.members.get(&entry)).copied();
        QueueHandle { queues: self, client, entry, home: home.flatten(), parked }
    }

    /// Puts a flow where it belongs after its first item, its account or its reach may have
    /// changed.
    fn place(&mut self, client: ClientId, home: Home) {
        let Some(queue) = self.by_client.get(&client) else { return };
        let reach = self.reach(queue, home);
        let Some(flow) = self.by_client.get_mut(&client).and_then(|l| l.flows.get_mut(&home))
        else {
            return;
        };
        let device = self.devices.entry(home).or_default();
        let tier = flow.set.first().map(|(rank, ..)| rank.tier(reach.position));
        let tier = tier.filter(|tier| *tier == Tier::Demand || !reach.held);
        if flow.place.is_none() && tier.is_some() {
            flow.served = flow.served.max(device.now);
        }
        if tier != flow.place.map(|(tier, _)| tier) {
            // A sweep beyond the horizon is over when something comes within it.
            flow.plan.clear();
        }
        let place = tier.map(|tier| (tier, flow.served));
        if place == flow.place {
            return;
        }
        if let Some((tier, served)) = flow.place {
            device.turns.remove(&(tier, served, client));
        }
        if let Some((tier, served)) = place {
            device.turns.insert((tier, served, client));
        }
        flow.place = place;
    }
}

impl TaskQueue for ClientQueues {
    fn is_open(&self, client: ClientId) -> bool {
        self.by_client.contains_key(&client)
    }

    fn join_at(&mut self, client: ClientId, id: EntryId, path: &[u8]) {
        self.join(client, id, self.whereabouts.find(path));
    }

    fn leave(&mut self, client: ClientId, id: EntryId) {
        if let Some(queue) = self.by_client.get_mut(&client) {
            queue.members.remove(&id);
        }
    }

    fn insert(&mut self, client: ClientId, id: EntryId, rank: Rank, item: Item) {
        self.shelf(client, id, false).insert(rank, item);
    }

    fn remove(&mut self, client: ClientId, id: EntryId, rank: Rank, item: Item) {
        self.shelf(client, id, false).remove(rank, item);
    }

    fn names(&self) -> usize {
        self.names
    }

    fn names_of(&self, client: ClientId) -> usize {
        self.by_client.get(&client).map_or(0, |queue| queue.names)
    }

    fn add_names(&mut self, client: ClientId, id: EntryId, names: usize) {
        if let Some(queue) = self.by_client.get_mut(&client) {
            queue.names += names;
            self.names += names;
            self.shelf(client, id, false).insert(Rank::names(id), Item::Names);
        }
    }

    fn remove_names(&mut self, client: ClientId, id: EntryId, names: usize) {
        if let Some(queue) = self.by_client.get_mut(&client) {
            queue.names -= names;
            self.names -= names;
            self.shelf(client, id, false).remove(Rank::names(id), Item::Names);
        }
    }
}

/// Puts the items of one owner into a client's queue and takes them out.
pub(crate) struct QueueHandle<'a> {
    queues: &'a mut ClientQueues,
    client: ClientId,
    entry: EntryId,
    home: Home,
    parked: bool,
}

impl QueueHandle<'_> {
    fn count(&mut self, item: Item, parked: bool, by: isize) {
        let Some(queue) = self.queues.by_client.get_mut(&self.client) else { return };
        if parked {
            queue.parked = queue.parked.saturating_add_signed(by);
        } else {
            let device = self.queues.devices.entry(self.home).or_default();
            device.waiting = device.waiting.saturating_add_signed(by);
        }
        if item.is_hinted() {
            self.queues.parts = self.queues.parts.saturating_add_signed(by);
        } else {
            queue.extra = queue.extra.saturating_add_signed(by);
        }
    }

    pub(crate) fn insert(&mut self, rank: Rank, item: Item) {
        self.count(item, self.parked, 1);
        if !self.parked
            && let Some(queue) = self.queues.by_client.get_mut(&self.client)
        {
            let flow = queue.flows.entry(self.home).or_default();
            let new = flow.set.insert((rank, self.entry, item));
            assert!(new, "{item:?} was listed twice");
            self.queues.place(self.client, self.home);
        }
    }

    pub(crate) fn remove(&mut self, rank: Rank, item: Item) {
        self.count(item, self.parked, -1);
        if !self.parked
            && let Some(queue) = self.queues.by_client.get_mut(&self.client)
        {
            let flow = queue.flows.entry(self.home).or_default();
            let was = flow.set.remove(&(rank, self.entry, item));
            assert!(was, "{item:?} was not listed");
            self.queues.place(self.client, self.home);
        }
    }

    /// Moves an item that its owner holds to where it belongs after its entry was parked.
    pub(crate) fn park(&mut self, rank: Rank, item: Item) {
        self.parked = false;
        self.remove(rank, item);
        self.parked = true;
        self.insert(rank, item);
    }

    /// Takes out what [`QueueHandle::park`] put in.
    pub(crate) fn unpark(&mut self, rank: Rank, item: Item) {
        self.parked = true;
        self.remove(rank, item);
        self.parked = false;
        self.insert(rank, item);
    }
}
