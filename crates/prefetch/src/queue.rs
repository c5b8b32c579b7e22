//! What is to be read, as data: no thread, no file, no clock.
//!
//! There is one entry for each path, from the first hint that names it until nothing is left to do
//! for it, with a *share* for each client that hinted it. A worker looks the path up once
//! ([`Step::Look`]), which answers `Lookup` hints and tells what the others may do; the handle it
//! brings back serves all of them, those too that arrive while it is being looked up. See
//! [`crate::lanes`] and [`crate::order`] for the order and [`crate::ranges`] for data.
//!
//! Log keys and runs are a client's own: keys of different clients are different things, whatever
//! their values.
//!
//! Invariants: a hint that was accepted is completed once (possibly merged with others of its
//! client) or dropped; each of its log keys is marked done when nothing that it covers is left to
//! be read, or forgotten, after which no trace of it remains; no entry without work or worker
//! exists; nothing is told to a client that is gone.
//!
//! Nothing here calls out: what has to be told to the [`crate::Sink`] is collected in [`Effects`],
//! for the caller to act on once it has let go of the lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use runahead_abi::identity::CHUNK_BYTES;

mod clients;
mod entry;
mod giving_up;
mod job;
mod share;
mod siblings;
mod submit;
#[cfg(test)]
mod tests;

use self::entry::{Entry, Stage};
pub(crate) use self::job::{Class, Effects, Found, Job, Step, Trouble};
use self::siblings::Siblings;
use crate::expand::{Batch, Batches, Wish};
use crate::guess::{Errand, Guesses, Outcome};
use crate::lanes::Lanes;
use crate::order::{ClientId, EntryId, Item, Tier};
use crate::program::{Programs, Report};

/// What became of a submitted hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Submitted {
    /// It waits, as a job of its own.
    Queued,
    /// It waits, joined to what was there for the path.
    Merged,
    /// All of it waits already or is being read.
    Duplicate,
    /// Its answer is known: completed at once.
    Answered,
    /// No room: its keys were forgotten.
    Refused,
}

/// Files kept open at most while lookups go first.
const OPEN_MAX: usize = 512;

/// See the module's text. `F` is the handle of an open file.
pub(crate) struct Queue<F> {
    entries: HashMap<EntryId, Entry<F>>,
    paths: HashMap<Arc<[u8]>, EntryId>,
    batches: Batches,
    programs: Programs<F>,
    guesses: Guesses<F>,
    lanes: Lanes,
    siblings: Siblings,
    lookups_first: bool,
    next_id: u64,
    max_items: usize,
}

