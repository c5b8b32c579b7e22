//! Files that nobody asked for: the neighbours of those that a program reads one after the other.
//!
//! A program that imports modules, or a script that sources files, reads what it has just learned
//! of, and a shadow cannot run ahead of that: all it has is one small file that is not there yet,
//! again and again. But such files lie together. So where a target itself has waited for several
//! files of one directory, the others there with the same suffix are brought in, after everything
//! that was hinted, by any client.
//!
//! How far to go is learned from what comes of it. Each directory and suffix has an *allowance* in
//! bytes, small at first. A guess that is used, that is, hinted or demanded later, raises it by
//! [`RETURN`](place::RETURN) times what it cost, so that guesses that are right multiply; a file that is
//! wanted before it was guessed raises it by about one file, or as many as that. Guesses that are
//! wrong raise nothing, and that is the end. (A guess that served a target which could see that the data was in memory
//! is not hinted any more. The client's log tells, when the next file is missed; without one, the
//! files that are missed carry the allowance on.) In addition all
//! first allowances of a client are paid from its *credit*, which grows with what it reads: a walk
//! that takes three files of each of many directories soon gets no more guesses.
//!
//! What has been right becomes a *habit*: after [`HABIT`] guesses that were used in directories of the
//! same name, the first file that a target waits for in another such one is evidence enough.
//!
//! Names are guessed in the same way, where a target has waited to look several of one directory up,
//! or one of a directory that it has listed (as python does, which lists a package, and asks for each
//! module's source before it reads what was compiled from it).
//!
//! A third kind are the directories that a program enters, each to look for the same few names
//! ([`routine`]): from the third on, all of these are looked for when the first is, and in the
//! directory's siblings, as far as their allowance goes.
//!
//! Invariants: what is spent in a directory is within its allowance, and so a client has guessed at
//! most [`CREDIT`] bytes, and a small multiple of what it wanted, in vain; a directory of more than
//! [`ENTRIES_MAX`] entries is left alone.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use runahead_abi::record::DEMAND;
use runahead_abi::{ChunkIndex, HintKind, Identity, Record};

use crate::EXTEND_MAX_BYTES;
use crate::expand::Name;
use crate::lanes::Lanes;
use crate::order::{ClientId, EntryId, Item, Rank};
use crate::queue::Effects;
use crate::sink::Sink;

mod place;
mod rooms;
mod routine;

use place::{Guess, Watch, cost, hash, suffix};
use routine::Routines;

/// Different files of a directory that were wanted before there is a guess.
const EVIDENCE: usize = 3;
/// Of those, so many by the target itself: otherwise a shadow is ahead, which knows better.
const DEMANDS: u32 = 2;
/// Guesses that were used, from where on one file is enough.
const HABIT: u64 = 8;
/// Entries of a directory that is guessed from.
pub(crate) const ENTRIES_MAX: usize = 2048;
/// The first allowance of a directory.
const ALLOWANCE: u64 = 256 << 10;
/// The same for names.
const ALLOWANCE_OF_NAMES: u64 = 64 << 10;
/// What a directory costs in which a few names are looked for.
const ROOM_COST: u64 = 4 << 10;
/// What a name costs.
const NAME_COST: u64 = 512;
/// Directories of one client that it has listed and that are remembered.
const LISTED_MAX: usize = 1024;
/// What a file is taken to cost at least: a request costs something whatever it brings.
const COST_MIN: u64 = 16 << 10;
/// What a client's first allowances may amount to.
const CREDIT: u64 = 4 << 20;
/// And at most, however much it reads.
const CREDIT_MAX: u64 = 64 << 20;
/// Directories of one client that are remembered.
const PLACES_MAX: usize = 256;
/// Files of one directory that are remembered to have been wanted.
const WANTED_MAX: usize = 2 * ENTRIES_MAX;
/// What is known to be there is read before more is looked for.
const READS: u64 = 0;
const LOOKS: u64 = 1;
/// Before directories that nothing is known of.
const AHEAD: u64 = 2;
/// Guesses of one directory that wait or are under way.
const AHEAD_MAX: usize = 64;

