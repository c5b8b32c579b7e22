//! Directories that a program enters one after the other, to look for the same names in each.
//!
//! Its place is the directory that they lie in ([`Of::Rooms`]). What is looked for in the first room
//! that is demanded is paid from the client's credit, what is looked for in its siblings from the
//! place's allowance, as all guesses are.

use runahead_abi::{HintKind, Record};

use super::kind::{COST_MIN, Of, PlaceName, ROOM_COST};
use super::paths::{below, hash, split, suffix};
use super::place::{Guess, Place, Watch};
use super::routine::ENTRIES;
use super::{AHEAD, CREDIT_MAX, Errand, Guesses, LOOKS};
use crate::lanes::Lanes;
use crate::order::{ClientId, Rank};

/// The place of the rooms in `directory`.
fn rooms_of(directory: &[u8]) -> PlaceName {
    PlaceName { directory: directory.into(), suffix: Box::default(), of: Of::Rooms }
}

impl<F> Guesses<F> {
    /// `record` is wanted: maybe one of what is looked for in each room, or the sign that a room
    /// is in use.
    pub(super) fn saw_in_rooms(
        &mut self,
        client: ClientId,
        record: &Record<'_>,
        demand: bool,
        lanes: &mut Lanes,
    ) {
        let path = record.path;
        let read = match record.kind {
            HintKind::Lookup | HintKind::Data => record.kind == HintKind::Data,
            HintKind::Listing => {
                return self.saw_in_room(client, path, (ENTRIES, false), demand, lanes);
            }
            HintKind::Link | HintKind::Program | HintKind::Cancel => return,
        };
        // It is looked for from the directory that it is in, or from the one above that.
        let mut room = path;
        for _ in 0..2 {
            let Some((above, _)) = split(room) else { return };
            let name = &path[above.len() + usize::from(above.len() > 1)..];
            room = above;
            self.saw_in_room(client, room, (name, read), demand, lanes);
        }
    }

    /// `name` is wanted in the directory `room`.
    fn saw_in_room(
        &mut self,
        client: ClientId,
        room: &[u8],
        (name, read): (&[u8], bool),
        demand: bool,
        lanes: &mut Lanes,
    ) {
        let Some(watch) = self.watches.get_mut(&client) else { return };
        let is_routine = watch.routines.saw(room, name, read);
        let Some((directory, own)) = split(room).filter(|(_, own)| !own.is_empty()) else { return };
        let place = rooms_of(directory);
        if is_routine && !watch.places.contains_key(&place) {
            watch.remember(place.clone());
        }
        let Watch { places, habits, credit, routines, .. } = watch;
        let Some(known) = places.get_mut(&place).filter(|at| is_routine || at.guessed(own)) else {
            return;
        };
        let unknown = !known.knows(own);
        let (earned, used) = known.saw(own, true, demand, self.narrow);
        *credit = (*credit + earned).min(CREDIT_MAX);
        if used {
            routines.used(room);
            *habits.entry(place.habit()).or_default() += 1;
        }
        // One file that it reads is paid for, too.
        const PAID: u64 = ROOM_COST + COST_MIN;
        let new = unknown && demand && *credit >= PAID;
        if new {
            *credit -= PAID;
            known.allowance += PAID;
            known.spent += ROOM_COST;
            self.look_around(client, &place, (own, name), LOOKS, lanes);
        }
        if new || used {
            self.is_used(client, room, lanes);
        }
        self.go_on(client, &place, lanes);
    }