impl<F> Queue<F> {
    /// A queue that refuses hints once `max_items` parts of hints wait.
    pub(crate) fn new(max_items: usize) -> Self {
        Queue {
            entries: HashMap::new(),
            paths: HashMap::new(),
            batches: Batches::default(),
            programs: Programs::default(),
            guesses: Guesses::default(),
            lanes: Lanes::default(),
            siblings: Siblings::default(),
            lookups_first: false,
            next_id: 0,
            max_items,
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Parts of hints that wait, and names that follow from them.
    pub(crate) fn len(&self) -> usize {
        self.lanes.parts() + self.lanes.names()
    }

    /// The same for one client.
    pub(crate) fn len_of(&self, client: ClientId) -> usize {
        self.lanes.parts_of(client) + self.lanes.names_of(client)
    }

    /// Things that a worker could start on now.
    pub(crate) fn ready(&self) -> usize {
        self.lanes.ready()
    }

    /// True when a target waits for what comes first.
    pub(crate) fn is_urgent(&self) -> bool {
        self.lanes.tier() == Some(Tier::Demand)
    }

    /// True when nobody asked for what comes first, and so for all of it.
    pub(crate) fn is_guess(&self) -> bool {
        self.lanes.tier() == Some(Tier::Guess)
    }

    /// Adds a batch of names; false if there is no room.
    pub(crate) fn add_names(&mut self, batch: Arc<Batch>) -> bool {
        let id = self.new_id();
        self.batches.add(id, batch, &mut self.lanes)
    }

    /// The next step to take, if there is one. The worker that gets it calls [`Queue::looked`] or
    /// [`Queue::finish`] when it is over.
    pub(crate) fn pop(&mut self) -> Option<Job<F>> {
        loop {
            let (client, id, item) = self.lanes.first()?;
            if item == Item::Names {
                let batch = self.batches.start(id, &mut self.lanes)?;
                self.lanes.charge(client, 1);
                return Some(Job { entry: id, step: Step::Names { batch } });
            }
            if item == Item::Program {
                let (task, own) = self.programs.pop(id, &mut self.lanes)?;
                self.charge(client, task.bytes());
                return Some(Job { entry: id, step: Step::Program { task, own } });
            }
            if item == Item::Guess {
                let (sent, errand) = self.guesses.pop(id, &mut self.lanes)?;
                self.charge(client, 0);
                return Some(Job { entry: id, step: Step::Guess { sent, errand } });
            }
            let urgent = self.is_urgent();
            let (id, item) = if urgent { (id, item) } else { self.next(client, id, item) };
            let entry = self.entries.get_mut(&id)?;
            if matches!(entry.stage, Stage::Waiting) && !urgent {
                entry.takes_turn = self.siblings.begin(id, &entry.path);
                if !entry.takes_turn {
                    entry.held = true;
                    entry.park(true, &mut self.lanes);
                    continue;
                }
            }
            return self.take(client, id, item);
        }
    }

    /// What to take next for `client`, for whom `id` would be first, if nothing is urgent.
    fn next(&self, client: ClientId, id: EntryId, item: Item) -> (EntryId, Item) {
        let waits = |&(id, _): &(EntryId, Item)| {
            self.entries.get(&id).is_some_and(|e| matches!(e.stage, Stage::Waiting))
        };
        let lookup = match self.lookups_first {
            true => self.lanes.of(client).take(OPEN_MAX).find(waits),
            false => None,
        };
        lookup.unwrap_or((id, item))
    }

    /// Whether few requests are served side by side, as where they seek. Then names are looked up
    /// before any of their data is read: names lie together and data lies together, and going back
    /// and forth costs a seek each way.
    pub(crate) fn set_narrow(&mut self, narrow: bool) {
        self.lookups_first = narrow;
        self.guesses.narrow = narrow;
    }

    /// Whether lookups in one directory share what they read: not on a remote file system.
    pub(crate) fn set_take_turns(&mut self, take_turns: bool) {
        self.siblings.take_turns = take_turns;
    }

    /// Ends the hold on an entry, if there is one.
    fn let_go(&mut self, id: EntryId) {
        let Some(entry) = self.entries.get_mut(&id).filter(|e| e.held) else { return };
        entry.held = false;
        entry.park(false, &mut self.lanes);
    }

    /// Starts on `item` of `client`, which is the first of what waits, or was just unparked.
    fn take(&mut self, client: ClientId, id: EntryId, item: Item) -> Option<Job<F>> {
        let entry = self.entries.get_mut(&id)?;
        let step = match &entry.stage {
            Stage::Open(found) => {
                let file = found.file.clone();
                entry.start(client, item, file, &mut self.lanes)
            }
            Stage::Waiting | Stage::Looking => {
                entry.park(true, &mut self.lanes);
                entry.start_lookup(&mut self.lanes)
            }
        };
        let bytes = match &step {
            Step::Read { range, .. } => range.end - range.start,
            _ => 0,
        };
        self.charge(client, bytes);
        Some(Job { entry: id, step })
    }

    /// `client` was served: one request, and one more for each chunk.
    fn charge(&mut self, client: ClientId, bytes: u64) {
        self.lanes.charge(client, 1 + bytes.div_ceil(CHUNK_BYTES));
    }

    /// A [`Step::Program`] came back. The step that the same worker shall take next, if there is.
    pub(crate) fn reported(
        &mut self,
        job: Job<F>,
        result: Result<Report<F>, Trouble>,
        now: Duration,
        fx: &mut Effects<F>,
    ) -> Option<Job<F>> {
        let Step::Program { task, own } = job.step else { return None };
        let (id, lanes) = (job.entry, &mut self.lanes);
        let task = self.programs.finish((id, own), task, (result, now), lanes, fx)?;
        Some(Job { entry: id, step: Step::Program { task, own: false } })
    }

    /// A [`Step::Guess`] came back.
    pub(crate) fn guessed(&mut self, job: Job<F>, outcome: Outcome<F>, fx: &mut Effects<F>) {
        if let Step::Guess { sent, errand } = job.step {
            if let Errand::Read { file, .. } = errand {
                fx.files.push(file);
            }
            self.guesses.finish(sent, outcome, &mut self.lanes, fx);
        }
    }

    /// Guesses that were used.
    pub(crate) fn guesses_used(&self) -> u64 {
        self.guesses.used
    }

    /// A [`Step::Look`] came back. The step that the same worker shall take next, if there is one.
    pub(crate) fn looked(
        &mut self,
        job: Job<F>,
        result: Result<Found<F>, Trouble>,
        fx: &mut Effects<F>,
    ) -> Option<Job<F>> {
        let id = job.entry;
        let entry = self.entries.get_mut(&id)?;
        if std::mem::take(&mut entry.takes_turn) {
            let path = entry.path.clone();
            let held = |id| self.entries.get(&id).is_some_and(|e| e.held);
            for free in self.siblings.ended(&path, held) {
                self.let_go(free);
            }
        }
        let entry = self.entries.get_mut(&id)?;
        entry.running -= 1;
        let followed = matches!(job.step, Step::Look { follow: true, .. });
        match result {
            Ok(found) if found.class == Class::Link && entry.follows() && !followed => {
                // A hint that follows came in meanwhile.
                fx.files.push(found.file);
                entry.running += 1;
                let step = Step::Look { path: entry.path.clone(), follow: true };
                return Some(Job { entry: id, step });
            }
            Ok(found) => entry.open(found, &mut self.lanes, fx),
            Err(trouble) => entry.fail(trouble, &mut self.lanes, fx),
        }
        entry.park(false, &mut self.lanes);
        let first = entry.items().min();
        match first {
            Some(_) if self.lookups_first => None,
            Some((_, client, item)) => self.take(client, id, item),
            None => {
                self.retire_if_idle(id, fx);
                None
            }
        }
    }

    /// How the clients wish to go on from the directory that was read in `job`.
    pub(crate) fn wishes(&self, job: &Job<F>) -> Vec<Wish> {
        self.entries.get(&job.entry).map(|e| e.wishes().collect()).unwrap_or_default()
    }

    /// A step other than [`Step::Look`] is over: how many bytes it read, or what went wrong.
    pub(crate) fn finish(
        &mut self,
        job: Job<F>,
        result: Result<u64, Trouble>,
        fx: &mut Effects<F>,
    ) {
        if let Step::Names { batch } = &job.step {
            if self.batches.remove(job.entry, &mut self.lanes).is_some() {
                batch.complete(fx);
            }
            return;
        }
        let Some(entry) = self.entries.get_mut(&job.entry) else { return };
        entry.finish(&job.step, result, fx);
        self.retire_if_idle(job.entry, fx);
        if let Step::List { file, .. } | Step::Read { file, .. } = job.step {
            fx.files.push(file);
        }
    }

    fn retire_if_idle(&mut self, id: EntryId, fx: &mut Effects<F>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.prune(&mut self.lanes);
        if entry.is_idle()
            && let Some(entry) = self.entries.remove(&id)
        {
            self.paths.remove(&entry.path);
            // Closing a file may wait for a server: not under the lock.
            if let Stage::Open(found) = entry.stage {
                fx.files.push(found.file);
            }
        }
    }
}
