//! State of the queue, and what comes back from workers.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use runahead_predict::{
    Batch, Batches, ClientId, Effects, EntryId, ExpansionRequest, GuessTask, Guesses, Outcome,
    Programs, Report, StepFailure, Tally, TaskQueue,
};

use super::lookup_turns::LookupTurns;
use super::path_entry::{Entry, Stage};
use super::worker_job::{Class, Found, Job, Place, Step, TakenPart};
use crate::device_number::Home;
use crate::fair_queue::{ClientQueues, Head, Reach};
use crate::horizon::Speed;
use crate::prefetch_options::Options;

/// Queue of all paths. `F` is the handle of an open file.
pub(crate) struct Queue<F> {
    pub(super) entries: HashMap<EntryId, Entry<F>>,
    pub(super) paths: HashMap<Arc<[u8]>, EntryId>,
    pub(super) batches: Batches,
    pub(super) programs: Programs<F>,
    pub(super) guesses: Guesses<F>,
    pub(super) queues: ClientQueues,
    pub(super) siblings: LookupTurns,
    /// Devices that serve few requests side by side; see [`job_selection`].
    pub(super) narrow: HashSet<Home>,
    /// Devices that are asked for every name.
    pub(super) remote: HashSet<Home>,
    /// Bytes that are read at a time, where they were found out.
    pub(super) pieces: HashMap<Home, u64>,
    /// End of the data that was read last on each device.
    pub(super) swept: HashMap<Home, (u64, u64)>,
    /// Number of lookups that went before the first item.
    pub(super) passed: HashMap<(ClientId, Home), usize>,
    pub(super) taken: Option<TakenPart>,
    /// Hints for programs are acted on.
    pub(super) loads_programs: bool,
    pub(super) next_id: u64,
    pub(super) max_items: usize,
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
            queues: ClientQueues::default(),
            siblings: LookupTurns::default(),
            narrow: HashSet::new(),
            remote: HashSet::new(),
            pieces: HashMap::new(),
            swept: HashMap::new(),
            passed: HashMap::new(),
            taken: None,
            loads_programs: true,
            next_id: 0,
            max_items,
        }
    }

    /// Switches kinds of predictions on and off.
    pub(crate) fn allow(&mut self, options: &Options) {
        self.guesses.off = !options.guesses;
        self.guesses.enters_siblings = options.sibling_directories;
        self.guesses.follows_patterns = options.lookup_patterns;
        self.loads_programs = options.programs;
    }

    pub(super) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Parts of hints that wait, and names that follow from them.
    pub(crate) fn len(&self) -> usize {
        self.queues.parts() + self.queues.names()
    }

    /// Number of parts that wait for `client`.
    pub(crate) fn len_of(&self, client: ClientId) -> usize {
        self.queues.parts_of(client) + self.queues.names_of(client)
    }

    /// Things that a worker could start on now.
    pub(crate) fn ready(&self) -> usize {
        self.queues.ready()
    }

    /// Returns the first item of each device.
    pub(crate) fn heads(&self) -> impl Iterator<Item = Head> + '_ {
        self.queues.heads()
    }

    /// Sets how far ahead of its target hints of `client` may be served.
    pub(crate) fn set_reach(&mut self, client: ClientId, reach: Option<Reach>) {
        self.queues.set_reach(client, reach);
    }

    /// Sets the measured speed of a device.
    pub(crate) fn set_speed(&mut self, home: Home, speed: Speed) {
        self.queues.set_speed(home, speed);
    }

    /// Adds a batch of names; false if there is no room.
    pub(crate) fn add_names(&mut self, batch: Arc<Batch>) -> bool {
        let id = self.new_id();
        self.batches.add(id, batch, &mut self.queues)
    }

    /// Ends the hold on an entry, if there is one.
    pub(super) fn let_go(&mut self, id: EntryId) {
        let Some(entry) = self.entries.get_mut(&id).filter(|e| e.held) else { return };
        entry.held = false;
        entry.park(false, &mut self.queues);
    }

    /// A [`Step::Program`] came back. The step that the same worker shall take next, if there is.
    pub(crate) fn reported(
        &mut self,
        job: Job<F>,
        result: Result<Report<F>, StepFailure>,
        now: Duration,
        fx: &mut Effects<F>,
    ) -> Option<Job<F>> {
        let Step::Program { task, own } = job.step else { return None };
        let (id, queues) = (job.entry, &mut self.queues);
        let task = self.programs.finish((id, own), task, (result, now), queues, fx)?;
        Some(Job { entry: id, step: Step::Program { task, own: false } })
    }

    /// A [`Step::Guess`] came back.
    pub(crate) fn guessed(&mut self, job: Job<F>, outcome: Outcome<F>, fx: &mut Effects<F>) {
        if let Step::Guess { sent, errand } = job.step {
            if let GuessTask::Read { file, .. } | GuessTask::Scan { file, .. } = errand {
                fx.files.push(file);
            }
            self.guesses.finish(sent, outcome, &mut self.queues, fx);
        }
    }

    /// Sets if files are scanned for names.
    pub(crate) fn scan(&mut self, scans: bool) {
        self.guesses.scans = scans;
    }

    /// Returns the counts of guesses.
    pub(crate) fn tally(&self) -> &Tally {
        &self.guesses.tally
    }

    /// A [`Step::Look`] came back. The step that the same worker shall take next, if there is one;
    /// none unless it may `go_on`.
    pub(crate) fn looked(
        &mut self,
        job: Job<F>,
        (result, go_on): (Result<Found<F>, StepFailure>, bool),
        fx: &mut Effects<F>,
    ) -> Option<Job<F>> {
        let id = job.entry;
        self.place(id, &result);
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
            Ok(found) => entry.open(found, &mut self.queues, fx),
            Err(trouble) => entry.fail(trouble, &mut self.queues, fx),
        }
        entry.park(false, &mut self.queues);
        let (first, home) = (entry.items().min(), entry.home);
        match first {
            Some(_) if !go_on || self.narrow.contains(&home) => None,
            Some((_, client, item)) => self.take(client, id, item),
            None => {
                self.retire_if_idle(id, fx);
                None
            }
        }
    }

    /// A lookup brought `result`, and with it the device.
    pub(super) fn place(&mut self, id: EntryId, result: &Result<Found<F>, StepFailure>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Ok(Found { class, place: Place { home: Some(device), .. }, .. }) = result else {
            return;
        };
        let directory = *class == Class::Directory;
        self.queues.whereabouts.learn(&entry.path, *device, directory);
        entry.move_to(Some(*device), &mut self.queues);
    }

    /// Returns the clients' requests to expand the directory that was read in `job`.
    pub(crate) fn wishes(&self, job: &Job<F>) -> Vec<ExpansionRequest> {
        self.entries.get(&job.entry).map(|e| e.wishes().collect()).unwrap_or_default()
    }

    /// A step other than [`Step::Look`] is over: how many bytes it read, or what went wrong.
    pub(crate) fn finish(
        &mut self,
        job: Job<F>,
        result: Result<u64, StepFailure>,
        fx: &mut Effects<F>,
    ) {
        if let Step::Names { batch } = &job.step {
            if self.batches.remove(job.entry, &mut self.queues).is_some() {
                if result.is_ok() { batch.complete(fx) } else { batch.forget(fx) }
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

    pub(super) fn retire_if_idle(&mut self, id: EntryId, fx: &mut Effects<F>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.prune(&mut self.queues);
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