    /// Which rooms have been used is asked when something is missed.
    pub(super) fn settle_rooms(&mut self, client: ClientId, lanes: &mut Lanes) {
        let (Some(watch), Some(sink)) = (self.watches.get_mut(&client), self.sinks.get(&client))
        else {
            return;
        };
        let Watch { places, habits, credit, routines, .. } = watch;
        let (mut rooms, mut settled) = (Vec::new(), Vec::new());
        for (name, place) in places.iter_mut().filter(|(name, _)| name.of == Of::Rooms) {
            let (earned, used) = place.settle(self.narrow, |key| sink.was_used(key));
            if !used.is_empty() {
                *credit = (*credit + earned).min(CREDIT_MAX);
                self.tally.used[Of::Rooms as usize] += used.len() as u64;
                *habits.entry(name.habit()).or_default() += used.len() as u64;
                let used: Vec<_> = used.into_iter().filter_map(|guess| guess.room).collect();
                used.iter().for_each(|room| routines.used(room));
                rooms.extend(used);
                rooms.extend(place.open_more());
                settled.push(name.clone());
            }
        }
        rooms.iter().for_each(|room| self.is_used(client, room, lanes));
        settled.iter().for_each(|place| self.go_on(client, place, lanes));
    }

    /// Looks around in directories of `place` that nothing is known of but that they are there.
    pub(super) fn look_around_ahead(
        &mut self,
        client: ClientId,
        place: &PlaceName,
        directories: &[Box<[u8]>],
        lanes: &mut Lanes,
    ) {
        for own in directories {
            self.look_around(client, place, (own, b""), AHEAD, lanes);
        }
        let watch = self.watches.get_mut(&client);
        let rooms = watch.and_then(|watch| watch.places.get_mut(place)).map(Place::open_more);
        rooms.unwrap_or_default().iter().for_each(|room| self.is_used(client, room, lanes));
    }

    /// A room is in use, or is taken to be: so is what it holds, and maybe the rooms in it.
    fn is_used(&mut self, client: ClientId, room: &[u8], lanes: &mut Lanes) {
        self.open_up(client, room, lanes);
        let Some(watch) = self.watches.get_mut(&client) else { return };
        let place = rooms_of(room);
        if watch.has_habit(&place) && !watch.places.contains_key(&place) {
            watch.remember(place.clone()).demands += 1;
            self.go_on(client, &place, lanes);
        }
    }

    /// Looks for all that is looked for in a room, but for `known`, in `own`.
    pub(super) fn look_around(
        &mut self,
        client: ClientId,
        place: &PlaceName,
        (own, known): (&[u8], &[u8]),
        rank: u64,
        lanes: &mut Lanes,
    ) {
        let Some(watch) = self.watches.get_mut(&client) else { return };
        let Some(at) = watch.places.get_mut(place) else { return };
        let room = below(&place.directory, own);
        let names = watch.routines.all().into_iter().filter(|name| **name != *known);
        let errand = |name: Box<[u8]>| match *name == *ENTRIES {
            true => Errand::Browse { path: room.clone() },
            false => Errand::Look { path: below(&room, &name) },
        };
        let errands: Vec<Errand<F>> = names.map(errand).collect();
        let first = errands.iter().find_map(|errand| match errand {
            Errand::Look { path } => Some(Of::Rooms.key(path)),
            _ => None,
        });
        if let Some(key) = first {
            let room = Some(room.clone());
            self.tally.begun[Of::Rooms as usize] += 1;
            at.guessed.insert(hash(own), Guess { cost: ROOM_COST, key, room, opened: false });
        }
        at.ahead += errands.len();
        for errand in errands {
            self.put(client, place, Rank::guess(rank), errand, lanes);
        }
    }

    /// What a room holds of the kinds that have been right elsewhere will be wanted.
    fn open_up(&mut self, client: ClientId, room: &[u8], lanes: &mut Lanes) {
        let Some(watch) = self.watches.get_mut(&client) else { return };
        let mut places = Vec::new();
        for name in watch.routines.all() {
            let path = below(room, &name);
            let Some((directory, file)) = split(&path) else { continue };
            let of = if watch.routines.reads(&path) { Of::Data } else { Of::Names };
            let place = PlaceName { directory: directory.into(), suffix: suffix(file).into(), of };
            if watch.has_habit(&place) && !watch.places.contains_key(&place) {
                watch.remember(place.clone()).demands += 1;
                places.push(place);
            }
        }
        places.iter().for_each(|place| self.go_on(client, place, lanes));
    }
}

#[cfg(test)]
#[path = "rooms_tests.rs"]
mod tests;
