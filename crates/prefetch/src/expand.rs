//! From a directory that was read to what it named.
//!
//! A walk over a tree alternates between reading a directory and looking at what is in it. When
//! the shadow has seen the program do so (`EXPAND_NAMES`, `EXPAND_LISTINGS`), waiting for it to ask
//! for every level again would cost a round trip of the shadow per level. So a directory's names
//! are looked up, and the directories among them read, as soon as it has been read itself, for as
//! many levels as the hint allows; the shadow renews the allowance as it follows.
//!
//! Names are looked up in batches by inode number: file systems keep inodes in blocks by number,
//! so that a batch is mostly one read, and a lookup from the open directory costs a tenth of a job
//! of its own.
//!
//! Invariant: at most [`PENDING_MAX`] names wait; what does not fit is left to the shadow.

use std::collections::VecDeque;
use std::sync::Arc;

use runahead_abi::record::{
    EXPAND_LEVELS_MASK, EXPAND_LEVELS_ONE, EXPAND_LISTINGS, EXPAND_NAMES, Header, NO_FOLLOW, STEERS,
};
use runahead_abi::{HintKind, Identity};

use crate::order::Tag;
use crate::sink::{Completion, Sink};

/// Names in one batch. ext4 keeps 16 inodes of 256 bytes in a block of 4 KiB.
const BATCH: usize = 16;
/// Names that may wait to be looked up.
const PENDING_MAX: usize = 1 << 14;

/// A directory entry.
pub(crate) struct Name {
    pub name: Box<[u8]>,
    pub inode: u64,
    pub directory: bool,
}

/// That a directory is to be expanded, and as what.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub path: Arc<[u8]>,
    pub keys: Vec<Identity>,
    pub tag: Tag,
}

impl Wish {
    /// If `tag` asks for it.
    pub(crate) fn of(path: &Arc<[u8]>, keys: &[Identity], tag: &Tag) -> Option<Self> {
        (tag.flags & (EXPAND_NAMES | EXPAND_LISTINGS) != 0).then(|| Wish {
            path: path.clone(),
            keys: keys.to_vec(),
            tag: *tag,
        })
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let slash: &[u8] = if self.path.ends_with(b"/") { b"" } else { b"/" };
        [&self.path, slash, name].concat()
    }

    /// The hints for directories among `names`, as (header, path).
    pub(crate) fn listings(&self, names: &[Name], sink: &dyn Sink) -> Vec<(Header, Vec<u8>)> {
        let flags = self.tag.flags;
        if flags & EXPAND_LISTINGS == 0 || flags & EXPAND_LEVELS_MASK == 0 {
            return Vec::new();
        }
        let inherited = EXPAND_NAMES | EXPAND_LISTINGS | EXPAND_LEVELS_MASK;
        let flags = ((flags & inherited) - EXPAND_LEVELS_ONE) | NO_FOLLOW | STEERS;
        let mut hints = Vec::new();
        for name in names.iter().filter(|n| n.directory) {
            for key in &self.keys {
                let key = key.join(&name.name);
                if !sink.expect(key.listing(), self.tag.run) {
                    continue;
                }
                sink.expect(key, self.tag.run);
                let path = self.path_of(&name.name);
                let header = Header {
                    kind: HintKind::Listing as u32,
                    run: self.tag.run,
                    position: self.tag.position,
                    key: key.raw(),
                    offset: 0,
                    length: 0,
                    flags,
                    path_len: path.len() as u32,
                };
                hints.push((header, path));
            }
        }
        hints
    }

    /// The batches in which the other `names` are looked up.
    pub(crate) fn batches(
        &self,
        mut names: Vec<Name>,
        remote: bool,
        sink: &dyn Sink,
    ) -> Vec<Batch> {
        if self.tag.flags & EXPAND_NAMES == 0 {
            return Vec::new();
        }
        let read =
            self.tag.flags & EXPAND_LISTINGS != 0 && self.tag.flags & EXPAND_LEVELS_MASK != 0;
        names.retain(|n| {
            if n.directory && read {
                return false;
            }
            // Every key is announced, also behind one that is news.
            let news = self.keys.iter().filter(|key| sink.expect(key.join(&n.name), self.tag.run));
            news.count() > 0
        });
        names.sort_unstable_by_key(|n| n.inode);
        // A remote lookup is a request of its own, which a batch would only delay.
        let size = if remote { 1 } else { BATCH };
        let mut batches = Vec::with_capacity(names.len().div_ceil(size));
        let mut names = names.into_iter().map(|n| n.name).peekable();
        while names.peek().is_some() {
            let names = names.by_ref().take(size).collect();
            batches.push(Batch { wish: self.clone(), names });
        }
        batches
    }
}

/// Names of one directory, to be looked up one after the other.
pub(crate) struct Batch {
    wish: Wish,
    names: Vec<Box<[u8]>>,
}

impl Batch {
    /// The directory that holds them.
    pub(crate) fn directory(&self) -> &Arc<[u8]> {
        &self.wish.path
    }

    /// They themselves.
    pub(crate) fn names(&self) -> &[Box<[u8]>] {
        &self.names
    }

    /// What the log calls `name`.
    pub(crate) fn keys<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = Identity> + 'a {
        self.wish.keys.iter().map(|key| key.join(name))
    }

    /// Tells that it came to its end.
    pub(crate) fn completion(&self, queued: usize) -> Completion {
        let hints = self.names.len() as u32;
        Completion {
            run: self.wish.tag.run,
            kind: HintKind::Lookup,
            flags: STEERS | NO_FOLLOW,
            hints,
            steers: hints,
            bytes: 0,
            failed: false,
            queued,
        }
    }
}

/// Batches that wait.
#[derive(Default)]
pub(crate) struct Batches {
    waiting: VecDeque<Batch>,
    names: usize,
}

impl Batches {
    /// Batches that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Names that wait.
    pub(crate) fn names(&self) -> usize {
        self.names
    }

    /// Adds `batches`; gives back what there is no room for.
    pub(crate) fn add(&mut self, batches: Vec<Batch>) -> Vec<Batch> {
        let mut refused = Vec::new();
        for batch in batches {
            if self.names + batch.names.len() > PENDING_MAX {
                refused.push(batch);
            } else {
                self.names += batch.names.len();
                self.waiting.push_back(batch);
            }
        }
        refused
    }

    pub(crate) fn pop(&mut self) -> Option<Batch> {
        let batch = self.waiting.pop_front()?;
        self.names -= batch.names.len();
        Some(batch)
    }

    /// Takes out what runs before `before` wanted, or all.
    pub(crate) fn drop_stale(&mut self, before: Option<u32>) -> Vec<Batch> {
        let all = std::mem::take(&mut self.waiting);
        let (stale, kept): (VecDeque<_>, _) =
            all.into_iter().partition(|b| b.wish.tag.is_stale(before));
        self.waiting = kept;
        self.names = self.waiting.iter().map(|b| b.names.len()).sum();
        stale.into()
    }
}

/// Tells that `batches` will not be looked up.
pub(crate) fn forget(batches: &[Batch], sink: &dyn Sink) {
    for batch in batches {
        let before = batch.wish.tag.run.saturating_add(1);
        for name in &batch.names {
            batch.keys(name).for_each(|key| sink.forget(key, before));
        }
    }
}
