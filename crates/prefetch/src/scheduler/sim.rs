//! The scheduler as a deterministic simulation: seeded devices, programs and failures, in virtual
//! time. What decides is the production code; the devices are the testbed's models; threads are
//! events.
//!
//! Each program makes accesses to files of its own, directory by directory, computes in between,
//! and waits for what is not in memory. Its shadow hints ahead of it, sometimes goes astray (hints
//! of files that are never used, then the run is given up), or hints nothing, and lookups and reads
//! sometimes fail. What is guessed is brought in, too ([`simulated_guesses`]). Nothing is read
//! ahead once storage is seen to serve one request at a time. What must hold is in
//! [`invariant_checks`], [`guess_account`] and [`seeded_worlds`]; that each check can fail is shown
//! by planted violations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use runahead_abi::hint_record::{DEMAND, Header};
use runahead_abi::{HintKind, Record};
use runahead_estimators::Identity;
use runahead_predict::{ClientId, Effects, Outcome, StepFailure, Used};
use runahead_testbed::model::{Access, Jitter, Model, Service};

use super::{Scheduler, Ticket};
use crate::concurrency_limit::{Kind, Sample};
use crate::horizon::Pace;
use crate::request_queue::{Class, Found, Job, Place, Step};

mod guess_account;
mod invariant_checks;
mod seeded_worlds;
mod simulated_guesses;

use invariant_checks::Checks;
use simulated_guesses::{Directories, GuessUses, Guessing, Processors, SupervisorReport};

const FILE_BYTES: u64 = 64 << 10;

/// Faults that a scheduler might have. They are planted where the simulation calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlantedFault {
    /// The scheduler does not care how far ahead of the target a hint is.
    IgnoresHorizon,
    /// The scheduler does not care how much memory is taken.
    IgnoresBudget,
    /// The scheduler does not care how much is in flight.
    IgnoresLimit,
    /// The scheduler takes what a target waits for as another hint.
    HintsFirst,
    /// The scheduler goes on with hints of runs that were given up.
    KeepsCancelled,
    /// The scheduler says nothing of some hints that it has dealt with.
    Silent,
    /// The scheduler takes targets to have waited for much longer than they have.
    InventsWaits,
    /// Asks for a dozen times as much with each job, which no program wants.
    ReadsOn,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A file: the access that a program makes, or would make if its shadow were right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct File {
    device: usize,
    program: usize,
    /// The directory.
    group: u64,
    position: u64,
    /// The run that made it up; 0 if it is real.
    astray: u32,
}

/// Names and inodes of so many files come with one request.
const NAMES_IN_BLOCK: u64 = 16;
/// Run number that stands for the block with a file's name.
const BLOCK: u32 = 1 << 17;

impl File {
    /// Returns the block that must be in memory before the file can be opened.
    fn block(self) -> Self {
        File { position: self.position / NAMES_IN_BLOCK, astray: BLOCK, ..self }
    }

    fn path(&self) -> String {
        let File { device, program, group, position, astray } = self;
        format!("/d{device}/p{program}/g{group}/{position}-{astray}.x")
    }

    /// The file at `path`; of a directory, one whose position is 0.
    fn of(path: &[u8]) -> Self {
        let text = str::from_utf8(path).expect("text");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let digits = text.split(|c: char| !c.is_ascii_digit()).filter(|t| !t.is_empty());
        let parts: Vec<u64> = digits.map(number).collect();
        let (position, astray) = match parts[3..] {
            [] => (0, 0),
            [position, astray] => (position, astray as u32),
            _ => panic!("{text}"),
        };
        let (device, program, group) = (parts[0] as usize, parts[1] as usize, parts[2]);
        File { device, program, group, position, astray }
    }
}

struct Device {
    model: Model,
    /// Requests that it serves at a time.
    servers: usize,
    /// Files lie in the order of their use, or anyhow.
    in_order: bool,
}

