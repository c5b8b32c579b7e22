//! Machine that runs its processes in small steps and settles their predictions.

use std::boxed::Box;
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::vec::Vec;

use super::model::{self, Course, Effect};
use super::process::{Process, Sleep};
use super::program::{Joint, Network, Sort, State};
use crate::tests::{owner, session};
use crate::{Host, Id, Owner, Pipe, Session};

/// Deadlock; not a violation if the network itself can deadlock.
pub(super) const DEADLOCK: &str = "no process can continue";

/// Rule that the process layer breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plant {
    /// A reader reads speculative data without depending on it.
    DoesNotDepend,
    /// A reader does so while something else can roll the data back: a prediction of its own, or
    /// another writer.
    ReadsWithOtherDependencies,
    /// A reader reads data below what it has read, and stays when that is rolled back.
    ReadsFromBelow,
    /// A reader reads the tail before the pipe is empty.
    ReadsTailBeforePipe,
    /// Read data counts as committed only once its writer has written everything.
    CommitsOnlyAtEndOfRelease,
    /// Read data counts as committed before its writer has come to it.
    CommitsBeforeRelease,
    /// A rollback is not recorded in the table.
    HidesRollback,
    /// Rolled-back data stays in the tail.
    KeepsTail,
    /// A speculation is resolved as committed before its output is written.
    DoneBeforeRelease,
    /// No dependent is poked once the data it has read is released.
    PokesNoDependent,
    /// Only dependents that have read data are poked.
    PokesReadersOnly,
    /// Readers get data that comes after a call they cannot have.
    SharesAfterUnshared,
    /// A speculation is committed above one that is still open.
    CommitsOutOfOrder,
    /// A tail stays in use by its reader after its data is committed.
    NeverStopsReading,
    /// A dependency stays after its speculation is closed.
    StaysDependent,
}

/// Counts of events.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub steps: u64,
    pub predicted: u64,
    pub failed: u64,
    pub depended: u64,
    pub refused: u64,
    pub reads: u64,
    pub partial_reads: u64,
    pub unshared: u64,
    pub early_commits: u64,
    pub rolled_back: u64,
    pub blocked: u64,
    pub killed: u64,
}

impl Counts {
    pub fn all(&mut self) -> [&mut u64; 12] {
        let Counts { steps, predicted, failed, depended, refused, reads: taken, .. } = self;
        let Counts {
            partial_reads: taken_in_part,
            unshared: unseen,
            early_commits: passed,
            rolled_back: taken_back,
            blocked,
            killed,
            ..
        } = self;
        [
            steps,
            predicted,
            failed,
            depended,
            refused,
            taken,
            taken_in_part,
            unseen,
            passed,
            taken_back,
            blocked,
            killed,
        ]
    }
}

/// Liveness of a process, as other processes see it.
#[derive(Default)]
pub(super) struct Liveness {
    pub is_alive: Cell<bool>,
    pub is_poked: Cell<bool>,
}

/// A process as the session's host.
#[derive(Clone)]
pub(super) struct SimHost {
    pub this: Owner,
    pub lives: Rc<Vec<Liveness>>,
}

impl SimHost {
    pub fn life(&self, process: u32) -> &Liveness {
        &self.lives[process as usize - 1]
    }
}

impl Host for SimHost {
    fn current_thread(&self) -> Owner {
        self.this
    }

    fn is_alive(&self, owner: Owner) -> bool {
        self.life(owner.process).is_alive.get()
    }

    fn pause(&self) {
        panic!("a single-threaded simulation cannot wait");
    }

    fn poke(&self, whom: Owner) {
        if whom != self.this {
            self.life(whom.process).is_poked.set(true);
        }
    }
}

/// State of a pipe.
#[derive(Default)]
pub(super) struct Channel {
    pub bytes: VecDeque<u8>,
    pub capacity: usize,
    pub is_closed: bool,
    /// True if its reader has died: what is written vanishes.
    pub is_broken: bool,
}

impl Channel {
    pub fn room(&self) -> usize {
        if self.is_broken { usize::MAX } else { self.capacity - self.bytes.len() }
    }
}

/// A prediction that is to be settled.
pub(super) struct Prediction {
    pub id: Id,
    pub is_right: bool,
    pub truth: u64,
}

