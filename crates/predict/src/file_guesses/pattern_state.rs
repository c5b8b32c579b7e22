//! State of a directory and suffix, and of a client's directories.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use runahead_estimators::Identity;

use super::guess_kind::{Habit, PlaceName};
use super::lookup_pattern::LookupPatterns;
use super::name_references::NameReferences;
use super::path_keys::hash;

/// Guesses that were used, from where on one file is enough.
const HABIT: u64 = 8;
/// Entries of a directory that is guessed from.
pub const ENTRIES_MAX: usize = 2048;
/// Directories of one client that are remembered.
pub(super) const PLACES_MAX: usize = 256;
/// Files of one directory that are remembered to have been wanted.
const WANTED_MAX: usize = 2 * ENTRIES_MAX;
/// Factor by which the cost of a used guess raises its place's allowance. So guesses go on while
/// one in this many is right.
pub(super) const RETURN: u64 = 4;
/// Factor where the storage serves few requests side by side, so that guesses delay others.
pub(super) const RETURN_OF_NARROW: u64 = 2;
/// After so many guesses, a file that was missed says that there should be more of them only if
/// one of [`DOUBT`] was right.
const TRIED: u64 = 64;
/// Fraction of right guesses that [`TRIED`] refers to: one in this many.
const DOUBT: u64 = 16;
/// Fraction of right guesses that is enough to build on, as most cannot have been used yet: one in
/// this many.
const RIGHT: u64 = 8;

fn multiple(narrow: bool) -> u64 {
    if narrow { RETURN_OF_NARROW } else { RETURN }
}

/// Something that was brought in unasked.
pub(super) struct Guess {
    pub cost: u64,
    /// Log key of the use.
    pub key: Identity,
    /// The directory, if it is one.
    pub sibling: Option<Arc<[u8]>>,
    /// True if its contents have been guessed, too.
    pub opened: bool,
}

/// State of one place.
#[derive(Default)]
pub(super) struct Place {
    /// Smallest cost of a guess.
    unit: u64,
    /// Something was wanted of it since that was last looked at.
    seen: bool,
    /// Hashes of names that were wanted.
    pub wanted: HashSet<u64>,
    pub demands: u32,
    pub listed: bool,
    /// Names that could be guessed, the next first.
    pub candidates: VecDeque<Box<[u8]>>,
    /// Hashes of names that were guessed and are not known to have been used.
    pub guessed: HashMap<u64, Guess>,
    /// Errands that wait or are under way.
    pub ahead: usize,
    pub allowance: u64,
    /// Part of the allowance that is not earned.
    first: u64,
    /// Bytes spent, never more than the allowance.
    pub spent: u64,
    /// Bytes spent on guesses that were used.
    used: u64,
    /// Allowance that was too small for the next file: the file is not looked at again until there
    /// is more.
    pub short_at: u64,
}

pub(super) struct ClientPatterns {
    pub places: HashMap<PlaceName, Place>,
    /// The oldest first.
    pub order: VecDeque<PlaceName>,
    pub credit: u64,
    /// Guesses that were used, by what their places have in common. As many as there were places.
    pub habits: HashMap<Habit, u64>,
    /// Hashes of directories that the program has listed.
    pub listed: HashSet<u64>,
    pub routines: LookupPatterns,
    pub mentions: NameReferences,
}

impl ClientPatterns {
    /// Guesses have been right in places like `name` often enough that one file is evidence.
    pub(super) fn has_habit(&self, name: &PlaceName) -> bool {
        self.habits.get(&name.habit()).is_some_and(|used| *used >= HABIT)
    }

    pub(super) fn remember(&mut self, name: PlaceName) -> &mut Place {
        while self.order.len() >= PLACES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            match self.places.get_mut(&oldest) {
                // Another chance for one that something was wanted of.
                Some(place) if place.seen => {
                    place.seen = false;
                    self.order.push_back(oldest);
                }
                _ => drop(self.places.remove(&oldest)),
            }
        }
        let place = Place { unit: name.of.unit(), ..Place::default() };
        self.order.push_back(name.clone());
        self.places.entry(name).insert(place).into_mut()
    }
}

