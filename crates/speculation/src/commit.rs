//! What a commit comes to.

use crate::action::Action;
use crate::ids::{HeldId, Thing};
use crate::plant::Plant;
use crate::set::Slot;
use crate::specs::Order;
use crate::state::State;

/// The speculation in `slot` has come true. Entries that depend on nothing any more, nor have any
/// before them that do, are done with: what they hold is released, and what undoes them is
/// discarded.
///
/// Released first, so that what a process that is woken puts out comes after that.
pub(crate) fn commit(state: &mut State, slot: Slot) -> Vec<Action> {
    let mut done = Done::default();
    let early = state.breaks(Plant::ReleasesEarly);
    for (thing, order) in state.specs.resolve(slot) {
        // (No more in a log if it was taken back.)
        let Some(log) = state.logs.get_mut(&thing) else { continue };
        let Some(index) = log.find(order) else { continue };
        let entry = log.commit(index, slot);
        if early && entry.refs.is_empty() {
            done.released.append(&mut entry.held);
        }
        let mut free = Vec::new();
        while let Some((mut entry, shared)) = log.settle_first() {
            done.released.append(&mut entry.held);
            free.push((entry.back, shared));
        }
        let discarded = free.into_iter().filter_map(|(b, shared)| state.discard(thing, b, shared));
        done.discarded.extend(discarded);
        done.settled.push(thing);
    }
    done.actions(state)
}

/// What was found to be done with.
#[derive(Default)]
struct Done {
    released: Vec<(Order, HeldId)>,
    discarded: Vec<Action>,
    settled: Vec<Thing>,
}

impl Done {
    fn actions(mut self, state: &mut State) -> Vec<Action> {
        self.released.sort_unstable();
        let released = self.released.into_iter().map(|(_, held)| Action::Release(held));
        let settled = self.settled.into_iter().filter_map(|thing| state.retire(thing));
        released.chain(self.discarded).chain(settled).collect()
    }
}
