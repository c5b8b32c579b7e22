//! Directories that a program enters one after the other, to look for the same names in each.
//!
//! Their place is the parent directory ([`GuessKind::Siblings`]). Lookups in the first demanded
//! sibling are paid from the client's credit, lookups in its siblings from the place's allowance,
//! as all guesses are.

use runahead_abi::{HintKind, Record};

use super::guess_kind::{COST_MIN, GuessKind, PlaceName, SIBLING_COST};
use super::guess_state::{AHEAD, CREDIT_MAX, Guesses, LOOKS};
use super::guess_task::GuessTask;
use super::lookup_pattern::ENTRIES;
use super::path_keys::{below, hash, split, suffix};
use super::pattern_state::{ClientPatterns, Guess, Place};
use crate::hint_order::{ClientId, Rank};
use crate::task_queue::TaskQueue;

/// The place of the siblings in `directory`.
fn siblings_of(directory: &[u8]) -> PlaceName {
    PlaceName { directory: directory.into(), suffix: Box::default(), of: GuessKind::Siblings }
}

impl<F> Guesses<F> {
    /// `record` is wanted: maybe one of what is looked for in each sibling, or the sign that a
    /// sibling is in use.
    pub(super) fn saw_in_siblings(
        &mut self,
        client: ClientId,
        record: &Record<'_>,
        demand: bool,
        queue: &mut impl TaskQueue,
    ) {
        let path = record.path;
        let read = match record.kind {
            HintKind::Lookup | HintKind::Data => record.kind == HintKind::Data,
            HintKind::Listing => {
                return self.saw_in_sibling(client, path, (ENTRIES, false), demand, queue);
            }
            HintKind::Link | HintKind::Program | HintKind::Cancel => return,
        };
        // It is looked for from the directory that it is in, or from the one above that.
        let mut sibling = path;
        for _ in 0..2 {
            let Some((above, _)) = split(sibling) else { return };
            let name = &path[above.len() + usize::from(above.len() > 1)..];
            sibling = above;
            self.saw_in_sibling(client, sibling, (name, read), demand, queue);
        }
    }

    /// `name` is wanted in the directory `sibling`.
    fn saw_in_sibling(
        &mut self,
        client: ClientId,
        sibling: &[u8],
        (name, read): (&[u8], bool),
        demand: bool,
        queue: &mut impl TaskQueue,
    ) {
        let Some(patterns) = self.clients.get_mut(&client) else { return };
        let is_routine = patterns.routines.saw(sibling, name, read);
        let Some((directory, own)) = split(sibling).filter(|(_, own)| !own.is_empty()) else {
            return;
        };
        let place = siblings_of(directory);
        if is_routine && !patterns.places.contains_key(&place) {
            patterns.remember(place.clone());
        }
        let ClientPatterns { places, habits, credit, routines, .. } = patterns;
        let Some(known) = places.get_mut(&place).filter(|at| is_routine || at.guessed(own)) else {
            return;
        };
        let unknown = !known.knows(own);
        let (earned, used) = known.saw(own, true, demand, self.narrow);
        *credit = (*credit + earned).min(CREDIT_MAX);
        if used {
            routines.used(sibling);
            *habits.entry(place.habit()).or_default() += 1;
        }
        // One file that it reads is paid for, too.
        const PAID: u64 = SIBLING_COST + COST_MIN;
        let new = unknown && demand && *credit >= PAID;
        if new {
            *credit -= PAID;
            known.allowance += PAID;
            known.spent += SIBLING_COST;
            self.look_around(client, &place, (own, name), LOOKS, queue);
        }
        if new || used {
            self.is_used(client, sibling, queue);
        }
        self.go_on(client, &place, queue);
    }

