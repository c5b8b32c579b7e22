//! Whole files that were read: what a shadow takes for files of the same kind that are not there.
//!
//! A loop over files that parses each ends with the first one whose contents are not there: what
//! was in the buffer, or a piece of something else, is no JSON, no table, no module. A file of the
//! same kind that the program has just read as a whole is one, and the loop goes on to the next.
//! *Kind* is the suffix of the name.
//!
//! Shared by runs that follow each other, and sometimes for a moment by two. All of it is atomics:
//! what is torn misleads a shadow, which ends. No loop depends on what is read here.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::atomic_words;

/// Bytes of the largest file that is kept.
pub const FILE_BYTES: usize = 128 << 10;
/// Kinds that are kept.
pub const KINDS: usize = 4;

/// Common part of names of one kind, as a hash; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind(u64);

impl Kind {
    /// The kind of the file at `path`: what follows the last dot of its name, or all of a name
    /// without one.
    pub fn of(path: &[u8]) -> Self {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let dot = name.iter().rposition(|&byte| byte == b'.').filter(|&at| at > 0);
        let (suffix, seed) = dot.map_or((name, 2), |at| (&name[at..], 1));
        let hash = suffix
            .iter()
            .fold(seed, |hash, &byte| crate::access_identity::mixed(hash, byte.into()));
        Kind(hash.max(1))
    }
}

#[repr(C)]
struct Exemplar {
    /// A [`Kind`]; 0: none.
    kind: AtomicU64,
    len: AtomicU32,
    /// When the file was kept, as a number that grows.
    used: AtomicU32,
    words: [AtomicU64; FILE_BYTES / 8],
}

/// Whole files that stand in for others of their kind.
#[repr(C)]
pub struct Exemplars {
    clock: AtomicU32,
    /// Exemplar that is being read.
    coming: Exemplar,
    kept: [Exemplar; KINDS],
}

impl Exemplars {
    fn find(&self, kind: Kind) -> Option<&Exemplar> {
        self.kept.iter().find(|one| one.kind.load(Relaxed) == kind.0)
    }

    /// Notes that `piece` was read from `offset` of a file of this kind; the piece before it, if
    /// any, was the newest one. With `ends` it was the last: the file replaces the one of its kind,
    /// or of the kind that was stored longest ago. Pieces begin at whole words.
    pub fn read(&self, kind: Kind, offset: u64, piece: &[u8], ends: bool) {
        let new = &self.coming;
        if offset == 0 {
            new.kind.store(kind.0, Relaxed);
            new.len.store(0, Relaxed);
        }
        let end = offset.saturating_add(piece.len() as u64);
        let follows = new.kind.load(Relaxed) == kind.0
            && u64::from(new.len.load(Relaxed)) == offset
            && offset.is_multiple_of(8);
        if !follows || end > FILE_BYTES as u64 {
            new.kind.store(0, Relaxed);
            return;
        }
        atomic_words::store(&new.words[offset as usize / 8..], piece);
        new.len.store(end as u32, Relaxed);
        if ends && end > 0 {
            self.keep(kind, end as usize);
            new.kind.store(0, Relaxed);
        }
    }

    fn keep(&self, kind: Kind, len: usize) {
        let oldest = || self.kept.iter().min_by_key(|one| one.used.load(Relaxed));
        let Some(one) = self.find(kind).or_else(oldest) else { return };
        one.used.store(self.clock.fetch_add(1, Relaxed).wrapping_add(1), Relaxed);
        one.kind.store(kind.0, Relaxed);
        for (to, from) in one.words.iter().zip(&self.coming.words).take(len.div_ceil(8)) {
            to.store(from.load(Relaxed), Relaxed);
        }
        one.len.store(len as u32, Relaxed);
    }

    /// Bytes of the file of that kind, if there is one.
    pub fn len_of(&self, kind: Kind) -> Option<u64> {
        let len = self.find(kind)?.len.load(Relaxed) as usize;
        (len > 0).then_some(len.min(FILE_BYTES) as u64)
    }

    /// Copies from `offset` of the file of that kind; how many bytes.
    pub fn copy(&self, kind: Kind, offset: u64, to: &mut [u8]) -> usize {
        let (Some(one), Some(len)) = (self.find(kind), self.len_of(kind)) else { return 0 };
        atomic_words::copy(&one.words, len as usize, offset.min(len) as usize, to)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::vec;

    fn none() -> Box<Exemplars> {
        // SAFETY: atomics throughout, for which all-zero bytes are a valid value.
        unsafe { Box::new_zeroed().assume_init() }
    }

    #[test]
    fn kinds_are_told_by_suffixes() {
        let json = Kind::of(b"/a/b.c/package.json");
        assert_eq!(json, Kind::of(b"other.json"));
        for other in [&b"/a/x.js"[..], b"/a.json/x", b"/a/.json", b""] {
            assert_ne!(json, Kind::of(other));
        }
        assert_eq!(Kind::of(b"/a/Makefile"), Kind::of(b"/b/Makefile"));
    }

    #[test]
    fn the_newest_of_a_kind_is_given() {
        let exemplars = none();
        let (json, csv) = (Kind::of(b"a.json"), Kind::of(b"a.csv"));
        assert_eq!((exemplars.len_of(json), exemplars.copy(json, 0, &mut [1; 4])), (None, 0));
        exemplars.read(json, 0, b"{\"a\": 1}", true);
        // In pieces; and more than there is room for.
        (0..32).for_each(|n| exemplars.read(csv, n << 12, &[7; 1 << 12], n == 31));
        (0..33).for_each(|n| exemplars.read(csv, n << 12, &[8; 1 << 12], n == 32));
        exemplars.read(json, 0, b"{\"b\": [2, 3]}", true);
        // Parts of two files; one whose beginning was not seen; and one that was not read to its
        // end.
        exemplars.read(json, 0, b"{\"c\": 45", false);
        exemplars.read(json, 16, b"}", true);
        exemplars.read(json, 8, b"}", true);
        exemplars.read(json, 0, b"{\"c\": 45", false);
        let mut room = [0; 20];
        assert_eq!(exemplars.copy(json, 0, &mut room), 13);
        assert_eq!(&room[..13], b"{\"b\": [2, 3]}");
        assert_eq!((exemplars.copy(json, 6, &mut room[..3]), &room[..3]), (3, &b"[2,"[..]));
        assert_eq!(exemplars.copy(json, 1 << 40, &mut room), 0);
        assert_eq!(exemplars.len_of(csv), Some(FILE_BYTES as u64));
        let mut all = vec![0; FILE_BYTES];
        assert_eq!(exemplars.copy(csv, 0, &mut all), FILE_BYTES);
        assert!(all.iter().all(|&byte| byte == 7), "a longer one was not kept");
        let names: [&[u8]; KINDS] = [b"x.a", b"x.b", b"x.c", b"x.d"];
        names.iter().for_each(|name| exemplars.read(Kind::of(name), 0, b"x", true));
        assert_eq!((exemplars.len_of(json), exemplars.len_of(csv)), (None, None));
    }
}
