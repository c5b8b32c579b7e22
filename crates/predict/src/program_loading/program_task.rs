//! Tasks that workers do to load a program.

use std::ops::Range;
use std::sync::Arc;

use super::elf::Head;
use super::library_search::Origin;

/// Urgency of a task, compared with the others of its expansion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Urgency {
    /// Finding the files of the program.
    Find,
    /// Data that must be in memory before the first instruction.
    Relocate,
    /// Code at the entry point.
    Enter,
    /// Everything else.
    Rest,
}

/// Role of a file in a program.
#[derive(Clone)]
pub enum Role {
    /// The program itself, or the interpreter of a script.
    Program {
        /// Scripts between the file that is executed and this one.
        scripts: u32,
    },
    /// The program's dynamic linker, which has no libraries.
    Linker,
    /// A library, with what it inherits.
    Library(Origin),
}

/// A file to be found.
#[derive(Clone)]
pub struct FileLead {
    /// Each name is followed once.
    pub name: Vec<u8>,
    /// Paths to try; the first that is a file of the right kind counts.
    pub places: Arc<[Vec<u8>]>,
    /// Role that the file will have.
    pub role: Role,
}

/// A file that may name libraries.
pub struct Dynamic<F> {
    /// The opened file.
    pub file: Arc<F>,
    /// The file's first bytes.
    pub(super) start: Vec<u8>,
    pub(super) head: Head,
    pub(super) origin: Origin,
}

/// Task for a worker, done without the lock.
pub enum Task<F> {
    /// Find a file, and look at its head.
    Find {
        /// The file.
        lead: FileLead,
    },
    /// Find the libraries that a file needs.
    Needs {
        /// The file.
        found: Arc<Dynamic<F>>,
    },
    /// Read a part of a file into memory.
    Load {
        /// The opened file.
        file: Arc<F>,
        /// Path of the file.
        path: Arc<[u8]>,
        /// Bytes to read.
        range: Range<u64>,
    },
}

impl<F> Task<F> {
    /// Bytes that the task brings into memory, as far as that is known.
    pub fn bytes(&self) -> u64 {
        match self {
            Task::Load { range, .. } => range.end - range.start,
            Task::Find { .. } | Task::Needs { .. } => 0,
        }
    }
}

/// A file that was found.
pub struct Located<F> {
    /// Path of the file.
    pub path: Arc<[u8]>,
    /// The opened file.
    pub file: Arc<F>,
    /// Bytes of the file that were read to find out about it.
    pub bytes: u64,
    /// Ranges that are still to be loaded.
    pub parts: Vec<(Urgency, Range<u64>)>,
    /// Files that the file names in its head.
    pub leads: Vec<FileLead>,
    /// The file, if it may name libraries.
    pub needs: Option<Dynamic<F>>,
}

/// Result of a task.
pub enum Report<F> {
    /// A file; `None` if none of the paths leads to one.
    Found(Option<Box<Located<F>>>),
    /// Libraries.
    Leads(Vec<FileLead>),
    /// Bytes that were loaded.
    Loaded(u64),
}
