//! Life of a worker's task for a guess, from the queue to its outcome.

use super::guess_kind::{COST_MIN, GuessKind, PlaceName, cost};
use super::guess_state::{Guesses, READS};
use super::guess_task::{GuessTask, Outcome, Sent, WaitingErrand};
use super::path_keys::first_below;
use super::pattern_state::{ClientPatterns, ENTRIES_MAX};
use crate::deferred_effects::Effects;
use crate::hint_order::{ClientId, EntryId, Item, Rank};
use crate::read_sizes::EXTEND_MAX_BYTES;
use crate::task_queue::TaskQueue;

impl<F> Guesses<F> {
    pub(super) fn put(
        &mut self,
        client: ClientId,
        place: &PlaceName,
        rank: Rank,
        errand: GuessTask<F>,
        queue: &mut impl TaskQueue,
    ) {
        let id = self.next;
        self.next -= 1;
        queue.join_at(client, id, errand.path());
        self.waiting.insert(id, WaitingErrand { client, place: place.clone(), rank, errand });
        queue.insert(client, id, rank, Item::Guess);
    }

    /// Takes `id` out.
    fn take(&mut self, id: EntryId, queue: &mut impl TaskQueue) -> Option<WaitingErrand<F>> {
        let waiting = self.waiting.remove(&id)?;
        queue.remove(waiting.client, id, waiting.rank, Item::Guess);
        queue.leave(waiting.client, id);
        Some(waiting)
    }

    /// A worker takes `id`.
    pub fn pop(&mut self, id: EntryId, queue: &mut impl TaskQueue) -> Option<(Sent, GuessTask<F>)> {
        let WaitingErrand { client, place, errand, .. } = self.take(id, queue)?;
        let path = errand.path().clone();
        Some((Sent { client, place, path }, errand))
    }

    /// A worker comes back.
    pub fn finish(
        &mut self,
        sent: Sent,
        outcome: Outcome<F>,
        queue: &mut impl TaskQueue,
        fx: &mut Effects<F>,
    ) {
        let Sent { client, place: name, path } = sent;
        if name.of == GuessKind::Mentions {
            return self.finish_named(client, path, outcome, queue, fx);
        }
        let Some((routines, credit, place)) = self.clients.get_mut(&client).and_then(|patterns| {
            let ClientPatterns { places, routines, credit, .. } = patterns;
            places.get_mut(&name).map(|place| (routines, credit, place))
        }) else {
            if let Outcome::File(file, _) = outcome {
                fx.files.push(file);
            }
            return;
        };
        // The count is too low if the place had been forgotten meanwhile.
        place.ahead = place.ahead.saturating_sub(1);
        match outcome {
            Outcome::Names(entries) if entries.len() <= ENTRIES_MAX => {
                place.candidates = name.choose(entries, routines);
            }
            Outcome::File(file, size) => {
                let own = first_below(&name.directory, &path);
                // What reading it costs beyond what has been paid; nothing if it is not to be read.
                let fits = (1..=EXTEND_MAX_BYTES).contains(&size);
                let more = match name.of {
                    GuessKind::Data if fits => Some(cost(size) - COST_MIN),
                    GuessKind::Siblings if fits && routines.reads(&path) => Some(size),
                    _ => None,
                };
                match more {
                    Some(more) if place.spend(more, credit) => {
                        place.add_cost(own, more);
                        place.ahead += 1;
                        let errand = GuessTask::Read { path, file, size };
                        self.put(client, &name, Rank::guess(READS), errand, queue);
                    }
                    _ => {
                        if let (Some(more), GuessKind::Data) = (more, name.of) {
                            place.put_off(own.into(), more);
                        }
                        fx.files.push(file);
                    }
                }
            }
            Outcome::Names(_) | Outcome::Tokens(_) | Outcome::Over => {}
        }
        self.go_on(client, &name, queue);
    }

    /// `client` no longer wants `id`, if that is a guess.
    pub fn drop(&mut self, id: EntryId, queue: &mut impl TaskQueue, fx: &mut Effects<F>) {
        let waiting = self.take(id, queue).map(|waiting| waiting.errand);
        if let Some(GuessTask::Read { file, .. } | GuessTask::Scan { file, .. }) = waiting {
            fx.files.push(file);
        }
    }
}