/// One thing to do for a guess, without the lock.
pub(crate) enum Errand<F> {
    /// Read the entries of a directory, if there are not too many.
    List { path: Arc<[u8]> },
    /// Look a file up.
    Look { path: Arc<[u8]> },
    /// Read the entries of a directory, and do nothing with them.
    Browse { path: Arc<[u8]> },
    /// Read it.
    Read { path: Arc<[u8]>, file: Arc<F>, size: u64 },
}

/// What is guessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Of {
    /// The files' contents.
    Data,
    /// That they are there, and their attributes.
    Names,
    /// What a program looks for in each of several directories, here and that they lie in.
    Rooms,
}

impl Of {
    /// What one costs at least.
    fn unit(self) -> u64 {
        match self {
            Of::Data => COST_MIN,
            Of::Rooms => ROOM_COST,
            Of::Names => NAME_COST,
        }
    }

    fn allowance(self) -> u64 {
        match self {
            Of::Data | Of::Rooms => ALLOWANCE,
            Of::Names => ALLOWANCE_OF_NAMES,
        }
    }

    /// What the log calls the use of one.
    fn key(self, path: &[u8]) -> Identity {
        let name = Identity::ROOT.join(path);
        match self {
            Of::Data => name.chunk(ChunkIndex::of(0)),
            Of::Names | Of::Rooms => name,
        }
    }
}

/// What came of it.
pub(crate) enum Outcome<F> {
    Names(Vec<Name>),
    /// A regular file, and its size.
    File(Arc<F>, u64),
    /// Nothing to go on with: it was read, is of no use, or there was an error.
    Over,
}

/// A directory and a suffix.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PlaceName {
    directory: Arc<[u8]>,
    suffix: Box<[u8]>,
    of: Of,
}

impl PlaceName {
    /// What it has in common with other places: the directory's own name, for contents, and the
    /// suffix.
    fn habit(&self) -> Habit {
        let own = match self.of {
            Of::Data => self.directory.rsplit(|&b| b == b'/').next().unwrap_or_default(),
            Of::Names | Of::Rooms => b"",
        };
        (self.of, own.into(), self.suffix.clone())
    }
}

/// See [`PlaceName::habit`].
type Habit = (Of, Box<[u8]>, Box<[u8]>);

struct Waiting<F> {
    client: ClientId,
    place: PlaceName,
    rank: Rank,
    errand: Errand<F>,
}

/// An errand that a worker is on.
pub(crate) struct Sent {
    client: ClientId,
    place: PlaceName,
    /// What it looks up, if it does.
    path: Option<Arc<[u8]>>,
}

impl Sent {
    /// Whose guess it is, and of what.
    pub(crate) fn whose(&self) -> (ClientId, Of) {
        (self.client, self.place.of)
    }
}

/// See the module's text.
pub(crate) struct Guesses<F> {
    watches: HashMap<ClientId, Watch>,
    waiting: HashMap<EntryId, Waiting<F>>,
    next: EntryId,
    /// Those who know what was used.
    sinks: HashMap<ClientId, Arc<dyn Sink>>,
    /// Guesses that were used.
    pub used: u64,
    /// The storage serves few requests side by side.
    pub narrow: bool,
}

impl<F> Default for Guesses<F> {
    fn default() -> Self {
        // Numbers of their own, from the other end: ids are only compared with each other.
        let (watches, waiting) = (HashMap::new(), HashMap::new());
        Guesses {
            watches,
            waiting,
            next: EntryId::MAX,
            sinks: HashMap::new(),
            used: 0,
            narrow: false,
        }
    }
}

impl<F> Guesses<F> {
    /// `sink` is told of `client`'s guesses, and knows which were used.
    pub(crate) fn open(&mut self, client: ClientId, sink: Arc<dyn Sink>) {
        self.sinks.insert(client, sink);
    }