pub(super) struct World {
    pub network: Network,
    pub random: fastrand::Rng,
    pub session: Box<Session>,
    pub processes: Vec<Process>,
    pub channels: Vec<Channel>,
    pub predictions: Vec<Prediction>,
    /// Every speculation that was ever opened.
    pub ids: Vec<Id>,
    pub courses: Vec<Course>,
    pub violations: BTreeSet<&'static str>,
    pub plant: Option<Plant>,
    pub counts: Counts,
    /// Percentages: a question is predicted; a prediction is right; one is settled in a step.
    pub odds: [u32; 3],
    /// True if each read asks only for what it needs.
    pub is_exact: bool,
    /// Step at which a process is killed, and the process.
    kill: Option<(u64, usize)>,
    lives: Rc<Vec<Liveness>>,
}

std::thread_local! {
    /// Empty shared memory of an earlier world. A new one takes longer than the world itself.
    static LEFT: Cell<Option<Box<Session>>> = const { Cell::new(None) };
}

/// Names the pipes of a network.
pub(super) fn pipe(number: usize) -> Pipe {
    Pipe::new(13, number as u64)
}

impl World {
    pub fn new(seed: u64, plant: Option<Plant>, sort: Sort, kills: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let network = Network::new(seed, sort, &mut random);
        let count = network.programs.len();
        let life = || Liveness { is_alive: Cell::new(true), ..Liveness::default() };
        let lives: Rc<Vec<Liveness>> = Rc::new((0..count).map(|_| life()).collect());
        let process = |n: usize| {
            let seat = SimHost { this: owner(n as u32 + 1), lives: lives.clone() };
            Process::new(seat, State::new(&network, n))
        };
        let processes = (0..count).map(process).collect();
        let channel = |joint: &Joint| Channel { capacity: joint.capacity, ..Channel::default() };
        let courses = model::run(&network, &std::vec![None; network.pipes.len()]);
        let often = *random.choice(&[1, 3, 10, 30]).expect("some");
        let odds = [random.u32(10..100), random.u32(20..100), often];
        let mut kill = None;
        if kills {
            let last: u32 = random.u32(4..12);
            kill = Some((random.u64(1..1 << last), random.usize(..count)));
        }
        World {
            random,
            session: LEFT.take().unwrap_or_else(session),
            processes,
            channels: network.pipes.iter().map(channel).collect(),
            predictions: Vec::new(),
            ids: Vec::new(),
            courses,
            violations: BTreeSet::new(),
            plant,
            counts: Counts::default(),
            odds,
            is_exact: false,
            kill,
            lives,
            network,
        }
    }

    /// Keeps the shared memory for the next world if it is empty.
    pub fn recycle_session(&mut self) {
        if self.violations.is_empty() && !self.has_killed() && self.plant.is_none() {
            LEFT.set(Some(core::mem::replace(&mut self.session, session())));
        }
    }

    pub fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    pub fn must(&mut self, holds: bool, what: &'static str) {
        if !holds {
            self.violations.insert(what);
        }
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(..100) < percent
    }

    pub fn has_killed(&self) -> bool {
        self.counts.killed > 0
    }

    fn can_go_on(&self, p: usize) -> bool {
        let life = &self.lives[p];
        let is_filled = |pipe: usize| {
            let channel = &self.channels[pipe];
            !channel.bytes.is_empty() || channel.is_closed
        };
        life.is_alive.get()
            && match self.processes[p].sleep {
                Sleep::Not => true,
                Sleep::UntilPoked => life.is_poked.get(),
                Sleep::UntilFilled(pipe) => life.is_poked.get() || is_filled(pipe),
                Sleep::UntilRoom(pipe) => self.channels[pipe].room() > 0,
            }
    }

    /// Runs until all processes have ended, or a violation is found.
    pub fn run(&mut self) {
        const MOST_STEPS: u64 = 200_000;
        while self.violations.is_empty() {
            self.counts.steps += 1;
            self.must(self.counts.steps < MOST_STEPS, "the world does not end");
            if self.kill.is_some_and(|(step, _)| step <= self.counts.steps) {
                self.kill();
            }
            let all = 0..self.processes.len();
            let able: Vec<usize> = all.filter(|p| self.can_go_on(*p)).collect();
            let settles = self.odds[2];
            if !self.predictions.is_empty() && (able.is_empty() || self.chance(settles)) {
                self.settle();
            } else if let Some(p) = self.random.choice(able) {
                self.step(p);
            } else if !self.resolve_orphans() {
                break;
            }
        }
        if self.violations.is_empty() {
            self.check_end();
        }
    }

