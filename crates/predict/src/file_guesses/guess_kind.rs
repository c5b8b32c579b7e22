//! Kinds of guesses, their places and costs.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashSet;
use runahead_estimators::{ChunkIndex, Identity};

use super::lookup_pattern::LookupPatterns;
use super::path_keys::suffix;
use crate::directory_expansion::Name;

/// The first allowance of a directory.
pub(super) const ALLOWANCE: u64 = 256 << 10;
/// The first allowance of a directory for names.
const ALLOWANCE_OF_NAMES: u64 = 64 << 10;
/// Cost of a directory in which a few names are looked for.
pub(super) const SIBLING_COST: u64 = 4 << 10;
/// Cost of a name.
const NAME_COST: u64 = 512;
/// Smallest cost of a file: a request costs something however little it brings.
pub(super) const COST_MIN: u64 = 16 << 10;

/// Cost of a file of `size` bytes.
pub(super) fn cost(size: u64) -> u64 {
    size.max(COST_MIN)
}

/// Number of kinds.
pub const KINDS: usize = 4;

/// Names of the kinds in statistics, in the order of `Of`.
pub const KIND_NAMES: [&str; KINDS] = ["files", "names", "directories", "mentioned"];

/// Kind of a guess.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GuessKind {
    /// Files' contents.
    Data,
    /// Existence of files, and their attributes.
    Names,
    /// Names that a program looks for in each of several directories. The place is the parent of
    /// these.
    Siblings,
    /// Files that are named in others.
    Mentions,
}

impl GuessKind {
    /// Smallest cost of one guess.
    pub(super) fn unit(self) -> u64 {
        match self {
            GuessKind::Data | GuessKind::Mentions => COST_MIN,
            GuessKind::Siblings => SIBLING_COST,
            GuessKind::Names => NAME_COST,
        }
    }

    /// The first allowance of a place.
    pub(super) fn allowance(self) -> u64 {
        match self {
            GuessKind::Data | GuessKind::Siblings | GuessKind::Mentions => ALLOWANCE,
            GuessKind::Names => ALLOWANCE_OF_NAMES,
        }
    }

    /// Evidence for a guess, as (different wanted ones of a place, those among them that the target
    /// itself waited for). Without the second a shadow is ahead, which knows better.
    pub(super) fn evidence(self) -> (usize, u32) {
        match self {
            GuessKind::Data | GuessKind::Names | GuessKind::Mentions => (3, 2),
            // A routine was seen in several directories already.
            GuessKind::Siblings => (2, 1),
        }
    }

    /// Log key of the use of one.
    pub(super) fn key(self, path: &[u8]) -> Identity {
        let name = Identity::ROOT.join(path);
        match self {
            GuessKind::Data | GuessKind::Mentions => name.chunk(ChunkIndex::of(0)),
            GuessKind::Names | GuessKind::Siblings => name,
        }
    }
}

/// A directory and a suffix.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PlaceName {
    pub(super) directory: Arc<[u8]>,
    pub(super) suffix: Box<[u8]>,
    pub(super) of: GuessKind,
}

/// Part of a place that it shares with other places.
pub(super) type Habit = (GuessKind, Box<[u8]>, Box<[u8]>);

impl PlaceName {
    /// Returns what the place shares with others: the directory's own name, for contents, and the
    /// suffix.
    pub(super) fn habit(&self) -> Habit {
        let own = match self.of {
            GuessKind::Data => self.directory.rsplit(|&b| b == b'/').next().unwrap_or_default(),
            GuessKind::Names | GuessKind::Siblings | GuessKind::Mentions => b"",
        };
        (self.of, own.into(), self.suffix.clone())
    }

    /// Returns the entries that belong to this place, in the order in which they probably lie on
    /// the storage.
    pub(super) fn choose(
        &self,
        mut entries: Vec<Name>,
        routines: &LookupPatterns,
    ) -> VecDeque<Box<[u8]>> {
        let leads = if self.of == GuessKind::Siblings { routines.leads() } else { HashSet::new() };
        entries.retain(|entry| match self.of {
            GuessKind::Data => !entry.directory && suffix(&entry.name) == &*self.suffix,
            GuessKind::Names => suffix(&entry.name) == &*self.suffix,
            GuessKind::Siblings => entry.directory && !leads.contains(&entry.name),
            GuessKind::Mentions => false,
        });
        entries.sort_unstable_by_key(|entry| entry.inode);
        entries.into_iter().map(|entry| entry.name).collect()
    }
}