struct Program {
    client: ClientId,
    devices: Vec<usize>,
    length: u64,
    compute: u64,
    budget: u64,
    /// Accesses made.
    position: u64,
    run: u32,
    /// Position up to which this run has hinted.
    hinted: u64,
    /// Accesses that the shadow may be ahead.
    lead: u64,
    /// Runs per run that strays.
    strays: u64,
    /// True if the storage serves one request at a time: nothing is read ahead for any program.
    sole: bool,
    directories: Directories,
    memory: HashSet<File>,
    /// Files being read, and when they arrive.
    arriving: HashMap<File, u64>,
    /// Files that were guessed and have not been used.
    guessed: HashSet<File>,
    uses: Arc<GuessUses>,
    told: SupervisorReport,
    waiting: bool,
    /// When the program came to its end.
    ended: u64,
}

impl Program {
    fn file(&self, program: usize, position: u64, astray: u32) -> File {
        let devices = self.devices.len() as u64;
        let device = self.devices[(position % devices) as usize];
        let group = (position - 1) / devices / self.directories.read;
        File { device, program, group, position, astray }
    }
}

enum Event {
    /// The program goes on to its next access.
    Target(usize),
    /// The program knows the next file's name and inode.
    Named(usize, File),
    /// The read that the program waits for is over.
    Read(usize, File),
    /// A worker's job is over.
    Job { job: Job<File>, ticket: Ticket, file: File, began: u64, asked: bool },
    /// A worker's job for a guess is over.
    Guess(Guessing),
    /// The supervisor looks at the program.
    Tell(usize),
}

struct World {
    now: u64,
    random: Random,
    scheduler: Scheduler<File>,
    devices: Vec<Device>,
    programs: Vec<Program>,
    processors: Processors,
    events: BinaryHeap<Reverse<(u64, usize)>>,
    pending: Vec<Option<Event>>,
    checks: Checks,
    plant: Option<PlantedFault>,
    /// True if nothing is read ahead: as programs run without us.
    plain: bool,
    /// Steps per step that fails; 0: none fails.
    fails: u64,
}

impl World {
    fn after(&mut self, time: u64, event: Event) {
        self.events.push(Reverse((self.now.max(time), self.pending.len())));
        self.pending.push(Some(event));
    }

    /// When the device has answered a request for `file`.
    fn serve(&mut self, file: File, len: u64) -> u64 {
        let at = self.place(file);
        self.devices[file.device]
            .model
            .submit(self.now, Access::Data { offset: at * FILE_BYTES, len })
    }

    /// When `file` is in memory, and whether the device had to be asked for it: what is under way
    /// is waited for.
    fn arrives(&mut self, file: File, len: u64) -> (u64, bool) {
        let program = &self.programs[file.program];
        if program.memory.contains(&file) {
            return (self.now, false);
        }
        if let Some(&done) = program.arriving.get(&file) {
            return (done.max(self.now), false);
        }
        let done = self.serve(file, len);
        self.programs[file.program].arriving.insert(file, done);
        (done, true)
    }

    fn has_arrived(&mut self, file: File) {
        let program = &mut self.programs[file.program];
        program.arriving.remove(&file);
        program.memory.insert(file);
    }

    fn place(&self, file: File) -> u64 {
        let number = file.position * 8 + file.program as u64 + u64::from(file.astray) * (1 << 20);
        match self.devices[file.device].in_order {
            true => number,
            false => Random(number).below(1 << 24),
        }
    }

