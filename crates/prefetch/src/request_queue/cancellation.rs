//! Cancellation of what one client wanted of one path.

use std::ops::Range;

use runahead_predict::{Effects, Item};

use super::client_requests::{SLOTS, Share, Slot, index, slot_key};
use crate::byte_ranges::{Group, chunks};
use crate::fair_queue::ClientQueues;

impl Share {
    /// Does the part of [`super::Queue::drop_stale`] in this share.
    pub(crate) fn drop_stale<F>(
        &mut self,
        before: Option<u32>,
        parked: bool,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) -> usize {
        let mut dropped = 0;
        let mut shelf = queues.shelf(self.client, self.entry, parked);
        for (item, _) in SLOTS {
            let stale = |slot: &mut Slot| !slot.started && slot.tag.is_stale(before);
            let Some(slot) = self.slots[index(item)].take_if(stale) else { continue };
            shelf.remove(slot.rank, item);
            dropped += slot.tag.hints as usize;
            if item != Item::Lookup {
                self.forget(before, fx, |key| slot_key(item, key));
            }
        }
        let given_up = self.data.drop_stale(before, &mut shelf);
        dropped + self.forget_wants(given_up, before, fx)
    }

    /// Does the part of [`super::Queue::cancel`] in this share.
    pub(crate) fn cancel<F>(
        &mut self,
        run: u32,
        parked: bool,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) -> usize {
        let mut shelf = queues.shelf(self.client, self.entry, parked);
        let given_up = self.data.drop_where(|tag| tag.is_taken_back(run), &mut shelf);
        self.forget_wants(given_up, Some(run.saturating_add(1)), fx)
    }

    fn forget_wants<F>(
        &mut self,
        (ranges, groups): (Vec<Range<u64>>, Vec<Group>),
        before: Option<u32>,
        fx: &mut Effects<F>,
    ) -> usize {
        self.forget_data(&ranges, before, fx);
        groups.iter().map(|group| group.tag.hints as usize).sum()
    }

    fn forget_data<F>(&mut self, ranges: &[Range<u64>], before: Option<u32>, fx: &mut Effects<F>) {
        for chunk in ranges.iter().flat_map(chunks) {
            if self.data.has_work_in(chunk) {
                continue;
            }
            if self.partly_read.remove(&chunk.0) {
                self.done(fx, |key| key.chunk(chunk));
            } else {
                self.forget(before, fx, |key| key.chunk(chunk));
            }
        }
    }

    /// The client is gone: gives up everything, also what a worker is on. How many hints that was.
    pub(crate) fn abandon<F>(
        &mut self,
        parked: bool,
        queues: &mut ClientQueues,
        fx: &mut Effects<F>,
    ) -> usize {
        let mut dropped = 0;
        let mut shelf = queues.shelf(self.client, self.entry, parked);
        for (item, _) in SLOTS {
            let Some(slot) = self.slots[index(item)].take() else { continue };
            if !slot.started {
                shelf.remove(slot.rank, item);
            }
            dropped += slot.tag.hints as usize;
            if item != Item::Lookup {
                self.forget(None, fx, |key| slot_key(item, key));
            }
        }
        let (ranges, hints) = self.data.abandon(&mut shelf);
        self.forget_data(&ranges, None, fx);
        dropped + hints
    }
}
