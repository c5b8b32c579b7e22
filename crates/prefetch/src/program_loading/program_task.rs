//! What there is to do for a program.

use std::ops::Range;
use std::sync::Arc;

use super::file_inspection::Dynamic;
use super::library_search::Origin;

/// When a task is due, compared with the others of its expansion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Turn {
    /// Which files there are.
    Find,
    /// What has to be there before the first instruction.
    Relocate,
    /// What is executed first.
    Enter,
    /// All else.
    Rest,
}

/// What a file is to the program.
#[derive(Clone)]
pub(crate) enum Role {
    /// The program, or what executes it, so many scripts away.
    Program { scripts: u32 },
    /// The program's dynamic linker, which has no libraries.
    Linker,
    /// A library, with what it inherits.
    Library(Origin),
}

/// A file to be found.
#[derive(Clone)]
pub(crate) struct Lead {
    /// Each name is followed once.
    pub name: Vec<u8>,
    /// Where the file may be; the first that is a file of the right kind counts.
    pub places: Arc<[Vec<u8>]>,
    pub role: Role,
}

/// One thing to do for a program, without the lock.
pub(crate) enum Task<F> {
    /// Find a file, and look at its head.
    Find { lead: Lead },
    /// Find out what else it needs.
    Needs { found: Arc<Dynamic<F>> },
    /// Bring a part of it into memory.
    Load { file: Arc<F>, path: Arc<[u8]>, range: Range<u64> },
}

impl<F> Task<F> {
    /// Bytes that it brings into memory, as far as that is known.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Task::Load { range, .. } => range.end - range.start,
            Task::Find { .. } | Task::Needs { .. } => 0,
        }
    }
}

/// A file that was found.
pub(crate) struct Located<F> {
    pub path: Arc<[u8]>,
    pub file: Arc<F>,
    /// Bytes of the file that were read on the way.
    pub bytes: u64,
    /// What is still to be loaded of the file.
    pub parts: Vec<(Turn, Range<u64>)>,
    /// Files that the file names in its head.
    pub leads: Vec<Lead>,
    /// The file, if it may name libraries.
    pub needs: Option<Dynamic<F>>,
}

/// What a task brought.
pub(crate) enum Report<F> {
    /// A file; `None` if none of the places has one.
    Found(Option<Box<Located<F>>>),
    /// Libraries.
    Leads(Vec<Lead>),
    /// Bytes that were loaded.
    Loaded(u64),
}
