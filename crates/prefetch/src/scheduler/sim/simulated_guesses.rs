//! Guesses: the directories that they are of, what workers do for them, and what the supervisor
//! tells of waits and of processors, which are idle or busy throughout.

use std::sync::{Arc, Mutex, PoisonError};

use runahead_estimators::ChunkIndex;
use runahead_predict::{Completion, GuessTask, Name, Sink};

use super::*;

/// A worker's time of a processor for one job.
const PROCESSOR: (u64, u64) = (10_000, 100_000);
/// The supervisor says this often what was waited, and how contended processors are once workers
/// have used so much.
const TELL: u64 = 10_000_000;
const TELLING: u64 = 1_000_000;

/// The files of each directory of a program.
#[derive(Clone, Copy)]
pub(super) struct Directories {
    pub files: u64,
    /// Files of each directory that the program reads; others have numbers of their own.
    pub read: u64,
}

impl Directories {
    /// Guesses come true: the program reads all files, and not just as many as lead to guesses.
    pub fn are_read(&self) -> bool {
        self.read == self.files && self.files > EVIDENCE
    }
}

/// Files of a directory that are read before there are guesses.
pub(super) const EVIDENCE: u64 = 3;
/// Run number that stands for a file that the program does not read.
const OTHERS: u32 = 1 << 16;

/// Waits and processor time of a program that the supervisor reports to the scheduler.
#[derive(Default)]
pub(super) struct SupervisorReport {
    /// Unforeseen waits of which the scheduler does not know yet.
    waits: (u32, u64),
    /// Processor time that workers had used, and the program's wait for processors, at the last
    /// report.
    processor: u64,
    delayed: u64,
}

/// Processors, and who uses them.
#[derive(Default)]
pub(super) struct Processors {
    count: u64,
    /// Programs that compute all the time.
    load: u64,
    /// Processor time that workers have used, and the others' wait for it.
    used: u64,
    delayed: u64,
}

impl Processors {
    pub fn new(count: u64, load: u64) -> Self {
        Processors { count, load, ..Processors::default() }
    }

    /// Returns the others' wait for a processor, per processor time of workers.
    pub fn contention(&self) -> f64 {
        if self.load < self.count { 0.0 } else { 1.0 }
    }

    fn takes(&mut self, time: u64) {
        self.used += time;
        self.delayed += (time as f64 * self.contention()) as u64;
    }
}

/// Knows which guesses were used.
#[derive(Default)]
pub(super) struct GuessUses(Mutex<HashSet<Identity>>);

impl GuessUses {
    fn used(&self, file: File) {
        let key = Identity::ROOT.join(file.path().as_bytes()).chunk(ChunkIndex(0));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
    }
}

impl Sink for GuessUses {
    fn done(&self, _: Identity) {}

    fn forget(&self, _: Identity, _: u32) {}

    fn expect(&self, _: Identity, _: u32) -> bool {
        true
    }

    fn was_used(&self, key: Identity) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&key)
    }

    fn completed(&self, _: &Completion) {}
}

/// Task of a worker for a guess.
pub(super) struct Guessing {
    job: Job<File>,
    ticket: Ticket,
    /// The file that the guess is about; of a directory, one without a number.
    file: File,
    /// Request to the device, if any, and the time of its answer.
    asks: Option<Kind>,
    answered: u64,
    began: u64,
    processor: u64,
}

impl World {
    pub(super) fn start_guess(&mut self, job: Job<File>, ticket: Ticket) {
        let Step::Guess { errand, .. } = &job.step else { unreachable!("a guess") };
        let (path, kind, len) = match errand {
            GuessTask::List { path } | GuessTask::Browse { path } => (path, Kind::Listing, 4096),
            GuessTask::Look { path } => (path, Kind::Lookup, 4096),
            GuessTask::Read { path, size, .. } | GuessTask::Scan { path, size, .. } => {
                (path, Kind::Read, *size)
            }
        };
        let file = File::of(path);
        let (answered, asks) = match kind {
            Kind::Read => self.arrives(file, len),
            Kind::Lookup => self.arrives(file.block(), len),
            _ => (self.serve(file, len), true),
        };
        let processor = PROCESSOR.0 + self.random.below(PROCESSOR.1 - PROCESSOR.0);
        self.checks.guess_begins(file.device, ticket.home, &self.scheduler);
        if asks {
            self.checks.asks(file.device);
        }
        let (asks, began) = (asks.then_some(kind), self.now);
        let guessing = Guessing { job, ticket, file, asks, answered, began, processor };
        self.after(answered + processor, Event::Guess(guessing));
    }