    fn submit(&mut self, file: File, demand: bool) {
        let program = &self.programs[file.program];
        let path = file.path();
        let flags = if demand && self.plant != Some(PlantedFault::HintsFirst) { DEMAND } else { 0 };
        let key = Identity::ROOT.join(path.as_bytes());
        let header = Header {
            kind: HintKind::Data as u32,
            run: if demand { 0 } else { program.run },
            position: file.position,
            key: key.raw(),
            offset: 0,
            length: FILE_BYTES,
            flags,
            path_len: path.len() as u32,
        };
        let record = Record { kind: HintKind::Data, header, path: path.as_bytes() };
        self.checks.hinted(program.client, file, header.run, demand, key);
        let program = &self.programs[file.program];
        let mut fx = Effects::default();
        let now = Duration::from_nanos(self.now);
        self.scheduler.submit(program.client, &record, now, &mut fx);
        self.settle(fx);
    }

    fn settle(&mut self, fx: Effects<File>) {
        for (client, key) in
            fx.done.into_iter().chain(fx.forget.into_iter().map(|(c, k, _)| (c, k)))
        {
            if self.plant == Some(PlantedFault::Silent) && key.raw() % 7 == 0 {
                continue;
            }
            self.checks.settled(client, key);
        }
    }

    /// Free workers take what they are given.
    fn work(&mut self) {
        while let Some((job, ticket)) = self.scheduler.begin() {
            let file = match &job.step {
                Step::Look { path, .. } => File::of(path),
                Step::Read { file, .. } => **file,
                _ => {
                    self.start_guess(job, ticket);
                    continue;
                }
            };
            self.checks.begins(
                file,
                matches!(job.step, Step::Read { .. }),
                &self.scheduler,
                &self.programs,
            );
            self.start(job, ticket, file);
        }
    }

    fn start(&mut self, job: Job<File>, ticket: Ticket, file: File) {
        self.checks.started(file, ticket.home);
        let (done, asked) = match job.step {
            Step::Look { .. } => self.arrives(file.block(), 4096),
            _ => self.arrives(file, FILE_BYTES),
        };
        if asked {
            self.checks.asks(file.device);
        }
        if self.plant == Some(PlantedFault::ReadsOn) {
            (1..=12).for_each(|n| _ = self.serve(File { astray: BLOCK + n, ..file }, FILE_BYTES));
        }
        if self.plant == Some(PlantedFault::IgnoresLimit) {
            // Its place is given back at once, and taken again when it ends.
            self.scheduler.limits.end(ticket.home);
        }
        let began = self.now;
        self.after(done, Event::Job { job, ticket, file, began, asked });
    }

    fn job_ends(
        &mut self,
        job: Job<File>,
        mut ticket: Ticket,
        file: File,
        began: u64,
        asked: bool,
    ) {
        self.checks.ended(file);
        if self.plant == Some(PlantedFault::IgnoresLimit) {
            self.scheduler.limits.begin(ticket.home);
        }
        let device = (8, file.device as u32);
        let look = matches!(job.step, Step::Look { .. });
        let kind = if look { Kind::Lookup } else { Kind::Read };
        if asked {
            self.checks.is_answered(file.device);
            let [began, latency] = [began, self.now - began].map(Duration::from_nanos);
            let part = (self.place(file), 0..FILE_BYTES);
            self.scheduler.sample(Sample { kind, device, part, began, latency }, &ticket);
        }
        let fails = self.fails > 0 && self.random.one_in(self.fails);
        let trouble = if self.random.one_in(2) { StepFailure::Ours } else { StepFailure::Answer };
        let mut fx = Effects::default();
        let mut next = None;
        if look {
            self.has_arrived(file.block());
            let place = Place { home: Some(device), at: self.place(file) };
            let class = Class::File { size: FILE_BYTES };
            let found = Found { file: Arc::new(file), class, place };
            let result = if fails { Err(trouble) } else { Ok(found) };
            if result.is_ok() {
                self.checks.saw(file);
            }
            next = self.scheduler.looked(job, result, &mut ticket, &mut fx);
        } else {
            match fails {
                true => _ = self.programs[file.program].arriving.remove(&file),
                false => self.has_arrived(file),
            }
            let result = if fails { Err(trouble) } else { Ok(FILE_BYTES) };
            self.scheduler.queue.finish(job, result, &mut fx);
        }
        self.settle(fx);
        match next {
            Some(job) => {
                self.checks.reads(file, &self.programs);
                self.start(job, ticket, file);
            }
            None => self.scheduler.end(ticket),
        }
    }