    /// `client` wants what `record` says: evidence, and maybe the use of a guess.
    pub(crate) fn saw(&mut self, client: ClientId, record: &Record<'_>, lanes: &mut Lanes) {
        let demand = record.header.flags & DEMAND != 0;
        if demand {
            self.settle_rooms(client, lanes);
        }
        self.saw_one(client, record, (Of::Data, HintKind::Data), demand, lanes);
        if record.kind == HintKind::Listing
            && let Some(watch) = self.watches.get_mut(&client)
            && watch.listed.len() < LISTED_MAX
        {
            watch.listed.insert(hash(record.path));
        }
        if record.kind == HintKind::Lookup {
            self.saw_one(client, record, (Of::Names, HintKind::Lookup), demand, lanes);
        }
        self.saw_in_rooms(client, record, demand, lanes);
    }

    fn saw_one(
        &mut self,
        client: ClientId,
        record: &Record<'_>,
        (of, kind): (Of, HintKind),
        demand: bool,
        lanes: &mut Lanes,
    ) {
        let counts = record.kind == kind;
        let demand = demand && counts;
        if !demand && !self.watches.contains_key(&client) {
            return;
        }
        let Some((directory, name)) = split(record.path) else { return };
        let place = PlaceName { directory: directory.into(), suffix: suffix(name).into(), of };
        let watch = self.watches.entry(client).or_insert_with(|| Watch {
            places: HashMap::new(),
            order: VecDeque::new(),
            credit: CREDIT,
            habits: HashMap::new(),
            listed: HashSet::new(),
            routines: Routines::default(),
        });
        if demand && !watch.places.contains_key(&place) {
            watch.remember(place.clone());
        }
        let Some(known) = watch.places.get_mut(&place) else { return };
        let (mut earned, used) = known.saw(name, counts, demand, self.narrow);
        let mut used = u64::from(used);
        if let Some(sink) = self.sinks.get(&client) {
            let (more, unseen) = known.settle(self.narrow, |key| sink.was_used(key));
            earned += more;
            used += unseen.len() as u64;
        }
        self.used += used;
        if used > 0 {
            *watch.habits.entry(place.habit()).or_default() += used;
        }
        watch.credit = (watch.credit + earned).min(CREDIT_MAX);
        self.go_on(client, &place, lanes);
    }

    /// Guesses as much as is allowed now.
    fn go_on(&mut self, client: ClientId, name: &PlaceName, lanes: &mut Lanes) {
        let Some(watch) = self.watches.get_mut(&client) else { return };
        let begun = watch.places.get(name).is_none_or(|place| place.listed);
        let habit = !begun && watch.has_habit(name);
        let Some(place) = watch.places.get_mut(name) else { return };
        if !place.listed {
            let listed = name.of == Of::Names && watch.listed.contains(&hash(&name.directory));
            // That a routine is one was seen in several directories.
            let (evidence, demands) = match name.of {
                Of::Rooms => (2, 1),
                Of::Data | Of::Names => (EVIDENCE, DEMANDS),
            };
            let shown = place.wanted.len() >= evidence && place.demands >= demands
                || (habit || listed) && place.demands > 0;
            if !shown || watch.credit < name.of.unit() {
                return;
            }
            place.begin(name.of.allowance());
            place.ahead += 1;
            let path = name.directory.clone();
            self.put(client, name, Rank::guess(LOOKS), Errand::List { path }, lanes);
            return;
        }
        let (mut errands, mut rooms, unit) = (Vec::new(), Vec::new(), name.of.unit());
        while place.ahead < AHEAD_MAX
            && place.allowance > place.short_at
            && let Some(file) = place.candidates.pop_front()
        {
            let hash = hash(&file);
            if place.wanted.contains(&hash) {
                continue;
            }
            if !place.spend(unit, &mut watch.credit) {
                place.candidates.push_front(file);
                break;
            }
            if name.of == Of::Rooms {
                if !place.guessed.contains_key(&hash) {
                    rooms.push(file);
                }
                continue;
            }
            place.ahead += 1;
            let path = below(&name.directory, &file);
            place.guessed.insert(
                hash,
                Guess { cost: unit, key: name.of.key(&path), room: None, opened: false },
            );
            errands.push(Errand::Look { path });
        }
        for errand in errands {
            self.put(client, name, Rank::guess(LOOKS), errand, lanes);
        }
        self.look_around_ahead(client, name, &rooms, lanes);
    }

