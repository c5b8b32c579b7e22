//! Speculations that are open, and who depends on each.

use hashbrown::HashMap;

use crate::ids::{SpecId, Thing};
use crate::set::{Set, Slot};

/// A number that is given to each entry and each output, in the order in which they came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Order(pub u64);

/// An open speculation.
#[derive(Debug)]
struct Open {
    id: SpecId,
    /// The entries that refer to it: by the thing whose log they are in, and their number. Those
    /// that were taken back stay here: their numbers are in no log.
    entries: Vec<(Thing, Order)>,
}

/// All open speculations.
///
/// Invariant: a slot is either free or of one open speculation, and `by_id` has just those.
#[derive(Debug, Default)]
pub(crate) struct Specs {
    slots: Vec<Option<Open>>,
    free: Vec<Slot>,
    by_id: HashMap<SpecId, Slot>,
    created: u64,
}

impl Specs {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn open(&mut self) -> (SpecId, Slot) {
        let id = SpecId(self.created);
        self.created += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot(u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 are open"))
        });
        self.slots[slot.0 as usize] = Some(Open { id, entries: Vec::new() });
        self.by_id.insert(id, slot);
        (id, slot)
    }

    pub fn slot(&self, id: SpecId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    pub fn id(&self, slot: Slot) -> SpecId {
        self.at(slot).id
    }

    fn at(&self, slot: Slot) -> &Open {
        self.slots[slot.0 as usize].as_ref().expect("sets have open speculations only")
    }

    /// The entry with this number in the log of `thing` refers to `slot`.
    pub fn refer(&mut self, slot: Slot, thing: Thing, order: Order) {
        let open = self.slots[slot.0 as usize].as_mut();
        open.expect("sets have open speculations only").entries.push((thing, order));
    }

    pub fn entries(&self, slot: Slot) -> &[(Thing, Order)] {
        &self.at(slot).entries
    }

    /// The speculation is resolved. Its entries, from which the caller takes the slot out.
    pub fn resolve(&mut self, slot: Slot) -> Vec<(Thing, Order)> {
        let open = self.slots[slot.0 as usize].take().expect("it is open");
        self.by_id.remove(&open.id);
        self.free.push(slot);
        open.entries
    }

    /// Those of `set`, in the order of their creation.
    pub fn list(&self, set: &Set) -> Vec<SpecId> {
        let mut ids: Vec<_> = set.iter().map(|slot| self.at(slot).id).collect();
        ids.sort_unstable();
        ids
    }
}
