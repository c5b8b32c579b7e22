//! Open speculations and undo logs, which refer to each other.
//!
//! Invariant: an entry refers to an open speculation exactly if that has the entry among its own.
//! A thing that depends on nothing has no log.

use std::time::Duration;

use hashbrown::HashMap;

use crate::action::Action;
use crate::ids::{CheckpointId, ProcessId, SpecId, Thing};
use crate::log::{Back, Entry, Log};
use crate::operation::{Moment, Refused, Return};
use crate::plant::Plant;
use crate::set::Set;
use crate::specs::{Order, Specs};

#[derive(Debug, Default)]
pub(crate) struct State {
    pub specs: Specs,
    pub logs: HashMap<Thing, Log>,
    counted: u64,
    #[cfg(test)]
    pub plant: Option<Plant>,
}

impl State {
    /// Whether this rule is broken, as it may be in tests.
    #[cfg(test)]
    pub fn breaks(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// Rules are kept.
    #[cfg(not(test))]
    pub fn breaks(&self, _: Plant) -> bool {
        false
    }

    pub fn order(&mut self) -> Order {
        self.counted += 1;
        Order(self.counted)
    }

    /// What those depend on that are observed and `thing` does not.
    pub fn unknown(&self, thing: Thing, observed: impl Iterator<Item = Thing>) -> Set {
        let mut found = Set::default();
        for log in observed.filter_map(|other| self.logs.get(&other)) {
            found.add(log.dependencies());
        }
        if let Some(log) = self.logs.get(&thing) {
            found.subtract(log.dependencies());
        }
        found
    }

    /// From where `process` can perform an operation again that makes it depend on more: a
    /// checkpoint of its own, or that of the operation before if others could see nothing of what
    /// was done since, and not too much time has passed.
    pub fn back(
        &mut self,
        process: ProcessId,
        moment: Moment,
        share: Duration,
    ) -> Result<(Return, Back), Refused> {
        if let Some(id) = moment.checkpoint {
            return Ok((Return::Own(id), Back::Checkpoint { id, taken: moment.now }));
        }
        let last = self.logs.get_mut(&Thing::Process(process)).and_then(Log::last);
        let last = last.map(|entry| (entry.back, entry.changed));
        let Some((Back::Checkpoint { id, taken }, changed)) = last else {
            return Err(Refused::NeedsCheckpoint(process));
        };
        let seen = changed && !self.breaks(Plant::SharesAfterChange);
        let old = moment.now.saturating_sub(taken) >= share && !self.breaks(Plant::SharesOld);
        if seen || old {
            return Err(Refused::NeedsCheckpoint(process));
        }
        Ok((Return::Shared(id), Back::Checkpoint { id, taken }))
    }

    /// Adds an entry to the log of `thing`, which may be its first.
    pub fn push(&mut self, thing: Thing, refs: Set, back: Back, created: Option<SpecId>) {
        let order = self.order();
        for slot in refs.iter() {
            self.specs.refer(slot, thing, order);
        }
        let moves = !self.breaks(Plant::ReleasesShared);
        let entry = Entry { order, refs, back, created, changed: false, held: Vec::new() };
        self.logs.entry(thing).or_default().push(entry, moves);
    }

    /// `process` has changed what others can see, or others have seen it.
    pub fn changed(&mut self, process: ProcessId) {
        if let Some(last) = self.logs.get_mut(&Thing::Process(process)).and_then(Log::last) {
            last.changed = true;
        }
    }

    /// Removes the log of `thing` if nothing is in it any more, and says what the host is told
    /// then.
    pub fn retire(&mut self, thing: Thing) -> Option<Action> {
        let log = self.logs.get(&thing).filter(|log| log.is_empty())?;
        let exited = log.exited;
        self.logs.remove(&thing);
        Some(match thing {
            _ if self.breaks(Plant::TellsNobody) => return None,
            Thing::Object(object) => Action::Settled(object),
            Thing::Process(process) if exited => Action::MayGo(process),
            Thing::Process(process) => Action::Wake(process),
        })
    }

    /// What tells the host that nothing will be taken back to `back` of `thing` any more. `shared`:
    /// another entry has the same checkpoint.
    pub fn discard(&self, thing: Thing, back: Back, shared: bool) -> Option<Action> {
        match (thing, back) {
            (Thing::Process(process), Back::Checkpoint { id, .. })
                if !(shared || self.breaks(Plant::KeepsCheckpoints)) =>
            {
                Some(Action::DiscardCheckpoint(process, id))
            }
            (_, back) => Some(Action::DiscardUndo(thing, back.undo()?)),
        }
    }

    /// Whether a checkpoint is in the log of `process`.
    pub fn has(&self, process: ProcessId, checkpoint: CheckpointId) -> bool {
        let log = self.logs.get(&Thing::Process(process));
        log.is_some_and(|log| log.has(checkpoint))
    }
}
