//! Evidence for guesses: the files that clients want.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};
use runahead_abi::hint_record::DEMAND;
use runahead_abi::{HintKind, Record};

use super::guess_kind::{GuessKind, PlaceName};
use super::guess_state::{CREDIT, CREDIT_MAX, Guesses, LOOKS};
use super::guess_task::GuessTask;
use super::lookup_pattern::LookupPatterns;
use super::name_references::NameReferences;
use super::path_keys::{below, hash, split, suffix};
use super::pattern_state::{ClientPatterns, Guess};
use crate::hint_order::{ClientId, Rank};
use crate::task_queue::TaskQueue;

/// Directories of one client that it has listed and that are remembered.
const LISTED_MAX: usize = 1024;
/// Guesses of one directory that wait or are under way.
const AHEAD_MAX: usize = 64;

impl<F> Guesses<F> {
    /// `client` wants what `record` says: evidence, and maybe the use of a guess.
    pub fn saw(&mut self, client: ClientId, record: &Record<'_>, queue: &mut impl TaskQueue) {
        if self.off {
            return;
        }
        let demand = record.header.flags & DEMAND != 0;
        if demand {
            self.settle_rooms(client, queue);
        }
        self.saw_one(client, record, (GuessKind::Data, HintKind::Data), demand, queue);
        if record.kind == HintKind::Listing
            && let Some(patterns) = self.clients.get_mut(&client)
            && patterns.listed.len() < LISTED_MAX
        {
            patterns.listed.insert(hash(record.path));
        }
        if record.kind == HintKind::Lookup {
            self.saw_one(client, record, (GuessKind::Names, HintKind::Lookup), demand, queue);
        }
        if self.follows_patterns {
            self.saw_in_siblings(client, record, demand, queue);
        }
        self.saw_named(client, record, demand, queue);
    }

    fn saw_one(
        &mut self,
        client: ClientId,
        record: &Record<'_>,
        (of, kind): (GuessKind, HintKind),
        demand: bool,
        queue: &mut impl TaskQueue,
    ) {
        let counts = record.kind == kind;
        let demand = demand && counts;
        if !demand && !self.clients.contains_key(&client) {
            return;
        }
        let Some((directory, name)) = split(record.path) else { return };
        let place = PlaceName { directory: directory.into(), suffix: suffix(name).into(), of };
        let patterns = self.clients.entry(client).or_insert_with(|| ClientPatterns {
            places: HashMap::new(),
            order: VecDeque::new(),
            credit: CREDIT,
            habits: HashMap::new(),
            listed: HashSet::new(),
            routines: LookupPatterns::default(),
            mentions: NameReferences::default(),
        });
        if demand && !patterns.places.contains_key(&place) {
            patterns.remember(place.clone());
        }
        let Some(known) = patterns.places.get_mut(&place) else { return };
        let (mut earned, used) = known.saw(name, counts, demand, self.narrow);
        let mut used = u64::from(used);
        if let Some(sink) = self.sinks.get(&client) {
            let (more, unseen) = known.settle(self.narrow, |key| sink.was_used(key));
            earned += more;
            used += unseen.len() as u64;
            // Counts only guesses that were not hinted or demanded: for others the guess came too
            // late.
            self.tally.used[of as usize] += unseen.len() as u64;
        }
        if used > 0 {
            *patterns.habits.entry(place.habit()).or_default() += used;
        }
        patterns.credit = (patterns.credit + earned).min(CREDIT_MAX);
        self.go_on(client, &place, queue);
    }

    /// Guesses as much as is allowed now.
    pub(super) fn go_on(&mut self, client: ClientId, name: &PlaceName, queue: &mut impl TaskQueue) {
        let Some(patterns) = self.clients.get_mut(&client) else { return };
        match patterns.places.get(name) {
            Some(place) if place.listed => self.guess_more(client, name, queue),
            Some(_) => self.begin(client, name, queue),
            None => {}
        }
    }

    /// Has the directory listed, if what was seen is evidence enough.
    fn begin(&mut self, client: ClientId, name: &PlaceName, queue: &mut impl TaskQueue) {
        let Some(patterns) = self.clients.get_mut(&client) else { return };
        let habit = patterns.has_habit(name);
        let listed =
            name.of == GuessKind::Names && patterns.listed.contains(&hash(&name.directory));
        let Some(place) = patterns.places.get_mut(name) else { return };
        let (evidence, demands) = name.of.evidence();
        let shown = place.wanted.len() >= evidence && place.demands >= demands
            || (habit || listed) && place.demands > 0;
        let may = self.enters_siblings || name.of != GuessKind::Siblings;
        if !may || !shown || patterns.credit < name.of.unit() {
            return;
        }
        place.begin(name.of.allowance());
        place.ahead += 1;
        let path = name.directory.clone();
        self.put(client, name, Rank::guess(LOOKS), GuessTask::List { path }, queue);
    }

    /// Looks up what the directory holds, as far as the allowance goes.
    fn guess_more(&mut self, client: ClientId, name: &PlaceName, queue: &mut impl TaskQueue) {
        let Some(patterns) = self.clients.get_mut(&client) else { return };
        let Some(place) = patterns.places.get_mut(name) else { return };
        let (mut errands, mut siblings, unit) = (Vec::new(), Vec::new(), name.of.unit());
        while place.ahead < AHEAD_MAX
            && place.allowance > place.short_at
            && let Some(file) = place.candidates.pop_front()
        {
            let hash = hash(&file);
            if place.wanted.contains(&hash) {
                continue;
            }
            if !place.spend(unit, &mut patterns.credit) {
                place.candidates.push_front(file);
                break;
            }
            if name.of == GuessKind::Siblings {
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
            errands.push(GuessTask::Look { path });
        }
        for errand in errands {
            self.put(client, name, Rank::guess(LOOKS), errand, queue);
        }
        self.look_around_ahead(client, name, &siblings, queue);
    }
}
