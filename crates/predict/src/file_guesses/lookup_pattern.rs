//! Names that a program looks for in one directory after another.
//!
//! An interpreter that enters a package looks for the same few names in each, most of which are not
//! there (`__init__.abi3.so`, `__init__.so`, `__init__.py`); so does git for `.gitignore`, and a
//! build for `Makefile`. No shadow can run ahead where each answer decides what is looked for next,
//! and no listing helps where the answer is that there is nothing.

use hashbrown::{HashMap, HashSet};

use super::path_keys::hash;

/// Directories in which a name was looked for, that make it a routine.
const DIRECTORIES: usize = 3;
/// Directories of one name that are counted.
const COUNTED_MAX: usize = 64;
/// A routine is found in at least one of so many directories in which the commonest is.
const RARITY: usize = 4;
/// Names that are remembered.
const NAMES_MAX: usize = 1024;
/// Remembered names that are guessed in one directory, at most.
const IN_ONE_MAX: usize = 16;
/// Name that stands for the entries of the directory itself.
pub(super) const ENTRIES: &[u8] = b".";

#[derive(Default)]
struct Use {
    /// Hashes of the directories in which the name was wanted.
    directories: HashSet<u64>,
    /// Number of times that the contents were wanted, too.
    read: u32,
    /// The name's place in the order in which names came.
    order: u64,
}

/// Names that one client looks for.
#[derive(Default)]
pub(super) struct LookupPatterns {
    names: HashMap<Box<[u8]>, Use>,
    seen: u64,
    /// Directories of the commonest name.
    commonest: usize,
}

impl LookupPatterns {
    /// `name` is wanted in `directory`; true if that is a routine.
    pub(super) fn saw(&mut self, directory: &[u8], name: &[u8], read: bool) -> bool {
        if !self.names.contains_key(name) {
            if self.names.len() >= NAMES_MAX {
                self.names.retain(|_, was| was.directories.len() >= DIRECTORIES);
            }
            if self.names.len() >= NAMES_MAX {
                return false;
            }
            self.seen += 1;
            let new = Use { order: self.seen, ..Use::default() };
            self.names.insert(name.into(), new);
        }
        let Some(was) = self.names.get_mut(name) else { return false };
        if was.directories.len() < COUNTED_MAX {
            was.directories.insert(hash(directory));
        }
        was.read += u32::from(read);
        self.commonest = self.commonest.max(was.directories.len());
        was.directories.len() >= DIRECTORIES
    }

    /// Counts the names of `directory`, which were looked up ahead and used: they do not show in
    /// what is wanted now.
    pub(super) fn used(&mut self, directory: &[u8]) {
        for name in self.all() {
            self.saw(directory, &name, false);
        }
    }

    /// True if the file at `path`, which is routinely looked for, is also read.
    pub(super) fn reads(&self, path: &[u8]) -> bool {
        let mut names = (0..path.len()).rev().filter(|&at| path[at] == b'/').take(2);
        names.any(|slash| {
            self.names.get(&path[slash + 1..]).is_some_and(|was| was.read as usize >= DIRECTORIES)
        })
    }

    /// Names of directories that hold some of what is looked for, and are no siblings themselves.
    pub(super) fn leads(&self) -> HashSet<Box<[u8]>> {
        let lead = |name: Box<[u8]>| {
            let slash = name.iter().position(|&b| b == b'/')?;
            Some(name[..slash].into())
        };
        self.all().into_iter().filter_map(lead).collect()
    }

    /// Returns the names that are looked for in a directory, in the order of the program.
    pub(super) fn all(&self) -> Vec<Box<[u8]>> {
        let least = DIRECTORIES.max(self.commonest / RARITY);
        let is_one = |was: &Use| was.directories.len() >= least;
        let mut all: Vec<_> = self.names.iter().filter(|(_, was)| is_one(was)).collect();
        all.sort_unstable_by_key(|(_, was)| std::cmp::Reverse(was.directories.len()));
        all.truncate(IN_ONE_MAX);
        all.sort_unstable_by_key(|(_, was)| was.order);
        all.into_iter().map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(routines: &LookupPatterns) -> Vec<String> {
        let text = |name: Box<[u8]>| String::from_utf8(name.into()).expect("text");
        routines.all().into_iter().map(text).collect()
    }

    #[test]
    fn a_name_that_is_looked_for_in_three_directories_is_a_routine() {
        let mut routines = LookupPatterns::default();
        assert!(!routines.saw(b"/a", b"x.so", false));
        assert!(!routines.saw(b"/a", b"x.so", false));
        assert!(!routines.saw(b"/b", b"x.so", false));
        assert!(names(&routines).is_empty());
        assert!(routines.saw(b"/c", b"x.so", false));
        assert!(!routines.saw(b"/c", b"other", false));
        assert_eq!(names(&routines), ["x.so"]);
    }

    #[test]
    fn they_come_in_the_order_of_the_program_and_the_rare_do_not() {
        let mut routines = LookupPatterns::default();
        for n in 0..40 {
            let directory = format!("/{n}");
            routines.saw(directory.as_bytes(), b"second", false);
            routines.saw(directory.as_bytes(), b"c/first", true);
            if n % 8 == 0 {
                routines.saw(directory.as_bytes(), b"rare", false);
            }
        }
        assert_eq!(names(&routines), ["second", "c/first"]);
        assert!(routines.reads(b"/new/c/first") && !routines.reads(b"/new/second"));
    }

    #[test]
    fn names_of_one_directory_only_do_not_fill_the_memory() {
        let mut routines = LookupPatterns::default();
        for n in 0..3 * NAMES_MAX {
            routines.saw(b"/d", format!("{n}").as_bytes(), false);
            routines.saw(format!("/d{n}").as_bytes(), b"common", false);
        }
        assert!(routines.names.len() <= NAMES_MAX);
        assert_eq!(names(&routines), ["common"]);
    }
}
