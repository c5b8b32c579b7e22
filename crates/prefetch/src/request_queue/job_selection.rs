//! Selection of the next job on a device.
//!
//! Where requests are served side by side, the order is that of the target. Where few are, as where
//! heads have to be moved, the order follows the device:
//! - names are looked up before any of their data is read: names lie together and data lies
//!   together, and going back and forth costs a seek each way;
//! - data is read in *sweeps* (N-step CSCAN): the first [`WINDOW`] items of a client, in the order
//!   of where they lie, from where the last sweep ended, upwards and then from the start. What
//!   comes in meanwhile waits for the next sweep.
//!
//! Chang's striper sorted what was queued at each disk (2001, section 7.1.1, CSCAN); steps bound
//! what that costs those that the target reaches first.
//!
//! Invariant: what is first for a client when its turn comes is passed over at most [`WINDOW`]
//! times in favour of lookups, and as many times in favour of a sweep. What a target waits for is
//! passed over for nothing.

use runahead_estimators::access_identity::CHUNK_BYTES;
use runahead_predict::{ClientId, EntryId, Item, Tier};

use super::path_entry::Stage;
use super::queue_state::Queue;
use super::worker_job::{Job, Step, TakenPart};
use crate::device_number::Home;
use crate::horizon::WINDOW;

impl<F> Queue<F> {
    /// The next step to take, if there is one, on any device. The worker that gets it calls
    /// [`Queue::looked`] or [`Queue::finish`] when it is over.
    #[cfg(test)]
    pub(crate) fn pop(&mut self) -> Option<Job<F>> {
        while let Some(home) = self.queues.first_home() {
            if let Some(job) = self.pop_at(home, Tier::Guess) {
                return Some(job);
            }
        }
        None
    }

    /// The next step to take on `home`, of `tier` or more urgent. `None` when there is none, or no
    /// longer: it may have turned out to be elsewhere, or to have to wait for others.
    pub(crate) fn pop_at(&mut self, home: Home, tier: Tier) -> Option<Job<F>> {
        loop {
            let head = self.queues.tier_at(home).filter(|head| *head <= tier)?;
            let (client, id, item) = self.queues.first_at(home)?;
            if item == Item::Names {
                let batch = self.batches.start(id, &mut self.queues)?;
                self.queues.charge(client, home, 1);
                return Some(Job { entry: id, step: Step::Names { batch } });
            }
            if item == Item::Program {
                let (task, own) = self.programs.pop(id, &mut self.queues)?;
                self.charge(client, home, task.bytes());
                return Some(Job { entry: id, step: Step::Program { task, own } });
            }
            if item == Item::Guess {
                let (sent, errand) = self.guesses.pop(id, &mut self.queues)?;
                self.charge(client, home, 0);
                return Some(Job { entry: id, step: Step::Guess { sent, errand } });
            }
            let urgent = head == Tier::Demand;
            let (id, item) = match urgent {
                true => (id, item),
                false => self.next(client, home, (id, item)),
            };
            let entry = self.entries.get_mut(&id)?;
            if matches!(entry.stage, Stage::Waiting) {
                let better = self.queues.whereabouts.find(&entry.path);
                if better.is_some() && better != home {
                    entry.move_to(better, &mut self.queues);
                    continue;
                }
                if !urgent {
                    self.siblings.take_turns = !self.remote.contains(&home);
                    entry.takes_turn = self.siblings.begin(id, &entry.path);
                    if !entry.takes_turn {
                        entry.held = true;
                        entry.park(true, &mut self.queues);
                        continue;
                    }
                }
            }
            return self.take(client, id, item);
        }
    }

    fn waits_for_lookup(&self, id: EntryId) -> bool {
        self.entries.get(&id).is_some_and(|entry| matches!(entry.stage, Stage::Waiting))
    }