    /// Settles any one prediction.
    fn settle(&mut self) {
        let which = self.random.usize(..self.predictions.len());
        let Prediction { id, is_right, truth } = self.predictions.swap_remove(which);
        let table = &self.session.table;
        let told = match is_right {
            true => table.commit(id),
            false => table.fail(id, &truth.to_ne_bytes()).map(Some),
        };
        // Err: it was rolled back with an earlier one.
        if let Ok(whom) = told {
            if let Some(whom) = whom {
                self.lives[whom.process as usize - 1].is_poked.set(true);
            }
            table.finish_settling(id);
        }
    }

    fn kill(&mut self) {
        let Some((_, p)) = self.kill.take() else { return };
        if self.lives[p].is_alive.get() {
            self.counts.killed += 1;
            self.end_process(p);
        }
    }

    /// Ends a process: closes its pipes and drops its predictions.
    pub fn end_process(&mut self, p: usize) {
        self.lives[p].is_alive.set(false);
        let program = self.network.programs[p].clone();
        program.outputs.iter().for_each(|pipe| self.channels[*pipe].is_closed = true);
        for input in program.inputs {
            let channel = &mut self.channels[input];
            channel.is_broken = true;
            channel.bytes.clear();
        }
        let table = &self.session.table;
        self.predictions.retain(|question| table.owner(question.id) as usize - 1 != p);
    }

    /// Lets waiting processes check for dead ones. Returns true if that lets a process continue.
    fn resolve_orphans(&mut self) -> bool {
        for p in 0..self.processes.len() {
            let Process { seat, open, seen_changes: looked, .. } = &self.processes[p];
            if !self.has_killed() || !self.lives[p].is_alive.get() {
                continue;
            }
            let others = open.iter().filter_map(|open| open.depends_on);
            others.for_each(|other| self.session.table.resolve_orphan(other, seat));
            // A killed process may have resolved it without a poke.
            let has_news = self.session.table.changes() != *looked && !open.is_empty();
            self.lives[p].is_poked.set(has_news);
            if has_news && self.can_go_on(p) {
                return true;
            }
        }
        false
    }

    /// Records that an effect becomes visible: it must be right, and its causes must be visible.
    pub fn begin_effect(&mut self, p: usize, to: Option<usize>, bytes: &[u8]) {
        let effect = Effect { to, bytes: bytes.into() };
        let number = self.processes[p].effects.len();
        if !self.has_killed() {
            let right = self.courses[p].effects.get(number) == Some(&effect);
            self.must(right, "the output is wrong");
            let mut seen = self.processes.iter().map(|process| process.seen_effects);
            let after = self.courses[p].after.get(number);
            let is_after = after.is_none_or(|after| after.iter().all(|n| seen.next() >= Some(*n)));
            self.must(is_after, "an effect was seen before its causes");
        }
        self.processes[p].effects.push(effect);
    }

    /// Records that an effect is complete.
    pub fn end_effect(&mut self, p: usize) {
        self.processes[p].seen_effects += 1;
    }

    fn check_end(&mut self) {
        let all_ended = self.processes.iter().zip(self.lives.iter());
        let all_ended = all_ended.filter(|(process, _)| !process.has_ended).count();
        if all_ended as u64 > self.counts.killed {
            self.violations.insert(DEADLOCK);
            return;
        }
        // Bytes that a reader got from a killed writer.
        let limit = |(pipe, joint): (usize, &Joint)| {
            let reader = &self.processes[joint.reader].state;
            let inputs = &self.network.programs[joint.reader].inputs;
            let input = inputs.iter().position(|input| *input == pipe)?;
            let got = reader.used[input] + reader.inbox[input].len() as u64;
            (!self.processes[joint.writer].has_ended).then_some(got)
        };
        let limits: Vec<_> = self.network.pipes.iter().enumerate().map(limit).collect();
        if self.has_killed() {
            self.courses = model::run(&self.network, &limits);
        }
        for (process, course) in self.processes.iter().zip(&self.courses) {
            let is_right = match process.has_ended {
                true => process.effects == course.effects,
                false => course.effects.starts_with(&process.effects),
            };
            if !is_right {
                self.violations.insert("the final effects are wrong");
            }
        }
        if !self.has_killed() {
            let session = &self.session;
            let is_free = self.ids.iter().all(|id| session.table.is_free(*id));
            let is_left = session.tails.any_used() || session.files.any_held();
            self.must(is_free, "a speculation is left");
            self.must(!is_left, "a tail or held file is left");
            self.must(!self.session.tails.has_waiters(), "a waiter is left");
        }
    }
}