    /// The shadow hints as far as it may.
    fn shadow(&mut self, n: usize) {
        let program = &self.programs[n];
        if program.sole {
            return;
        }
        let end = (program.position + program.lead).min(program.length);
        let (from, run) = (program.hinted.max(program.position), program.run);
        let astray = program.strays > 0 && u64::from(run) % program.strays == program.strays - 1;
        for position in from + 1..=end {
            let program = &self.programs[n];
            let file = program.file(n, position, if astray { run } else { 0 });
            // What it has hinted before is in the log.
            if !program.memory.contains(&file) && !self.checks.is_open(file) {
                self.submit(file, false);
            }
        }
        self.programs[n].hinted = end.max(from);
    }

    fn target(&mut self, n: usize) {
        let program = &mut self.programs[n];
        program.waiting = false;
        if program.position == program.length {
            program.ended = self.now;
            return;
        }
        let block = program.file(n, program.position + 1, 0).block();
        if !program.memory.contains(&block) {
            program.waiting = true;
            let (done, _) = self.arrives(block, 4096);
            self.waited(n, done - self.now);
            self.after(done, Event::Named(n, block));
            return;
        }
        self.finds(n, block);
        let program = &mut self.programs[n];
        program.position += 1;
        let (client, position) = (program.client, program.position);
        let file = program.file(n, position, 0);
        let pretended =
            if self.plant == Some(PlantedFault::IgnoresHorizon) { 1 << 40 } else { position };
        self.scheduler.reached(client, pretended);
        self.checks.reached(n, position);
        let foreseen = self.checks.is_open(file);
        let program = &self.programs[n];
        if program.memory.contains(&file) {
            let next = self.now + program.compute;
            self.finds(n, file);
            self.after(next, Event::Target(n));
            return;
        }
        // A stall. Was it foreseen? If not, the shadow is made anew.
        if !foreseen {
            let before = {
                let program = &mut self.programs[n];
                (program.run, program.hinted) = (program.run + 1, position);
                program.run
            };
            self.checks.gave_up(n, before);
            if self.plant != Some(PlantedFault::KeepsCancelled) {
                let mut fx = Effects::default();
                self.scheduler.drop_stale(client, Some(before), &mut fx);
                self.settle(fx);
            }
        }
        let (servers, now) = (self.devices[file.device].servers, self.now);
        let (done, asks) = self.arrives(file, 4096);
        if asks {
            self.checks.demanded(file.device, servers, done - now);
        }
        self.programs[n].waiting = true;
        self.after(done, Event::Read(n, file));
        if !foreseen {
            self.waited(n, done - now);
            if !self.programs[n].sole {
                self.submit(file, true);
            }
        }
        self.shadow(n);
    }

    fn step(&mut self) -> bool {
        let Some(Reverse((time, event))) = self.events.pop() else { return false };
        self.now = time;
        match self.pending[event].take().expect("an event happens once") {
            Event::Target(n) => self.target(n),
            Event::Named(n, block) => {
                self.has_arrived(block);
                self.target(n);
            }
            Event::Read(n, file) => {
                self.has_arrived(file);
                let next = self.now + self.programs[n].compute;
                self.after(next, Event::Target(n));
            }
            Event::Job { job, ticket, file, began, asked } => {
                self.job_ends(job, ticket, file, began, asked);
            }
            Event::Guess(guessing) => self.guess_ends(guessing),
            Event::Tell(n) => self.tell(n),
        }
        (0..self.programs.len()).for_each(|n| {
            if !self.programs[n].waiting {
                self.shadow(n);
            }
        });
        if !self.plain {
            self.work();
        }
        true
    }
}