    /// Returns the item to take next for `client`, whose first item is `first`, if nothing is
    /// urgent.
    fn next(&mut self, client: ClientId, home: Home, first: (EntryId, Item)) -> (EntryId, Item) {
        if !self.narrow.contains(&home) {
            return first;
        }
        let passed = self.passed.get(&(client, home)).copied().unwrap_or(0);
        if passed < WINDOW {
            let mut window = self.queues.of(client, home).take(WINDOW);
            if let Some(lookup) = window.find(|&(id, _)| self.waits_for_lookup(id)) {
                if lookup != first {
                    self.passed.insert((client, home), passed + 1);
                }
                return lookup;
            }
        }
        self.passed.remove(&(client, home));
        if self.waits_for_lookup(first.0) {
            return first;
        }
        self.planned(client, home)
            .or_else(|| {
                self.plan(client, home);
                self.planned(client, home)
            })
            .unwrap_or(first)
    }

    /// The next of the present sweep that still waits.
    fn planned(&mut self, client: ClientId, home: Home) -> Option<(EntryId, Item)> {
        loop {
            let (id, item) = self.queues.plan(client, home)?.pop_front()?;
            let waits = self.entries.get(&id).is_some_and(|entry| {
                entry.home == home
                    && matches!(entry.stage, Stage::Open(_))
                    && entry.share(client).is_some_and(|share| share.waits(item))
            });
            if waits {
                return Some((id, item));
            }
        }
    }

    /// Plans a sweep.
    fn plan(&mut self, client: ClientId, home: Home) {
        let head = self.swept.get(&home).copied().unwrap_or_default();
        let place = |(id, item): (EntryId, Item)| {
            let Stage::Open(found) = &self.entries.get(&id)?.stage else { return None };
            let at = match item {
                Item::Data(start) => (found.place.at, start),
                _ => (found.place.at, 0),
            };
            Some((at < head, at, id, item))
        };
        let mut sweep: Vec<_> =
            self.queues.of(client, home).take(WINDOW).filter_map(place).collect();
        sweep.sort_unstable();
        if let Some(plan) = self.queues.plan(client, home) {
            plan.extend(sweep.into_iter().map(|(.., id, item)| (id, item)));
        }
    }

    /// Starts on `item` of `client`, which is the first of what waits, or was just unparked.
    pub(super) fn take(&mut self, client: ClientId, id: EntryId, item: Item) -> Option<Job<F>> {
        let entry = self.entries.get_mut(&id)?;
        let home = entry.home;
        let tag = entry.share(client).and_then(|share| share.tag(item));
        let step = match &entry.stage {
            Stage::Open(found) => {
                let (file, at) = (found.file.clone(), found.place.at);
                let most = self.pieces.get(&home).copied();
                let step = entry.start(client, item, (file, most), &mut self.queues);
                if let Step::Read { range, .. } = &step {
                    self.swept.insert(home, (at, range.end));
                }
                step
            }
            Stage::Waiting | Stage::Looking => {
                entry.park(true, &mut self.queues);
                entry.start_lookup(&mut self.queues)
            }
        };
        let bytes = match &step {
            Step::Read { range, .. } => range.end - range.start,
            _ => 0,
        };
        self.taken = tag.map(|tag| TakenPart { client, tag, bytes });
        self.charge(client, home, bytes);
        Some(Job { entry: id, step })
    }

    /// `client` was served: one request, and one more for each chunk.
    fn charge(&mut self, client: ClientId, home: Home, bytes: u64) {
        self.queues.charge(client, home, 1 + bytes.div_ceil(CHUNK_BYTES));
    }

    /// Sets if `home` serves few requests side by side.
    pub(crate) fn set_narrow(&mut self, home: Home, narrow: bool) {
        match narrow {
            true => self.narrow.insert(home),
            false => self.narrow.remove(&home),
        };
        self.guesses.narrow = !self.narrow.is_empty();
    }

    /// Sets if every lookup on `home` is a request of its own, as on a remote file system.
    /// Elsewhere lookups in one directory share what they read, and take turns.
    pub(crate) fn set_remote(&mut self, home: Home, remote: bool) {
        match remote {
            true => self.remote.insert(home),
            false => self.remote.remove(&home),
        };
    }

    /// Bytes of a file that are read at a time on `home`.
    pub(crate) fn set_piece(&mut self, home: Home, bytes: u64) {
        self.pieces.insert(home, bytes);
    }

    /// Returns the hinted part that was just taken.
    pub(crate) fn taken(&mut self) -> Option<TakenPart> {
        self.taken.take()
    }
}
