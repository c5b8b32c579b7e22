//! Lookups of names in one directory take turns, until the first have shown the way.
//!
//! Names of one directory need the same blocks: those of the directory, and of neighbouring
//! inodes. Looked up all at once, they occupy as many workers to wait for one read, while other
//! directories are not even started on. So at first only a few lookups of a directory are under
//! way; each that comes back lets more go, as their number would double and double again.
//!
//! On a remote file system every lookup is a request of its own, and nothing is held back.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use hashbrown::HashMap;
use runahead_predict::EntryId;

/// Lookups of a directory that are under way at first.
const FIRST: u32 = 2;
/// Factor by which each lookup that comes back raises the number allowed.
const GROWTH: u32 = 4;
/// More than workers there are.
const MOST: u32 = 1024;

struct Directory {
    looking: u32,
    allowed: u32,
    held: VecDeque<EntryId>,
}

/// Turns of lookups in all directories.
pub(crate) struct LookupTurns {
    directories: HashMap<u64, Directory>,
    /// Off where lookups do not share reads.
    pub take_turns: bool,
}

impl Default for LookupTurns {
    fn default() -> Self {
        LookupTurns { directories: HashMap::new(), take_turns: true }
    }
}

/// The directory that `path` lies in.
fn parent(path: &[u8]) -> u64 {
    let end = path.iter().rposition(|&b| b == b'/').unwrap_or(0);
    let mut hasher = DefaultHasher::new();
    path[..end].hash(&mut hasher);
    hasher.finish()
}

impl LookupTurns {
    /// `id`, which is `path`, is about to be looked up. False: it is held back, and given out by
    /// [`Siblings::ended`] later.
    pub(crate) fn begin(&mut self, id: EntryId, path: &[u8]) -> bool {
        let directory = self.directories.entry(parent(path)).or_insert_with(|| Directory {
            looking: 0,
            allowed: FIRST,
            held: VecDeque::new(),
        });
        if self.take_turns && directory.looking >= directory.allowed {
            directory.held.push_back(id);
            return false;
        }
        directory.looking += 1;
        true
    }

    /// The lookup of `path` is over: what may be looked up now, of those that are still `held`.
    pub(crate) fn ended(&mut self, path: &[u8], held: impl Fn(EntryId) -> bool) -> Vec<EntryId> {
        let key = parent(path);
        let Some(directory) = self.directories.get_mut(&key) else { return Vec::new() };
        directory.looking = directory.looking.saturating_sub(1);
        directory.allowed = (directory.allowed * GROWTH).min(MOST);
        let room = directory.allowed.saturating_sub(directory.looking) as usize;
        let mut free = Vec::new();
        while free.len() < room
            && let Some(id) = directory.held.pop_front()
        {
            // An entry that was dropped, or went ahead on demand, must not take the place of
            // another: no later lookup might let that go.
            if held(id) {
                free.push(id);
            }
        }
        if directory.looking == 0 && directory.held.is_empty() && free.is_empty() {
            self.directories.remove(&key);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_starts_with_a_few_and_then_lets_all_go() {
        let mut s = LookupTurns::default();
        let paths: Vec<Vec<u8>> = (0..40).map(|i| format!("/d/{i}").into_bytes()).collect();
        let begun: Vec<bool> = (0..40).map(|i| s.begin(i, &paths[i as usize])).collect();
        assert_eq!(begun.iter().filter(|b| **b).count(), FIRST as usize);
        assert!(s.begin(99, b"/other/x"), "another directory is not held back");
        let mut free = s.ended(&paths[0], |_| true);
        assert_eq!(free, (2..9).collect::<Vec<_>>());
        while let Some(id) = free.pop() {
            assert!(s.begin(id, &paths[id as usize]));
            free.extend(s.ended(&paths[id as usize], |_| true));
        }
        assert_eq!(s.ended(b"/other/x", |_| true), Vec::<EntryId>::new());
        assert_eq!(s.ended(&paths[1], |_| true), Vec::<EntryId>::new());
        assert!(s.directories.is_empty(), "nothing is kept of what is over");
    }

    #[test]
    fn those_that_were_given_up_do_not_take_the_place_of_others() {
        let mut s = LookupTurns::default();
        (0..40).for_each(|id| _ = s.begin(id, b"/d/x"));
        // Only the last two are still held.
        assert_eq!(s.ended(b"/d/x", |id| id >= 38), [38, 39]);
    }

    #[test]
    fn nothing_is_held_back_where_lookups_share_nothing() {
        let mut s = LookupTurns { take_turns: false, ..LookupTurns::default() };
        assert!((0..100).all(|i| s.begin(i, b"/d/x")));
    }
}