    fn put(
        &mut self,
        client: ClientId,
        place: &PlaceName,
        rank: Rank,
        errand: Errand<F>,
        lanes: &mut Lanes,
    ) {
        let id = self.next;
        self.next -= 1;
        self.waiting.insert(id, Waiting { client, place: place.clone(), rank, errand });
        lanes.join(client, id);
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
        let path = match &errand {
            Errand::Look { path } => Some(path.clone()),
            _ => None,
        };
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
        let path = path.unwrap_or_default();
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
            Outcome::Names(mut names) if names.len() <= ENTRIES_MAX => {
                let leads = if name.of == Of::Rooms { routines.leads() } else { HashSet::new() };
                names.retain(|n| match name.of {
                    Of::Data => !n.directory && suffix(&n.name) == &*name.suffix,
                    Of::Names => suffix(&n.name) == &*name.suffix,
                    Of::Rooms => n.directory && !leads.contains(&n.name),
                });
                names.sort_unstable_by_key(|n| n.inode);
                place.candidates = names.into_iter().map(|n| n.name).collect();
            }
            Outcome::File(file, size)
                if name.of == Of::Data && size > 0 && size <= EXTEND_MAX_BYTES =>
            {
                let file_name: Box<[u8]> = split(&path).map_or(&b""[..], |(_, name)| name).into();
                let more = cost(size) - COST_MIN;
                if !place.spend(more, credit) {
                    fx.files.push(file);
                    place.put_off(file_name);
                } else {
                    place.add_cost(&file_name, more);
                    place.ahead += 1;
                    let errand = Errand::Read { path, file, size };
                    self.put(client, &name, Rank::guess(READS), errand, lanes);
                }
            }
            Outcome::File(file, size)
                if name.of == Of::Rooms
                    && (1..=EXTEND_MAX_BYTES).contains(&size)
                    && routines.reads(&path)
                    && place.spend(size, credit) =>
            {
                let inside = path.get(name.directory.len() + 1..).unwrap_or_default();
                place.add_cost(inside.split(|&b| b == b'/').next().unwrap_or_default(), size);
                place.ahead += 1;
                let errand = Errand::Read { path, file, size };
                self.put(client, &name, Rank::guess(READS), errand, lanes);
            }
            Outcome::File(file, _) => fx.files.push(file),
            Outcome::Names(_) | Outcome::Over => {}
        }
        self.go_on(client, &name, lanes);
    }

    /// `client` no longer wants `id`, if that is a guess.
    pub(crate) fn drop(&mut self, id: EntryId, lanes: &mut Lanes, fx: &mut Effects<F>) {
        if let Some(Waiting { errand: Errand::Read { file, .. }, .. }) = self.take(id, lanes) {
            fx.files.push(file);
        }
    }

    /// `client` is gone.
    pub(crate) fn close(&mut self, client: ClientId) {
        self.watches.remove(&client);
        self.sinks.remove(&client);
    }
}

/// The directory that `path` is in, and its name there.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|&b| b == b'/')?;
    Some((&path[..slash.max(1)], &path[slash + 1..]))
}

/// `name` in `directory`.
fn below(directory: &[u8], name: &[u8]) -> Arc<[u8]> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat().into()
}

#[cfg(test)]
#[path = "guess_tests.rs"]
mod tests;
