//! Execution of a process's operations: what an agent does with calls.

use std::collections::VecDeque;
use std::vec::Vec;

use super::model::Effect;
use super::program::{Operation, State};
use super::world::{Plant, Question, Seat, World, pipe};
use crate::{Id, Resolution, Status};

/// Limit of open predictions in a process.
const DEPTH: usize = 16;

/// An open speculation, and the state of the process before it.
pub(super) struct Open {
    pub id: Id,
    /// Right answer, for a prediction of the process itself.
    pub truth: u64,
    pub depends_on: Option<Id>,
    pub before: State,
    /// Position of the first call that is held for it.
    pub held: u64,
}

/// A held call.
#[derive(Clone)]
pub(super) struct Held {
    pub effect: Effect,
    /// Speculation by which readers can have its data early.
    pub shown: Option<Id>,
}

/// Condition that a process waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sleep {
    Not,
    UntilPoked,
    /// This pipe has data, or never will.
    UntilFilled(usize),
    UntilRoom(usize),
}

/// Activity that the process is in the middle of.
#[derive(Debug, Default)]
pub(super) enum Doing {
    /// Its program's next operation.
    #[default]
    Runs,
    /// Write of an effect outside of speculation, with the bytes written so far.
    Writes(Effect, usize),
    /// Dependency on this speculation, to read from this input.
    Depends(usize, Id),
    /// Read from the pipe itself.
    Reads(usize),
    /// Commit of the `count` oldest; then rollback to `failed`.
    Commits(Commit),
    /// Rollback to this position.
    GoesBack(Back),
}

/// Progress of a commit.
#[derive(Debug)]
pub(super) struct Commit {
    pub count: usize,
    pub failed: Option<usize>,
    pub at: Stage,
    /// Speculations whose dependents may commit, and are poked before a write that may take long.
    pub passed: Vec<Id>,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Number that were resolved as committing.
    Says(usize),
    Releases,
    /// Bytes written of the first held call.
    Writes(usize),
    /// Number that were closed.
    Closes(usize),
}

/// Progress of a rollback.
#[derive(Debug)]
pub(super) struct Back {
    pub to: usize,
    pub at: BackStage,
}

#[derive(Debug)]
pub(super) enum BackStage {
    Says(usize),
    Drops,
    Closes(usize),
}

pub(super) struct Process {
    pub seat: Seat,
    pub state: State,
    pub open: Vec<Open>,
    pub held: VecDeque<Held>,
    /// Position of the first held call.
    pub first_held: u64,
    /// Number of held calls to pipes that are not shared.
    pub unseen: u32,
    pub doing: Doing,
    pub sleep: Sleep,
    /// Change count of the table when the process last looked.
    pub looked: u32,
    pub has_ended: bool,
    /// Effects so far, and how many of them are complete.
    pub effects: Vec<Effect>,
    pub seen_effects: usize,
}

impl Process {
    pub fn new(seat: Seat, state: State) -> Self {
        Process {
            seat,
            state,
            open: Vec::new(),
            held: VecDeque::new(),
            first_held: 0,
            unseen: 0,
            doing: Doing::Runs,
            sleep: Sleep::Not,
            looked: 0,
            has_ended: false,
            effects: Vec::new(),
            seen_effects: 0,
        }
    }

    pub fn held_end(&self) -> u64 {
        self.first_held + self.held.len() as u64
    }
}

impl World {
    /// Runs one small step of the process.
    pub fn step(&mut self, p: usize) {
        self.processes[p].sleep = Sleep::Not;
        match core::mem::take(&mut self.processes[p].doing) {
            Doing::Runs => self.runs(p),
            Doing::Writes(effect, done) => self.writes(p, effect, done),
            Doing::Depends(input, id) => self.depends(p, input, id),
            Doing::Reads(input) => self.reads_itself(p, input),
            Doing::Commits(commit) => self.commits(p, commit),
            Doing::GoesBack(back) => self.goes_back(p, back),
        }
    }