    pub(super) fn guess_ends(&mut self, guessing: Guessing) {
        let Guessing { job, ticket, file, asks, answered, began, processor } = guessing;
        let contention = self.processors.contention();
        self.processors.takes(processor);
        let bytes = if asks == Some(Kind::Read) { FILE_BYTES } else { 0 };
        self.checks.guess_ends(file.device, bytes, (processor, contention));
        if let Some(kind) = asks {
            self.checks.is_answered(file.device);
            let [began, latency] = [began, answered - began].map(Duration::from_nanos);
            let device = (8, file.device as u32);
            let part = (self.place(file), 0..FILE_BYTES);
            self.scheduler.sample(Sample { kind, device, part, began, latency }, &ticket);
        }
        let fails = self.fails > 0 && self.random.one_in(self.fails);
        let Step::Guess { errand, .. } = &job.step else { unreachable!("a guess") };
        if asks.is_some() && matches!(errand, GuessTask::Look { .. }) {
            self.has_arrived(file.block());
            self.programs[file.program].guessed.insert(file.block());
        }
        let outcome = match errand {
            _ if fails => Outcome::Over,
            GuessTask::List { .. } => Outcome::Names(self.names(file)),
            GuessTask::Look { .. } => Outcome::File(Arc::new(file), FILE_BYTES),
            GuessTask::Browse { .. } => Outcome::Over,
            GuessTask::Read { .. } | GuessTask::Scan { .. } => {
                let program = &mut self.programs[file.program];
                program.arriving.remove(&file);
                if program.memory.insert(file) {
                    program.guessed.insert(file);
                }
                Outcome::Over
            }
        };
        let requests = u64::from(asks.is_some());
        let used = Used { requests, processor: Duration::from_nanos(processor) };
        let mut fx = Effects::default();
        self.scheduler.guessed(job, outcome, used, &mut fx);
        self.settle(fx);
        self.scheduler.end(ticket);
    }

    /// Returns the entries of the directory of `file`.
    fn names(&self, file: File) -> Vec<Name> {
        let program = &self.programs[file.program];
        let Directories { files, read } = program.directories;
        // Directories of the same number on all devices of the program are read side by side.
        let all = read * program.devices.len() as u64;
        let (first, last) = (file.group * all + 1, (file.group + 1) * all);
        let real = (first..=last.min(program.length)).map(|at| program.file(file.program, at, 0));
        let real = real.filter(|real| real.device == file.device);
        let others = (read..files).map(|n| {
            let position = file.group * files + n;
            File { position, astray: OTHERS, ..file }
        });
        let name = |file: File| {
            let path = file.path();
            let name = path.rsplit('/').next().unwrap_or_default();
            Name { name: name.as_bytes().into(), inode: self.place(file), directory: false }
        };
        real.chain(others).map(name).collect()
    }

    /// Program `n` finds `file` in memory.
    pub(super) fn finds(&mut self, n: usize, file: File) {
        let program = &mut self.programs[n];
        if program.guessed.remove(&file) {
            program.uses.used(file);
            self.checks.account.used();
        }
    }

    /// Notes an unforeseen wait of program `n`.
    pub(super) fn waited(&mut self, n: usize, time: u64) {
        let waits = &mut self.programs[n].told.waits;
        *waits = (waits.0 + 1, waits.1 + time);
        self.checks.account.waited(time);
    }

    /// The supervisor looks at program `n`, and tells the scheduler.
    pub(super) fn tell(&mut self, n: usize) {
        let told = &mut self.programs[n].told;
        let (count, time) = std::mem::take(&mut told.waits);
        if count > 0 {
            self.scheduler.waited(count.into(), Duration::from_nanos(time));
        }
        if self.plant == Some(PlantedFault::InventsWaits) {
            self.scheduler.waited(0, Duration::from_secs(1));
        }
        let Processors { used, delayed, .. } = self.processors;
        let new = used - told.processor;
        if new >= TELLING {
            self.scheduler.contended((delayed - told.delayed) as f64 / new as f64);
            (told.processor, told.delayed) = (used, delayed);
        }
        if self.scheduler.is_sole() && !self.programs[n].sole {
            self.stop_shadows(n);
        }
        if self.programs[n].position < self.programs[n].length {
            self.after(self.now + TELL, Event::Tell(n));
        }
    }

    /// Ends the shadow of program `n` for good, and drops its hints.
    fn stop_shadows(&mut self, n: usize) {
        let program = &mut self.programs[n];
        program.sole = true;
        program.run += 1;
        program.hinted = program.position;
        let (client, run) = (program.client, program.run);
        self.checks.gave_up(n, run);
        let mut fx = Effects::default();
        self.scheduler.drop_stale(client, Some(run), &mut fx);
        self.settle(fx);
    }
}
