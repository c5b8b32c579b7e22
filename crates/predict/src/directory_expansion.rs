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

use std::sync::Arc;

use hashbrown::HashMap;
use runahead_abi::HintKind;
use runahead_abi::hint_record::{
    EXPAND_LEVELS_MASK, EXPAND_LEVELS_ONE, EXPAND_LISTINGS, EXPAND_NAMES, Header, NO_FOLLOW, STEERS,
};
use runahead_estimators::Identity;

use crate::deferred_effects::Effects;
use crate::hint_order::{ClientId, EntryId, Tag};
use crate::task_queue::TaskQueue;

/// Names in one batch. ext4 keeps 16 inodes of 256 bytes in a block of 4 KiB.
const BATCH: usize = 16;
/// Names that may wait to be looked up.
pub const PENDING_MAX: usize = 1 << 14;

/// A directory entry.
pub struct Name {
    /// Name within the directory.
    pub name: Box<[u8]>,
    /// Inode number.
    pub inode: u64,
    /// True if the entry is a directory.
    pub directory: bool,
}

/// Request to expand a directory.
#[derive(Clone, Debug)]
pub struct ExpansionRequest {
    /// The client whose hint this is.
    pub client: ClientId,
    /// Path of the directory.
    pub path: Arc<[u8]>,
    /// Log keys of the directory.
    pub keys: Vec<Identity>,
    /// Run, position and flags of the hint.
    pub tag: Tag,
}

impl ExpansionRequest {
    /// If `tag` asks for it.
    pub fn of(client: ClientId, path: &Arc<[u8]>, keys: &[Identity], tag: &Tag) -> Option<Self> {
        (tag.flags & (EXPAND_NAMES | EXPAND_LISTINGS) != 0).then(|| ExpansionRequest {
            client,
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
    pub fn listings(
        &self,
        names: &[Name],
        expect: impl Fn(Identity, u32) -> bool,
    ) -> Vec<(Header, Vec<u8>)> {
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
                if !expect(key.listing(), self.tag.run) {
                    continue;
                }
                expect(key, self.tag.run);
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
    pub fn batches(
        &self,
        names: &[Name],
        remote: bool,
        expect: impl Fn(Identity, u32) -> bool,
    ) -> Vec<Arc<Batch>> {
        if self.tag.flags & EXPAND_NAMES == 0 {
            return Vec::new();
        }
        let read =
            self.tag.flags & EXPAND_LISTINGS != 0 && self.tag.flags & EXPAND_LEVELS_MASK != 0;
        let wanted = |n: &&Name| {
            if n.directory && read {
                return false;
            }
            // Every key is announced, also behind one that is news.
            let news = self.keys.iter().filter(|key| expect(key.join(&n.name), self.tag.run));
            news.count() > 0
        };
        let mut names: Vec<&Name> = names.iter().filter(wanted).collect();
        names.sort_unstable_by_key(|n| n.inode);
        // A remote lookup is a request of its own, which a batch would only delay.
        let size = if remote { 1 } else { BATCH };
        let batch = |names: &[&Name]| {
            let names = names.iter().map(|n| n.name.clone()).collect();
            Arc::new(Batch { wish: self.clone(), names })
        };
        names.chunks(size).map(batch).collect()
    }
}

/// Names of one directory, to be looked up one after the other.
pub struct Batch {
    wish: ExpansionRequest,
    names: Vec<Box<[u8]>>,
}

impl Batch {
    /// The client from whose hint this batch follows.
    pub fn client(&self) -> ClientId {
        self.wish.client
    }

    /// The directory that holds the names.
    pub fn directory(&self) -> &Arc<[u8]> {
        &self.wish.path
    }

    /// The path of one of them, for all.
    fn names_path(&self) -> Vec<u8> {
        self.wish.path_of(self.names.first().map_or(b"", |name| name))
    }

    /// The run that this batch was wanted by.
    pub fn run(&self) -> u32 {
        self.wish.tag.run
    }

    /// The names of this batch.
    pub fn names(&self) -> &[Box<[u8]>] {
        &self.names
    }

    /// Log keys of `name`.
    pub fn keys<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = Identity> + 'a {
        self.wish.keys.iter().map(|key| key.join(name))
    }

    /// The batch came to its end.
    pub fn complete<F>(&self, fx: &mut Effects<F>) {
        let hints = self.names.len() as u32;
        let tag = Tag { flags: STEERS | NO_FOLLOW, hints, steers: hints, ..self.wish.tag };
        fx.complete(self.client(), HintKind::Lookup, &tag, 0, false);
    }

    /// The batch will not be looked up.
    pub fn forget<F>(&self, fx: &mut Effects<F>) {
        let before = self.wish.tag.run.saturating_add(1);
        for name in &self.names {
            fx.forget.extend(self.keys(name).map(|key| (self.client(), key, before)));
        }
    }
}

/// Batches that wait, each in its client's queue, or are under way.
#[derive(Default)]
pub struct Batches {
    /// Each batch, and whether a worker is on it.
    all: HashMap<EntryId, (Arc<Batch>, bool)>,
}

impl Batches {
    /// Adds `batch` as `id`; false if there is no room for it, of which no client gets all.
    pub fn add(&mut self, id: EntryId, batch: Arc<Batch>, queue: &mut impl TaskQueue) -> bool {
        let (client, names) = (batch.client(), batch.names.len());
        let own = queue.names_of(client) + names;
        if !queue.is_open(client) || !has_room(own, queue.names() + names, PENDING_MAX) {
            return false;
        }
        queue.join_at(client, id, &batch.names_path());
        queue.add_names(client, id, names);
        self.all.insert(id, (batch, false));
        true
    }

    /// A worker takes `id`.
    pub fn start(&mut self, id: EntryId, queue: &mut impl TaskQueue) -> Option<Arc<Batch>> {
        let (batch, started) = self.all.get_mut(&id)?;
        *started = true;
        queue.remove_names(batch.client(), id, batch.names.len());
        Some(batch.clone())
    }

    /// Removes `id`, if it is a batch and still wanted.
    pub fn remove(&mut self, id: EntryId, queue: &mut impl TaskQueue) -> Option<Arc<Batch>> {
        let (batch, started) = self.all.remove(&id)?;
        if !started {
            queue.remove_names(batch.client(), id, batch.names.len());
        }
        queue.leave(batch.client(), id);
        Some(batch)
    }

    /// True if `id` is a waiting batch that only runs before `before` wanted; `None` matches any
    /// run.
    pub fn is_stale(&self, id: EntryId, before: Option<u32>) -> bool {
        let stale =
            |(batch, started): &(Arc<Batch>, bool)| !started && batch.wish.tag.is_stale(before);
        self.all.get(&id).is_some_and(stale)
    }
}

/// True if a client may have `own` of `all` taken places, out of `max`. A client gets up to four
/// times as many as are free. So some are always free for the next client, and each client gets
/// less the more of them press.
pub fn has_room(own: usize, all: usize, max: usize) -> bool {
    all <= max && own <= (max - all).saturating_mul(4)
}