impl Place {
    /// Spends `cost`, if that is allowed. What is spent first is paid from the client's `credit`.
    pub(super) fn spend(&mut self, cost: u64, credit: &mut u64) -> bool {
        let of_credit = cost.min(self.first.saturating_sub(self.spent));
        let may = self.spent + cost <= self.allowance && of_credit <= *credit;
        if may {
            self.spent += cost;
            *credit -= of_credit;
        }
        may
    }

    /// Guessing begins, with its first allowance.
    pub(super) fn begin(&mut self, first: u64) {
        self.first = first;
        self.allowance += first;
        self.listed = true;
    }

    /// `file` costs so much `more`, which is too much now.
    pub(super) fn put_off(&mut self, file: Box<[u8]>, more: u64) {
        self.short_at = self.allowance.max((self.spent + more).saturating_sub(1));
        self.spent -= self.unit;
        self.guessed.remove(&hash(&file));
        self.candidates.push_front(file);
    }

    /// `name` was guessed, and is not known to have been used.
    pub(super) fn guessed(&self, name: &[u8]) -> bool {
        self.guessed.contains_key(&hash(name))
    }

    /// `name` was wanted, or guessed.
    pub(super) fn knows(&self, name: &[u8]) -> bool {
        self.wanted.contains(&hash(name)) || self.guessed(name)
    }

    /// `name` is wanted: what that adds to the client's credit, and whether it had been guessed.
    pub(super) fn saw(
        &mut self,
        name: &[u8],
        counts: bool,
        demand: bool,
        narrow: bool,
    ) -> (u64, bool) {
        self.seen |= counts;
        let hash = hash(name);
        let guessed = self.guessed.remove(&hash);
        if let Some(guess) = &guessed {
            self.used += guess.cost;
            self.allowance += multiple(narrow) * guess.cost;
        }
        if !counts || self.wanted.len() >= WANTED_MAX || !self.wanted.insert(hash) {
            return (0, guessed.is_some());
        }
        self.demands += u32::from(demand);
        if self.listed && guessed.is_none() {
            let hopeful = self.spent < TRIED * self.unit || self.used * DOUBT >= self.spent;
            self.allowance += self.unit * if hopeful && !narrow { RETURN } else { 1 };
        }
        (self.unit, guessed.is_some())
    }

    /// True if enough guesses were right to make those that build on the others.
    pub(super) fn is_right(&self) -> bool {
        self.used > 0 && RIGHT * self.used >= self.spent
    }

    /// Siblings to open up, now that guesses have been right.
    pub(super) fn open_more(&mut self) -> Vec<Arc<[u8]>> {
        if !self.is_right() {
            return Vec::new();
        }
        let unopened = self.guessed.values_mut().filter(|guess| !guess.opened);
        unopened
            .filter_map(|guess| {
                guess.opened = true;
                guess.sibling.clone()
            })
            .collect()
    }

    /// Adds `more` to the cost of the guess of `name`.
    pub(super) fn add_cost(&mut self, name: &[u8], more: u64) {
        if let Some(guess) = self.guessed.get_mut(&hash(name)) {
            guess.cost += more;
        }
    }

    /// Takes account of guesses that were used, as the log says: what that adds to the client's
    /// credit, and which they are.
    pub(super) fn settle(
        &mut self,
        narrow: bool,
        was_used: impl Fn(Identity) -> bool,
    ) -> (u64, Vec<Guess>) {
        let used: Vec<_> = self.guessed.extract_if(|_, guess| was_used(guess.key)).collect();
        let used: Vec<_> = used.into_iter().map(|(_, guess)| guess).collect();
        let cost = used.iter().map(|guess| guess.cost).sum();
        self.used += cost;
        self.allowance += multiple(narrow) * cost;
        (cost, used)
    }
}
