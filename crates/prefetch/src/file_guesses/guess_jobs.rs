//! What workers do for guesses, from waiting for one to what came of it.

use std::sync::Arc;

use super::guess_kind::{COST_MIN, Of, PlaceName, cost};
use super::path_keys::first_below;
use super::pattern_state::Watch;
use super::{ENTRIES_MAX, Guesses, READS};
use crate::EXTEND_MAX_BYTES;
use crate::directory_expansion::Name;
use crate::fair_queue::Lanes;
use crate::hint_order::{ClientId, EntryId, Item, Rank};
use crate::request_queue::Effects;

/// One thing to do for a guess, without the lock.
pub(crate) enum Errand<F> {
    /// Read the entries of a directory, if there are not too many.
    List { path: Arc<[u8]> },
    /// Look a file up.
    Look { path: Arc<[u8]> },
    /// Read the entries of a directory, and do nothing with them.
    Browse { path: Arc<[u8]> },
    /// Read a file.
    Read { path: Arc<[u8]>, file: Arc<F>, size: u64 },
    /// Read a file, and look for names in it.
    Scan { path: Arc<[u8]>, file: Arc<F>, size: u64 },
}

impl<F> Errand<F> {
    /// The path that the errand is about.
    fn path(&self) -> &Arc<[u8]> {
        match self {
            Errand::List { path }
            | Errand::Look { path }
            | Errand::Browse { path }
            | Errand::Read { path, .. }
            | Errand::Scan { path, .. } => path,
        }
    }
}

impl<F> Errand<F> {
    /// Bytes of data that the errand brings.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Errand::Read { size, .. } | Errand::Scan { size, .. } => *size,
            Errand::List { .. } | Errand::Look { .. } | Errand::Browse { .. } => 0,
        }
    }
}

/// What came of an errand.
pub(crate) enum Outcome<F> {
    Names(Vec<Name>),
    /// A regular file, and its size.
    File(Arc<F>, u64),
    /// What may be names in a file.
    Tokens(Vec<Box<[u8]>>),
    /// Nothing to go on with: the file was read, is of no use, or there was an error.
    Over,
}

/// An errand that no worker has taken yet.
pub(super) struct Waiting<F> {
    client: ClientId,
    place: PlaceName,
    rank: Rank,
    errand: Errand<F>,
}

/// An errand that a worker is on.
pub(crate) struct Sent {
    client: ClientId,
    place: PlaceName,
    /// The path that the errand is about.
    path: Arc<[u8]>,
}

impl Sent {
    /// The client whose guess the errand is for, and what is guessed.
    pub(crate) fn whose(&self) -> (ClientId, Of) {
        (self.client, self.place.of)
    }
}

impl<F> Guesses<F> {
    pub(super) fn put(
        &mut self,
        client: ClientId,
        place: &PlaceName,
        rank: Rank,
        errand: Errand<F>,
        lanes: &mut Lanes,
    ) {
        let id = self.next;
        self.next -= 1;
        lanes.join_at(client, id, errand.path());
        self.waiting.insert(id, Waiting { client, place: place.clone(), rank, errand });
        lanes.shelf(client, id, false).insert(rank, Item::Guess);
    }

    /// Takes `id` out.
    fn take(&mut self, id: EntryId, lanes: &mut Lanes) -> Option<Waiting<F>> {
        let waiting = self.waiting.remove(&id)?;
        lanes.shelf(waiting.client, id, false).remove(waiting.rank, Item::Guess);
        lanes.leave(waiting.client, id);
        Some(waiting)
    }

    /// A worker takes `id`.
    pub(crate) fn pop(&mut self, id: EntryId, lanes: &mut Lanes) -> Option<(Sent, Errand<F>)> {
        let Waiting { client, place, errand, .. } = self.take(id, lanes)?;
        let path = errand.path().clone();
        Some((Sent { client, place, path }, errand))
    }

    /// A worker comes back.
    pub(crate) fn finish(
        &mut self,
        sent: Sent,
        outcome: Outcome<F>,
        lanes: &mut Lanes,
        fx: &mut Effects<F>,
    ) {
        let Sent { client, place: name, path } = sent;
        if name.of == Of::Mentions {
            return self.finish_named(client, path, outcome, lanes, fx);
        }
        let Some((routines, credit, place)) = self.watches.get_mut(&client).and_then(|watch| {
            let Watch { places, routines, credit, .. } = watch;
            places.get_mut(&name).map(|place| (routines, credit, place))
        }) else {
            if let Outcome::File(file, _) = outcome {
                fx.files.push(file);
            }
            return;
        };
        // (Fewer than are under way, if the place had been forgotten meanwhile.)
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
                    Of::Data if fits => Some(cost(size) - COST_MIN),
                    Of::Siblings if fits && routines.reads(&path) => Some(size),
                    _ => None,
                };
                match more {
                    Some(more) if place.spend(more, credit) => {
                        place.add_cost(own, more);
                        place.ahead += 1;
                        let errand = Errand::Read { path, file, size };
                        self.put(client, &name, Rank::guess(READS), errand, lanes);
                    }
                    _ => {
                        if let (Some(more), Of::Data) = (more, name.of) {
                            place.put_off(own.into(), more);
                        }
                        fx.files.push(file);
                    }
                }
            }
            Outcome::Names(_) | Outcome::Tokens(_) | Outcome::Over => {}
        }
        self.go_on(client, &name, lanes);
    }

    /// `client` no longer wants `id`, if that is a guess.
    pub(crate) fn drop(&mut self, id: EntryId, lanes: &mut Lanes, fx: &mut Effects<F>) {
        let waiting = self.take(id, lanes).map(|waiting| waiting.errand);
        if let Some(Errand::Read { file, .. } | Errand::Scan { file, .. }) = waiting {
            fx.files.push(file);
        }
    }
}
