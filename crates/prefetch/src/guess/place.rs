//! What is known of a directory and a suffix, and of a client's directories.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use runahead_abi::Identity;

use super::{COST_MIN, Habit, PLACES_MAX, PlaceName, WANTED_MAX};

pub(super) fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// What follows the last dot; nothing if that is the first character.
pub(super) fn suffix(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|&b| b == b'.') {
        Some(dot) if dot > 0 => &name[dot..],
        _ => b"",
    }
}

pub(super) fn cost(size: u64) -> u64 {
    size.max(COST_MIN)
}

/// Something that was brought in unasked.
pub(super) struct Guess {
    pub cost: u64,
    /// What the client's log calls its use.
    pub key: Identity,
}

/// What is known of it.
#[derive(Default)]
pub(super) struct Place {
    /// What one costs at least.
    unit: u64,
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
    /// Never more than that.
    pub spent: u64,
    /// A file was too large for what was left of an allowance of so much: wait until there is more.
    pub short_at: u64,
}

pub(super) struct Watch {
    pub places: HashMap<PlaceName, Place>,
    /// The oldest first.
    pub order: VecDeque<PlaceName>,
    pub credit: u64,
    /// Guesses that were used, by what their places have in common. As many as there were places.
    pub habits: HashMap<Habit, u64>,
    /// Hashes of directories that it has listed.
    pub listed: HashSet<u64>,
}

impl Watch {
    pub(super) fn remember(&mut self, name: PlaceName) {
        if self.order.len() >= PLACES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.places.remove(&oldest);
        }
        let place = Place { unit: name.of.unit(), ..Place::default() };
        self.order.push_back(name.clone());
        self.places.insert(name, place);
    }
}

impl Place {
    /// `file` is too large now.
    pub(super) fn put_off(&mut self, file: Box<[u8]>) {
        self.spent -= self.unit;
        self.short_at = self.allowance;
        self.guessed.remove(&hash(&file));
        self.candidates.push_front(file);
    }

    /// `name` is wanted: what that adds to the client's credit, and whether it had been guessed.
    pub(super) fn saw(&mut self, name: &[u8], counts: bool, demand: bool) -> (u64, bool) {
        let hash = hash(name);
        let guessed = self.guessed.remove(&hash);
        if let Some(guess) = &guessed {
            self.allowance += 2 * guess.cost;
        }
        if !counts || self.wanted.len() >= WANTED_MAX || !self.wanted.insert(hash) {
            return (0, guessed.is_some());
        }
        self.demands += u32::from(demand);
        if self.listed && guessed.is_none() {
            self.allowance += self.unit;
        }
        (self.unit, guessed.is_some())
    }

    /// Takes account of guesses that were used, as the log says: what that adds to the client's
    /// credit, and how many they are.
    pub(super) fn settle(&mut self, was_used: impl Fn(Identity) -> bool) -> (u64, u64) {
        let (mut cost, mut used) = (0, 0);
        self.guessed.retain(|_, guess| {
            let is = was_used(guess.key);
            cost += if is { guess.cost } else { 0 };
            used += u64::from(is);
            !is
        });
        self.allowance += 2 * cost;
        (cost, used)
    }
}
