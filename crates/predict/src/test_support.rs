//! Helpers of this crate's tests.

use std::collections::{BTreeMap, BTreeSet};

use proptest::test_runner::{Config, RngSeed};

use crate::hint_order::{ClientId, EntryId, Item, Rank, Tier};
use crate::task_queue::TaskQueue;

/// Random cases from `RUNAHEAD_SEED`, or from a new seed. The seed is printed, so that a failure
/// can be repeated.
pub(crate) fn config(cases: u32) -> Config {
    let seed = runahead_harness::seed();
    let rng_seed = RngSeed::Fixed(seed);
    Config { rng_seed, failure_persistence: None, ..Config::with_cases(cases) }
}

#[derive(Default)]
struct Part {
    items: BTreeSet<(Rank, EntryId, Item)>,
    owners: BTreeSet<EntryId>,
    names: usize,
}

/// A queue of one device without a horizon, in the order of tier, client and rank.
#[derive(Default)]
pub(crate) struct TestQueue {
    clients: BTreeMap<ClientId, Part>,
}

impl TestQueue {
    pub(crate) fn of(clients: &[ClientId]) -> Self {
        TestQueue { clients: clients.iter().map(|&client| (client, Part::default())).collect() }
    }

    /// The item that is served next.
    pub(crate) fn first(&self) -> Option<(ClientId, EntryId, Item)> {
        let first = |(&client, part): (&ClientId, &Part)| {
            let &(rank, id, item) = part.items.first()?;
            Some((rank.tier(u64::MAX), client, id, item))
        };
        let (_, client, id, item) = self.clients.iter().filter_map(first).min()?;
        Some((client, id, item))
    }

    /// The tier of the item that is served next.
    pub(crate) fn tier(&self) -> Option<Tier> {
        let first = |part: &Part| part.items.first().map(|(rank, ..)| rank.tier(u64::MAX));
        self.clients.values().filter_map(first).min()
    }

    /// True if no owner has anything for `client`.
    pub(crate) fn is_idle(&self, client: ClientId) -> bool {
        self.clients[&client].owners.is_empty()
    }

    fn part(&mut self, client: ClientId) -> &mut Part {
        self.clients.get_mut(&client).expect("an open client")
    }
}

impl TaskQueue for TestQueue {
    fn is_open(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    fn join_at(&mut self, client: ClientId, id: EntryId, _path: &[u8]) {
        self.part(client).owners.insert(id);
    }

    fn leave(&mut self, client: ClientId, id: EntryId) {
        self.part(client).owners.remove(&id);
    }

    fn insert(&mut self, client: ClientId, id: EntryId, rank: Rank, item: Item) {
        assert!(self.part(client).items.insert((rank, id, item)), "{item:?} was listed twice");
    }

    fn remove(&mut self, client: ClientId, id: EntryId, rank: Rank, item: Item) {
        assert!(self.part(client).items.remove(&(rank, id, item)), "{item:?} was not listed");
    }

    fn names(&self) -> usize {
        self.clients.values().map(|part| part.names).sum()
    }

    fn names_of(&self, client: ClientId) -> usize {
        self.clients[&client].names
    }

    fn add_names(&mut self, client: ClientId, _id: EntryId, names: usize) {
        self.part(client).names += names;
    }

    fn remove_names(&mut self, client: ClientId, _id: EntryId, names: usize) {
        self.part(client).names -= names;
    }
}