    fn runs(&mut self, p: usize) {
        let seat = self.processes[p].seat.clone();
        seat.life(seat.this.process).is_poked.set(false);
        if self.looks(p) {
            return;
        }
        let is_speculative = !self.processes[p].open.is_empty();
        let state = &self.processes[p].state;
        let operation = state.next(&self.network.programs[p]);
        match operation {
            Operation::Compute => self.processes[p].state.done(),
            Operation::Ask => self.asks(p),
            Operation::Line => {
                let effect = Effect { to: None, bytes: state.bytes(8) };
                self.puts_out(p, effect);
            }
            Operation::Write(pipe, len) => {
                let effect = Effect { to: Some(pipe), bytes: state.bytes(len) };
                self.puts_out(p, effect);
            }
            Operation::Read(input, len) if state.has(input, len) => {
                self.processes[p].state.look_at(input, len);
            }
            Operation::Read(input, _) if is_speculative => self.reads(p, input),
            Operation::Read(input, _) => self.comes_to_read(p, input),
            Operation::End if is_speculative => self.waits(p),
            Operation::End => {
                self.processes[p].has_ended = true;
                self.session.tails.remove_waiter(&seat);
                self.goes(p);
            }
        }
    }

    fn asks(&mut self, p: usize) {
        let predicts = self.odds[0];
        let truth = self.processes[p].state.truth();
        if self.processes[p].open.len() >= DEPTH || !self.chance(predicts) {
            self.processes[p].state.answered(truth);
            return;
        }
        let is_right = self.chance(self.odds[1]);
        let guess = if is_right { truth } else { truth ^ 1 };
        if let Some(id) = self.opens(p) {
            self.counts.predicted += 1;
            self.questions.push(Question { id, is_right, truth });
            self.pushes(p, id, truth, None);
            self.processes[p].state.answered(guess);
        }
    }

    /// Opens a speculation of the process.
    pub fn opens(&mut self, p: usize) -> Option<Id> {
        let seat = &self.processes[p].seat;
        let table = &self.session.table;
        let id = table.open(seat.this, 0, |other| crate::Host::is_alive(seat, other));
        self.ids.extend(id);
        id
    }

    /// Makes the present state the one that a rollback restores.
    pub fn pushes(&mut self, p: usize, id: Id, truth: u64, depends_on: Option<Id>) {
        self.session.table.assign_order(id);
        let process = &mut self.processes[p];
        let (before, held) = (process.state.clone(), process.held_end());
        process.open.push(Open { id, truth, depends_on, before, held });
    }

    fn puts_out(&mut self, p: usize, effect: Effect) {
        if self.processes[p].open.is_empty() {
            self.begins(p, effect.to, &effect.bytes);
            self.processes[p].doing = Doing::Writes(effect, 0);
            return;
        }
        let held = self.processes[p].held_end();
        let process = &self.processes[p];
        let last = process.open.last().map(|open| open.id);
        let may_show = process.unseen == 0 || self.has(Plant::ShowsBehindUnseen);
        // A program can also ask that no reader sees the data early.
        let may_show = may_show && self.random.u32(..16) > 0;
        let show = |to: usize, id| {
            let (one, other) = effect.bytes.split_at(effect.bytes.len() / 3);
            let tails = &self.session.tails;
            tails.write(pipe(to), id, held, &[one, other], &process.seat).is_ok()
        };
        let shown = last.filter(|id| effect.to.is_some_and(|to| may_show && show(to, *id)));
        let is_unseen = effect.to.is_some() && shown.is_none();
        self.counts.unseen += u64::from(is_unseen);
        if effect.to.is_none() {
            self.session.files.hold(p as u64, 0);
        }
        let process = &mut self.processes[p];
        process.unseen += u32::from(is_unseen);
        process.held.push_back(Held { effect, shown });
        process.state.done();
        self.wants_all(p);
    }

