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
//! [`RETURN`](pattern_state::RETURN) times what it cost, so that guesses that are right multiply; a file that is
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
//! ([`lookup_pattern`]): from the third on, all of these are looked for when the first is, and in the
//! directory's siblings, as far as their allowance goes.
//!
//! A fourth are files that are named in those that were read ([`name_references`]).
//!
//! Invariants: what is spent in a directory is within its allowance, and so a client has guessed at
//! most [`CREDIT`] bytes, and a small multiple of what it wanted, in vain; a directory of more than
//! [`ENTRIES_MAX`] entries is left alone.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use runahead_abi::hint_record::DEMAND;
use runahead_abi::{HintKind, Record};

use crate::fair_queue::Lanes;
use crate::hint_order::{ClientId, EntryId, Rank};
use crate::result_sink::Sink;

mod guess_counts;
mod guess_jobs;
mod guess_kind;
mod lookup_pattern;
mod name_references;
mod path_keys;
mod pattern_state;
mod reference_jobs;
mod sibling_directories;

pub(crate) use guess_counts::Tally;
pub(crate) use guess_jobs::{Errand, Outcome, Sent};
pub use guess_kind::KIND_NAMES;
pub(crate) use guess_kind::{KINDS, Of};
pub(crate) use name_references::{LISTED_MAX as NAMED_IN_MAX, SCAN_BYTES, tokens};

use guess_jobs::Waiting;
use guess_kind::PlaceName;
use lookup_pattern::Routines;
use name_references::Mentions;
use path_keys::{below, hash, split, suffix};
use pattern_state::{Guess, Watch};

/// Guesses that were used, from where on one file is enough.
const HABIT: u64 = 8;
/// Entries of a directory that is guessed from.
pub(crate) const ENTRIES_MAX: usize = 2048;
/// Directories of one client that it has listed and that are remembered.
const LISTED_MAX: usize = 1024;
/// What a client's first allowances may amount to.
const CREDIT: u64 = 4 << 20;
/// What all allowances of a client may amount to at most, however much it reads.
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

/// See the module's text.
pub(crate) struct Guesses<F> {
    watches: HashMap<ClientId, Watch>,
    waiting: HashMap<EntryId, Waiting<F>>,
    next: EntryId,
    /// The sinks of clients, which know what was used.
    sinks: HashMap<ClientId, Arc<dyn Sink>>,
    /// What came of guesses.
    pub tally: Tally,
    /// The storage serves few requests side by side.
    pub narrow: bool,
    /// Files are looked through for names.
    pub scans: bool,
    /// Nothing is guessed.
    pub off: bool,
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
            tally: Tally::default(),
            narrow: false,
            scans: false,
            off: false,
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
        if self.off {
            return;
        }
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
        self.saw_in_siblings(client, record, demand, lanes);
        self.saw_named(client, record, demand, lanes);
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
            mentions: Mentions::default(),
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
            // Those only that nobody asked for any more: what is still hinted or waited for came too late.
            self.tally.used[of as usize] += unseen.len() as u64;
        }
        if used > 0 {
            *watch.habits.entry(place.habit()).or_default() += used;
        }
        watch.credit = (watch.credit + earned).min(CREDIT_MAX);
        self.go_on(client, &place, lanes);
    }

    /// Guesses as much as is allowed now.
    fn go_on(&mut self, client: ClientId, name: &PlaceName, lanes: &mut Lanes) {
        let Some(watch) = self.watches.get_mut(&client) else { return };
        match watch.places.get(name) {
            Some(place) if place.listed => self.guess_more(client, name, lanes),
            Some(_) => self.begin(client, name, lanes),
            None => {}
        }
    }

    /// Has the directory listed, if what was seen is evidence enough.
    fn begin(&mut self, client: ClientId, name: &PlaceName, lanes: &mut Lanes) {
        let Some(watch) = self.watches.get_mut(&client) else { return };
        let habit = watch.has_habit(name);
        let listed = name.of == Of::Names && watch.listed.contains(&hash(&name.directory));
        let Some(place) = watch.places.get_mut(name) else { return };
        let (evidence, demands) = name.of.evidence();
        let shown = place.wanted.len() >= evidence && place.demands >= demands
            || (habit || listed) && place.demands > 0;
        if !shown || watch.credit < name.of.unit() {
            return;
        }
        place.begin(name.of.allowance());
        place.ahead += 1;
        let path = name.directory.clone();
        self.put(client, name, Rank::guess(LOOKS), Errand::List { path }, lanes);
    }

    /// Looks up what the directory holds, as far as the allowance goes.
    fn guess_more(&mut self, client: ClientId, name: &PlaceName, lanes: &mut Lanes) {
        let Some(watch) = self.watches.get_mut(&client) else { return };
        let Some(place) = watch.places.get_mut(name) else { return };
        let (mut errands, mut siblings, unit) = (Vec::new(), Vec::new(), name.of.unit());
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
            if name.of == Of::Siblings {
                if !place.guessed.contains_key(&hash) {
                    siblings.push(file);
                }
                continue;
            }
            place.ahead += 1;
            self.tally.begun[name.of as usize] += 1;
            let path = below(&name.directory, &file);
            place.guessed.insert(
                hash,
                Guess { cost: unit, key: name.of.key(&path), sibling: None, opened: false },
            );
            errands.push(Errand::Look { path });
        }
        for errand in errands {
            self.put(client, name, Rank::guess(LOOKS), errand, lanes);
        }
        self.look_around_ahead(client, name, &siblings, lanes);
    }

    /// `client` is gone.
    pub(crate) fn close(&mut self, client: ClientId) {
        self.watches.remove(&client);
        self.sinks.remove(&client);
    }
}

#[cfg(test)]
#[path = "file_guesses_tests.rs"]
mod tests;
