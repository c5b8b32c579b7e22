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
//! twice what it cost, so that guesses that are right double and double again; a file that is
//! wanted before it was guessed raises it by about one file. Guesses that are wrong raise nothing,
//! and that is the end. (A guess that served a target which could see that the data was in memory
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

use place::{Guess, Watch, cost, hash, suffix};

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
/// Guesses of one directory that wait or are under way.
const AHEAD_MAX: usize = 64;

/// One thing to do for a guess, without the lock.
pub(crate) enum Errand<F> {
    /// Read the entries of a directory, if there are not too many.
    List { path: Arc<[u8]> },
    /// Look a file up.
    Look { path: Arc<[u8]> },
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
}

impl Of {
    /// What one costs at least.
    fn unit(self) -> u64 {
        match self {
            Of::Data => COST_MIN,
            Of::Names => NAME_COST,
        }
    }

    fn allowance(self) -> u64 {
        match self {
            Of::Data => ALLOWANCE,
            Of::Names => ALLOWANCE_OF_NAMES,
        }
    }

    /// What the log calls the use of one.
    fn key(self, path: &[u8]) -> Identity {
        let name = Identity::ROOT.join(path);
        match self {
            Of::Data => name.chunk(ChunkIndex::of(0)),
            Of::Names => name,
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
            Of::Names => b"",
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
    /// The file that it looks up, if it does.
    file: Option<Box<[u8]>>,
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
}

impl<F> Default for Guesses<F> {
    fn default() -> Self {
        // Numbers of their own, from the other end: ids are only compared with each other.
        let (watches, waiting) = (HashMap::new(), HashMap::new());
        Guesses { watches, waiting, next: EntryId::MAX, sinks: HashMap::new(), used: 0 }
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
        let Some(slash) = record.path.iter().rposition(|&b| b == b'/') else { return };
        let (directory, name) = (&record.path[..slash.max(1)], &record.path[slash + 1..]);
        let place = PlaceName { directory: directory.into(), suffix: suffix(name).into(), of };
        let watch = self.watches.entry(client).or_insert_with(|| Watch {
            places: HashMap::new(),
            order: VecDeque::new(),
            credit: CREDIT,
            habits: HashMap::new(),
            listed: HashSet::new(),
        });
        if demand && !watch.places.contains_key(&place) {
            watch.remember(place.clone());
        }
        let Some(known) = watch.places.get_mut(&place) else { return };
        let (mut earned, used) = known.saw(name, counts, demand);
        let mut used = u64::from(used);
        if let Some(sink) = self.sinks.get(&client) {
            let (more, unseen) = known.settle(|key| sink.was_used(key));
            earned += more;
            used += unseen;
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
        let Some(place) = watch.places.get_mut(name) else { return };
        if !place.listed {
            let habit = watch.habits.get(&name.habit()).is_some_and(|used| *used >= HABIT);
            let listed = name.of == Of::Names && watch.listed.contains(&hash(&name.directory));
            let shown = place.wanted.len() >= EVIDENCE && place.demands >= DEMANDS
                || (habit || listed) && place.demands > 0;
            let first = name.of.allowance();
            if !shown || watch.credit < first {
                return;
            }
            watch.credit -= first;
            place.allowance += first;
            place.listed = true;
            place.ahead += 1;
            let path = name.directory.clone();
            self.put(client, name, Rank::guess(0), Errand::List { path }, lanes);
            return;
        }
        let (mut errands, unit) = (Vec::new(), name.of.unit());
        while place.ahead < AHEAD_MAX
            && place.allowance > place.short_at
            && place.spent + unit <= place.allowance
            && let Some(file) = place.candidates.pop_front()
        {
            let hash = hash(&file);
            if place.wanted.contains(&hash) {
                continue;
            }
            place.spent += unit;
            place.ahead += 1;
            let slash: &[u8] = if name.directory.ends_with(b"/") { b"" } else { b"/" };
            let path: Arc<[u8]> = [&name.directory, slash, &file].concat().into();
            place.guessed.insert(hash, Guess { cost: unit, key: name.of.key(&path) });
            errands.push(Errand::Look { path });
        }
        for errand in errands {
            self.put(client, name, Rank::guess(0), errand, lanes);
        }
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
        let file = match &errand {
            Errand::Look { path } => {
                let slash = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
                Some(path[slash..].into())
            }
            _ => None,
        };
        Some((Sent { client, place, file }, errand))
    }

    /// A worker comes back.
    pub(crate) fn finish(
        &mut self,
        sent: Sent,
        outcome: Outcome<F>,
        lanes: &mut Lanes,
        fx: &mut Effects<F>,
    ) {
        let Sent { client, place: name, file: file_name } = sent;
        let watch = self.watches.get_mut(&client);
        let Some(place) = watch.and_then(|watch| watch.places.get_mut(&name)) else {
            if let Outcome::File(file, _) = outcome {
                fx.files.push(file);
            }
            return;
        };
        place.ahead -= 1;
        match outcome {
            Outcome::Names(mut names) if names.len() <= ENTRIES_MAX => {
                let fits = |n: &Name| !n.directory || name.of == Of::Names;
                names.retain(|n| fits(n) && suffix(&n.name) == &*name.suffix);
                names.sort_unstable_by_key(|n| n.inode);
                place.candidates = names.into_iter().map(|n| n.name).collect();
            }
            Outcome::File(file, size)
                if name.of == Of::Data && size > 0 && size <= EXTEND_MAX_BYTES =>
            {
                let file_name = file_name.unwrap_or_default();
                let more = cost(size) - COST_MIN;
                if place.spent + more > place.allowance {
                    fx.files.push(file);
                    place.put_off(file_name);
                } else {
                    place.spent += more;
                    if let Some(guessed) = place.guessed.get_mut(&hash(&file_name)) {
                        guessed.cost = cost(size);
                    }
                    place.ahead += 1;
                    let path = [&name.directory, &b"/"[..], &file_name].concat().into();
                    let errand = Errand::Read { path, file, size };
                    self.put(client, &name, Rank::guess(1), errand, lanes);
                }
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

#[cfg(test)]
#[path = "guess_tests.rs"]
mod tests;
