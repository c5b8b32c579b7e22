//! What a failure comes to.
//!
//! Everything that depends on the speculation is taken back to before it did, as one. That is each
//! log from the entry on that refers to it, or from the first that shares the checkpoint of that
//! entry. Speculations that were created there fail with it, as on the right path they may never
//! be created.
//!
//! Nothing else is taken back: a process that is taken back to before an operation depended on the
//! failed speculation at that time, so what it changed in the operation or later refers to the
//! same, and so does whoever has seen that. Operations between two that share a checkpoint have
//! changed nothing, and nobody has seen the process there, or the checkpoint would not be shared.

use hashbrown::HashMap;

use crate::action::Action;
use crate::ids::Thing;
use crate::log::{Back, Entry};
use crate::plant::Plant;
use crate::set::{Set, Slot};
use crate::specs::Order;
use crate::state::State;

/// The speculation in `slot` has not come true.
pub(crate) fn fail(state: &mut State, slot: Slot) -> Vec<Action> {
    let (failed, cuts) = reach(state, slot);
    let mut taken = Taken::default();
    for (thing, index) in cuts {
        let Some(log) = state.logs.get_mut(&thing) else { continue };
        let entries = Vec::from(log.cut(index));
        match entries.first().map(|entry| entry.back) {
            // It is not there any more.
            Some(Back::Birth | Back::Making(_)) => _ = state.logs.remove(&thing),
            Some(Back::Checkpoint { .. }) => log.exited = false,
            // Only what was done about its exit is taken back.
            Some(Back::Reap(_) | Back::Change(_)) | None => {}
        }
        taken.add(thing, &entries, state);
    }
    let mut actions = Vec::new();
    for other in failed {
        let id = state.specs.id(other);
        if other != slot {
            actions.push(Action::Forget(id));
        }
        state.specs.resolve(other);
    }
    taken.actions(state, actions)
}

/// The speculations that fail, and where the log of each thing that depends on one is cut.
fn reach(state: &State, slot: Slot) -> (Vec<Slot>, Vec<(Thing, usize)>) {
    let (mut failed, mut known, mut at) = (vec![slot], Set::of(slot), 0);
    let mut cuts: HashMap<Thing, usize> = HashMap::new();
    while let Some(&slot) = failed.get(at) {
        at += 1;
        for &(thing, order) in state.specs.entries(slot) {
            let Some(log) = state.logs.get(&thing) else { continue };
            let Some(index) = log.find(order) else { continue };
            let whole = !state.breaks(Plant::SplitsShared);
            let index = match thing {
                Thing::Process(_) if state.breaks(Plant::GoesTooFar) => 0,
                _ if whole => log.first_with(index),
                _ => index,
            };
            let cut = cuts.entry(thing).or_insert(log.len());
            if index >= *cut {
                continue;
            }
            let created = log.created(index..*cut).filter_map(|id| state.specs.slot(id));
            for slot in created.filter(|_| !state.breaks(Plant::KeepsCreated)) {
                if !known.contains(slot) {
                    known.insert(slot);
                    failed.push(slot);
                }
            }
            *cut = index;
        }
    }
    let mut cuts: Vec<_> = cuts.into_iter().collect();
    cuts.sort_unstable();
    (failed, cuts)
}

/// What was taken back.
#[derive(Default)]
struct Taken {
    dropped: Vec<(Order, Action)>,
    undone: Vec<(Order, Action)>,
    destroyed: Vec<Action>,
    rolled_back: Vec<Action>,
    discarded: Vec<Action>,
    settled: Vec<Thing>,
}

impl Taken {
    /// Of `thing`, whose last entries these were.
    fn add(&mut self, thing: Thing, entries: &[Entry], state: &State) {
        let first = entries.first().map(|entry| entry.back);
        let mut last = first.and_then(Back::checkpoint);
        for entry in entries {
            let held = entry.held.iter().map(|&(order, held)| (order, Action::Drop(held)));
            self.dropped.extend(held);
            if let Some(undo) = entry.back.undo() {
                self.undone.push((entry.order, Action::Undo(thing, undo)));
            }
            let checkpoint = entry.back.checkpoint();
            if checkpoint.is_some() && checkpoint != last {
                self.discarded.extend(state.discard(thing, entry.back, false));
                last = checkpoint;
            }
        }
        match (thing, first) {
            (Thing::Process(process), Some(Back::Checkpoint { id, .. })) => {
                self.rolled_back.push(Action::RollBack(process, id));
            }
            (Thing::Process(process), Some(Back::Birth)) => {
                self.destroyed.push(Action::Destroy(process));
            }
            _ => {}
        }
        self.settled.push(thing);
    }

    fn actions(mut self, state: &mut State, mut actions: Vec<Action>) -> Vec<Action> {
        self.dropped.sort_unstable_by_key(|(order, _)| *order);
        self.undone.sort_unstable_by_key(|(order, _)| *order);
        if !state.breaks(Plant::UndoesForwards) {
            self.undone.reverse();
        }
        if state.breaks(Plant::KeepsChildren) {
            self.destroyed.clear();
        }
        actions.extend(self.dropped.into_iter().map(|(_, action)| action));
        actions.extend(self.undone.into_iter().map(|(_, action)| action));
        actions.extend(self.destroyed);
        actions.extend(self.discarded);
        actions.extend(self.rolled_back);
        actions.extend(self.settled.into_iter().filter_map(|thing| state.retire(thing)));
        actions
    }
}
