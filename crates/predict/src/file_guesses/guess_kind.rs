//! What is guessed, where, and what one costs.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashSet;
use runahead_abi::{ChunkIndex, Identity};

use super::lookup_pattern::Routines;
use super::path_keys::suffix;
use crate::directory_expansion::Name;

/// The first allowance of a directory.
pub(super) const ALLOWANCE: u64 = 256 << 10;
/// The first allowance of a directory for names.
const ALLOWANCE_OF_NAMES: u64 = 64 << 10;
/// What a directory costs in which a few names are looked for.
pub(super) const SIBLING_COST: u64 = 4 << 10;
/// What a name costs.
const NAME_COST: u64 = 512;
/// What a file is taken to cost at least: a request costs something whatever it brings.
pub(super) const COST_MIN: u64 = 16 << 10;

/// What a file of so many bytes costs.
pub(super) fn cost(size: u64) -> u64 {
    size.max(COST_MIN)
}

/// How many there are of [`Of`].
pub const KINDS: usize = 4;

/// What the kinds of guesses are called in statistics, in the order of `Of`.
pub const KIND_NAMES: [&str; KINDS] = ["files", "names", "directories", "mentioned"];

/// What is guessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Of {
    /// Files' contents.
    Data,
    /// That files are there, and their attributes.
    Names,
    /// What a program looks for in each of several directories, here and that they lie in.
    Siblings,
    /// Files that are named in others.
    Mentions,
}

impl Of {
    /// What one costs at least.
    pub(super) fn unit(self) -> u64 {
        match self {
            Of::Data | Of::Mentions => COST_MIN,
            Of::Siblings => SIBLING_COST,
            Of::Names => NAME_COST,
        }
    }

    /// The first allowance of a place.
    pub(super) fn allowance(self) -> u64 {
        match self {
            Of::Data | Of::Siblings | Of::Mentions => ALLOWANCE,
            Of::Names => ALLOWANCE_OF_NAMES,
        }
    }

    /// Different ones of a place that were wanted before there is a guess, and so many of those by
    /// the target itself: otherwise a shadow is ahead, which knows better.
    pub(super) fn evidence(self) -> (usize, u32) {
        match self {
            Of::Data | Of::Names | Of::Mentions => (3, 2),
            // That a routine is one was seen in several directories.
            Of::Siblings => (2, 1),
        }
    }

    /// What the log calls the use of one.
    pub(super) fn key(self, path: &[u8]) -> Identity {
        let name = Identity::ROOT.join(path);
        match self {
            Of::Data | Of::Mentions => name.chunk(ChunkIndex::of(0)),
            Of::Names | Of::Siblings => name,
        }
    }
}

/// A directory and a suffix.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PlaceName {
    pub(super) directory: Arc<[u8]>,
    pub(super) suffix: Box<[u8]>,
    pub(super) of: Of,
}

/// See [`PlaceName::habit`].
pub(super) type Habit = (Of, Box<[u8]>, Box<[u8]>);

impl PlaceName {
    /// What it has in common with other places: the directory's own name, for contents, and the
    /// suffix.
    pub(super) fn habit(&self) -> Habit {
        let own = match self.of {
            Of::Data => self.directory.rsplit(|&b| b == b'/').next().unwrap_or_default(),
            Of::Names | Of::Siblings | Of::Mentions => b"",
        };
        (self.of, own.into(), self.suffix.clone())
    }

    /// Those of the directory's entries that belong to this place, in the order in which they probably lie
    /// on the storage.
    pub(super) fn choose(
        &self,
        mut entries: Vec<Name>,
        routines: &Routines,
    ) -> VecDeque<Box<[u8]>> {
        let leads = if self.of == Of::Siblings { routines.leads() } else { HashSet::new() };
        entries.retain(|entry| match self.of {
            Of::Data => !entry.directory && suffix(&entry.name) == &*self.suffix,
            Of::Names => suffix(&entry.name) == &*self.suffix,
            Of::Siblings => entry.directory && !leads.contains(&entry.name),
            Of::Mentions => false,
        });
        entries.sort_unstable_by_key(|entry| entry.inode);
        entries.into_iter().map(|entry| entry.name).collect()
    }
}
