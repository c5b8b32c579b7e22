//! Queue of one client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hashbrown::HashMap;
use runahead_predict::{EntryId, Item, Rank, Tier};

use crate::device_number::Home;

/// Bounds on how far ahead of its target a client's hints may be acted on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    /// Accesses that the target has made; in [`super::ClientQueues`], with the horizon added.
    pub position: u64,
    /// Computing time of the target from one access to the next.
    pub compute: Duration,
    /// True if the budget is used up.
    pub held: bool,
}

impl Default for Reach {
    /// A reach without bound.
    fn default() -> Self {
        Reach { position: u64::MAX, compute: Duration::ZERO, held: false }
    }
}

/// Items of one client that wait on one device.
#[derive(Default)]
pub(super) struct Flow {
    pub set: BTreeSet<(Rank, EntryId, Item)>,
    /// Cost served to the client there.
    pub served: u64,
    /// Place of the flow in the turns of its device.
    pub place: Option<(Tier, u64)>,
    /// Rest of the present sweep; see [`crate::request_queue`].
    pub plan: VecDeque<(EntryId, Item)>,
}

#[derive(Default)]
pub(super) struct ClientQueue {
    pub flows: BTreeMap<Home, Flow>,
    pub parked: usize,
    /// Number of items in the sets that no hint named.
    pub extra: usize,
    /// Names in its batches.
    pub names: usize,
    /// Owners that have a share of the queue, also without waiting items, and their devices.
    pub members: HashMap<EntryId, Home>,
    /// `None`: everything is near.
    pub reach: Option<Reach>,
}

impl ClientQueue {
    /// Parts of hints that wait.
    pub fn parts(&self) -> usize {
        let waiting: usize = self.flows.values().map(|flow| flow.set.len()).sum();
        waiting - self.extra + self.parked
    }

    pub fn is_empty(&self) -> bool {
        self.flows.values().all(|t| t.place.is_none() && t.set.is_empty()) && self.parked == 0
    }
}