    /// Requests pokes for all open speculations.
    fn wants_all(&self, p: usize) {
        self.processes[p].open.iter().for_each(|open| self.session.table.request_poke(open.id));
    }

    /// Waits until no speculation is open.
    pub fn waits(&mut self, p: usize) {
        self.wants_all(p);
        if !self.looks(p) {
            self.processes[p].sleep = Sleep::UntilPoked;
        }
    }

    fn writes(&mut self, p: usize, effect: Effect, done: usize) {
        let done = done + self.puts(effect.to, &effect.bytes[done..]);
        if done < effect.bytes.len() {
            self.counts.blocked += 1;
            self.processes[p].sleep = effect.to.map_or(Sleep::Not, Sleep::UntilRoom);
            self.processes[p].doing = Doing::Writes(effect, done);
            return;
        }
        self.ends(p);
        self.processes[p].state.done();
    }

    /// Writes as much as there is room for.
    pub fn puts(&mut self, to: Option<usize>, bytes: &[u8]) -> usize {
        let Some(pipe) = to else { return bytes.len() };
        let channel = &mut self.channels[pipe];
        let len = bytes.len().min(channel.room());
        if !channel.is_broken {
            channel.bytes.extend(&bytes[..len]);
        }
        len
    }

    /// Starts a commit or rollback if known outcomes allow it. Returns true if so.
    fn looks(&mut self, p: usize) -> bool {
        let settled = self.session.table.changes();
        let process = &mut self.processes[p];
        if process.open.is_empty() || process.looked == settled {
            return false;
        }
        process.looked = settled;
        let (count, failed) = self.outcomes(p);
        let is_late = self.has(Plant::TellsReadersOnly);
        let process = &mut self.processes[p];
        process.doing = match (count, failed) {
            (0, None) => return false,
            (0, Some(to)) => Doing::GoesBack(Back { to, at: BackStage::Says(to) }),
            _ => {
                // A dependent that has read nothing of it need not wait for a write.
                let ids = process.open[..count].iter().map(|open| open.id);
                let passed = if is_late { Vec::new() } else { ids.collect() };
                Doing::Commits(Commit { count, failed, at: Stage::Says(0), passed })
            }
        };
        true
    }

    /// Returns how many of the oldest are committed, and the oldest of all that has failed.
    fn outcomes(&mut self, p: usize) -> (usize, Option<usize>) {
        let status: Vec<_> =
            self.processes[p].open.iter().map(|open| self.status(p, open)).collect();
        let is_committed = |status: &&Status| **status == Status::Committed;
        let mut count = status.iter().take_while(is_committed).count();
        if self.has(Plant::CommitsOutOfOrder) && status.iter().any(|s| is_committed(&s)) {
            count = 1 + status.iter().rposition(|s| is_committed(&s)).unwrap_or(0);
        }
        let others = self.processes[p].open.iter().take(count).filter_map(|open| open.depends_on);
        let passed =
            others.filter(|other| self.session.table.resolution(*other) == Resolution::Committing);
        self.counts.passed += passed.count() as u64;
        let has_failed = |status: &Status| matches!(status, Status::Failed | Status::Gone);
        let failed = status.iter().skip(count).position(has_failed).map(|n| n + count);
        (count, failed)
    }

    fn status(&self, p: usize, open: &Open) -> Status {
        let (table, tails) = (&self.session.table, &self.session.tails);
        let Some(other) = open.depends_on else { return table.status(open.id) };
        let has_passed = || {
            self.has(Plant::PassesAtOnce)
                || !self.has(Plant::NeverPasses)
                    && tails.read_output_is_released(other, table, &self.processes[p].seat)
        };
        match table.resolution(other) {
            Resolution::Committed => Status::Committed,
            Resolution::Committing if has_passed() => Status::Committed,
            Resolution::Pending | Resolution::Committing => Status::Open,
            Resolution::RolledBack => Status::Failed,
        }
    }
}
