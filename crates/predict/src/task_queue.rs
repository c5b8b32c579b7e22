//! The queue in which tasks of predictions wait for a worker.
//!
//! A trait, so that predictions depend neither on devices nor on how clients share them.

use crate::hint_order::{ClientId, EntryId, Item, Rank};

/// A queue with a part for each client. The prefetcher's fair queue is one.
pub trait TaskQueue {
    /// True if `client` has a part of the queue.
    fn is_open(&self, client: ClientId) -> bool;

    /// Adds owner `id` for `client`, on the device where `path` probably lies.
    fn join_at(&mut self, client: ClientId, id: EntryId, path: &[u8]);

    /// Removes owner `id` for `client`; none of its items waits any more.
    fn leave(&mut self, client: ClientId, id: EntryId);

    /// Queues an item of owner `id`.
    fn insert(&mut self, client: ClientId, id: EntryId, rank: Rank, item: Item);

    /// Takes out an item that waits.
    fn remove(&mut self, client: ClientId, id: EntryId, rank: Rank, item: Item);

    /// Number of names in the batches that wait, of all clients.
    fn names(&self) -> usize;

    /// Number of names in the batches that wait for `client`.
    fn names_of(&self, client: ClientId) -> usize;

    /// Queues a batch of `names` names.
    fn add_names(&mut self, client: ClientId, id: EntryId, names: usize);

    /// Takes out a batch of `names` names.
    fn remove_names(&mut self, client: ClientId, id: EntryId, names: usize);
}
