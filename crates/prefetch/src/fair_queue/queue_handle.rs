//! The only way in and out of a lane.

use super::Lanes;
use crate::concurrency_limit::Home;
use crate::hint_order::{ClientId, EntryId, Item, Rank};

/// Puts the items of one owner into a client's lane and takes them out.
pub(crate) struct Shelf<'a> {
    pub(super) lanes: &'a mut Lanes,
    pub(super) client: ClientId,
    pub(super) entry: EntryId,
    pub(super) home: Home,
    pub(super) parked: bool,
}

impl Shelf<'_> {
    fn count(&mut self, item: Item, parked: bool, by: isize) {
        let Some(lane) = self.lanes.lanes.get_mut(&self.client) else { return };
        if parked {
            lane.parked = lane.parked.saturating_add_signed(by);
        } else {
            let device = self.lanes.devices.entry(self.home).or_default();
            device.waiting = device.waiting.saturating_add_signed(by);
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
            let track = lane.tracks.entry(self.home).or_default();
            let new = track.set.insert((rank, self.entry, item));
            assert!(new, "{item:?} was listed twice");
            self.lanes.place(self.client, self.home);
        }
    }

    pub(crate) fn remove(&mut self, rank: Rank, item: Item) {
        self.count(item, self.parked, -1);
        if !self.parked
            && let Some(lane) = self.lanes.lanes.get_mut(&self.client)
        {
            let track = lane.tracks.entry(self.home).or_default();
            let was = track.set.remove(&(rank, self.entry, item));
            assert!(was, "{item:?} was not listed");
            self.lanes.place(self.client, self.home);
        }
    }

    /// Moves an item that its owner holds to where it belongs after its entry was parked.
    pub(crate) fn park(&mut self, rank: Rank, item: Item) {
        self.parked = false;
        self.remove(rank, item);
        self.parked = true;
        self.insert(rank, item);
    }

    /// Takes out what [`Shelf::park`] put in.
    pub(crate) fn unpark(&mut self, rank: Rank, item: Item) {
        self.parked = true;
        self.remove(rank, item);
        self.parked = false;
        self.insert(rank, item);
    }
}