    /// Finds out which siblings have been used; called when a target waits.
    pub(super) fn settle_rooms(&mut self, client: ClientId, queue: &mut impl TaskQueue) {
        let (Some(patterns), Some(sink)) = (self.clients.get_mut(&client), self.sinks.get(&client))
        else {
            return;
        };
        let ClientPatterns { places, habits, credit, routines, .. } = patterns;
        let (mut siblings, mut settled) = (Vec::new(), Vec::new());
        for (name, place) in places.iter_mut().filter(|(name, _)| name.of == GuessKind::Siblings) {
            let (earned, used) = place.settle(self.narrow, |key| sink.was_used(key));
            if !used.is_empty() {
                *credit = (*credit + earned).min(CREDIT_MAX);
                self.tally.used[GuessKind::Siblings as usize] += used.len() as u64;
                *habits.entry(name.habit()).or_default() += used.len() as u64;
                let used: Vec<_> = used.into_iter().filter_map(|guess| guess.sibling).collect();
                used.iter().for_each(|sibling| routines.used(sibling));
                siblings.extend(used);
                siblings.extend(place.open_more());
                settled.push(name.clone());
            }
        }
        siblings.iter().for_each(|sibling| self.is_used(client, sibling, queue));
        settled.iter().for_each(|place| self.go_on(client, place, queue));
    }

    /// Looks around in directories of `place` that nothing is known of but that they are there.
    pub(super) fn look_around_ahead(
        &mut self,
        client: ClientId,
        place: &PlaceName,
        directories: &[Box<[u8]>],
        queue: &mut impl TaskQueue,
    ) {
        for own in directories {
            self.look_around(client, place, (own, b""), AHEAD, queue);
        }
        let patterns = self.clients.get_mut(&client);
        let siblings =
            patterns.and_then(|patterns| patterns.places.get_mut(place)).map(Place::open_more);
        siblings
            .unwrap_or_default()
            .iter()
            .for_each(|sibling| self.is_used(client, sibling, queue));
    }

    /// A sibling is in use, or is taken to be: so is what it holds, and maybe the siblings in it.
    fn is_used(&mut self, client: ClientId, sibling: &[u8], queue: &mut impl TaskQueue) {
        self.open_up(client, sibling, queue);
        let Some(patterns) = self.clients.get_mut(&client) else { return };
        let place = siblings_of(sibling);
        if patterns.has_habit(&place) && !patterns.places.contains_key(&place) {
            patterns.remember(place.clone()).demands += 1;
            self.go_on(client, &place, queue);
        }
    }

    /// Looks for all that is looked for in a sibling, but for `known`, in `own`.
    pub(super) fn look_around(
        &mut self,
        client: ClientId,
        place: &PlaceName,
        (own, known): (&[u8], &[u8]),
        rank: u64,
        queue: &mut impl TaskQueue,
    ) {
        let Some(patterns) = self.clients.get_mut(&client) else { return };
        let Some(at) = patterns.places.get_mut(place) else { return };
        let sibling = below(&place.directory, own);
        let names = patterns.routines.all().into_iter().filter(|name| **name != *known);
        let errand = |name: Box<[u8]>| match *name == *ENTRIES {
            true => GuessTask::Browse { path: sibling.clone() },
            false => GuessTask::Look { path: below(&sibling, &name) },
        };
        let errands: Vec<GuessTask<F>> = names.map(errand).collect();
        let first = errands.iter().find_map(|errand| match errand {
            GuessTask::Look { path } => Some(GuessKind::Siblings.key(path)),
            _ => None,
        });
        if let Some(key) = first {
            let sibling = Some(sibling.clone());
            self.tally.begun[GuessKind::Siblings as usize] += 1;
            at.guessed.insert(hash(own), Guess { cost: SIBLING_COST, key, sibling, opened: false });
        }
        at.ahead += errands.len();
        for errand in errands {
            self.put(client, place, Rank::guess(rank), errand, queue);
        }
    }

    /// Guesses in a sibling the kinds of files that were right elsewhere.
    fn open_up(&mut self, client: ClientId, sibling: &[u8], queue: &mut impl TaskQueue) {
        let Some(patterns) = self.clients.get_mut(&client) else { return };
        let mut places = Vec::new();
        for name in patterns.routines.all() {
            let path = below(sibling, &name);
            let Some((directory, file)) = split(&path) else { continue };
            let of =
                if patterns.routines.reads(&path) { GuessKind::Data } else { GuessKind::Names };
            let place = PlaceName { directory: directory.into(), suffix: suffix(file).into(), of };
            if patterns.has_habit(&place) && !patterns.places.contains_key(&place) {
                patterns.remember(place.clone()).demands += 1;
                places.push(place);
            }
        }
        places.iter().for_each(|place| self.go_on(client, place, queue));
    }
}

#[cfg(test)]
#[path = "sibling_directories_tests.rs"]
mod tests;
