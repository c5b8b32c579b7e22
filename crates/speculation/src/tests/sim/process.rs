//! Execution of a process's operations: what an agent does with calls.

use std::collections::VecDeque;
use std::vec::Vec;

use super::model::Effect;
use super::program::{Operation, State};
use super::simulated_world::{Plant, Prediction, SimHost, World, pipe};
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
    pub shared: Option<Id>,
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
pub(super) enum Activity {
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
    RollsBack(Rollback),
}

/// Progress of a commit.
#[derive(Debug)]
pub(super) struct Commit {
    pub count: usize,
    pub failed: Option<usize>,
    pub at: CommitStage,
    /// Speculations whose dependents may commit, and are poked before a write that may take long.
    pub to_poke: Vec<Id>,
}

#[derive(Debug)]
pub(super) enum CommitStage {
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
pub(super) struct Rollback {
    pub to: usize,
    pub at: RollbackStage,
}

#[derive(Debug)]
pub(super) enum RollbackStage {
    Says(usize),
    Drops,
    Closes(usize),
}

pub(super) struct Process {
    pub seat: SimHost,
    pub state: State,
    pub open: Vec<Open>,
    pub held: VecDeque<Held>,
    /// Position of the first held call.
    pub first_held: u64,
    /// Number of held calls to pipes that are not shared.
    pub unshared: u32,
    pub doing: Activity,
    pub sleep: Sleep,
    /// Change count of the table when the process last looked.
    pub seen_changes: u32,
    pub has_ended: bool,
    /// Effects so far, and how many of them are complete.
    pub effects: Vec<Effect>,
    pub seen_effects: usize,
}

impl Process {
    pub fn new(seat: SimHost, state: State) -> Self {
        Process {
            seat,
            state,
            open: Vec::new(),
            held: VecDeque::new(),
            first_held: 0,
            unshared: 0,
            doing: Activity::Runs,
            sleep: Sleep::Not,
            seen_changes: 0,
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
            Activity::Runs => self.next_operation(p),
            Activity::Writes(effect, done) => self.write_effect(p, effect, done),
            Activity::Depends(input, id) => self.depend(p, input, id),
            Activity::Reads(input) => self.read_pipe(p, input),
            Activity::Commits(commit) => self.commit_step(p, commit),
            Activity::RollsBack(back) => self.rollback_step(p, back),
        }
    }

    fn next_operation(&mut self, p: usize) {
        let seat = self.processes[p].seat.clone();
        seat.life(seat.this.process).is_poked.set(false);
        if self.apply_outcomes(p) {
            return;
        }
        let is_speculative = !self.processes[p].open.is_empty();
        let state = &self.processes[p].state;
        let operation = state.next(&self.network.programs[p]);
        match operation {
            Operation::Compute => self.processes[p].state.done(),
            Operation::Ask => self.answer_question(p),
            Operation::Line => {
                let effect = Effect { to: None, bytes: state.bytes(8) };
                self.put_out(p, effect);
            }
            Operation::Write(pipe, len) => {
                let effect = Effect { to: Some(pipe), bytes: state.bytes(len) };
                self.put_out(p, effect);
            }
            Operation::Read(input, len) if state.has(input, len) => {
                self.processes[p].state.look_at(input, len);
            }
            Operation::Read(input, _) if is_speculative => self.read_speculative(p, input),
            Operation::Read(input, _) => self.before_read(p, input),
            Operation::End if is_speculative => self.wait_until_none_open(p),
            Operation::End => {
                self.processes[p].has_ended = true;
                self.session.tails.remove_waiter(&seat);
                self.end_process(p);
            }
        }
    }

    fn answer_question(&mut self, p: usize) {
        let predicts = self.odds[0];
        let truth = self.processes[p].state.truth();
        if self.processes[p].open.len() >= DEPTH || !self.chance(predicts) {
            self.processes[p].state.answered(truth);
            return;
        }
        let is_right = self.chance(self.odds[1]);
        let guess = if is_right { truth } else { truth ^ 1 };
        if let Some(id) = self.open_speculation(p) {
            self.counts.predicted += 1;
            self.predictions.push(Prediction { id, is_right, truth });
            self.push_checkpoint(p, id, truth, None);
            self.processes[p].state.answered(guess);
        }
    }

    /// Opens a speculation of the process.
    pub fn open_speculation(&mut self, p: usize) -> Option<Id> {
        let seat = &self.processes[p].seat;
        let table = &self.session.table;
        let id = table.open(seat.this, 0, |other| crate::Host::is_alive(seat, other));
        self.ids.extend(id);
        id
    }

    /// Makes the present state the one that a rollback restores.
    pub fn push_checkpoint(&mut self, p: usize, id: Id, truth: u64, depends_on: Option<Id>) {
        self.session.table.assign_order(id);
        let process = &mut self.processes[p];
        let (before, held) = (process.state.clone(), process.held_end());
        process.open.push(Open { id, truth, depends_on, before, held });
    }

    fn put_out(&mut self, p: usize, effect: Effect) {
        if self.processes[p].open.is_empty() {
            self.begin_effect(p, effect.to, &effect.bytes);
            self.processes[p].doing = Activity::Writes(effect, 0);
            return;
        }
        let held = self.processes[p].held_end();
        let process = &self.processes[p];
        let last = process.open.last().map(|open| open.id);
        let may_show = process.unshared == 0 || self.has(Plant::SharesAfterUnshared);
        // A program can also ask that no reader sees the data early.
        let may_show = may_show && self.random.u32(..16) > 0;
        let show = |to: usize, id| {
            let (one, other) = effect.bytes.split_at(effect.bytes.len() / 3);
            let tails = &self.session.tails;
            tails.write(pipe(to), id, held, &[one, other], &process.seat).is_ok()
        };
        let shown = last.filter(|id| effect.to.is_some_and(|to| may_show && show(to, *id)));
        let is_unseen = effect.to.is_some() && shown.is_none();
        self.counts.unshared += u64::from(is_unseen);
        if effect.to.is_none() {
            self.session.files.hold(p as u64, 0);
        }
        let process = &mut self.processes[p];
        process.unshared += u32::from(is_unseen);
        process.held.push_back(Held { effect, shared: shown });
        process.state.done();
        self.request_pokes(p);
    }

    /// Requests pokes for all open speculations.
    fn request_pokes(&self, p: usize) {
        self.processes[p].open.iter().for_each(|open| self.session.table.request_poke(open.id));
    }

    /// Waits until no speculation is open.
    pub fn wait_until_none_open(&mut self, p: usize) {
        self.request_pokes(p);
        if !self.apply_outcomes(p) {
            self.processes[p].sleep = Sleep::UntilPoked;
        }
    }

    fn write_effect(&mut self, p: usize, effect: Effect, done: usize) {
        let done = done + self.write_channel(effect.to, &effect.bytes[done..]);
        if done < effect.bytes.len() {
            self.counts.blocked += 1;
            self.processes[p].sleep = effect.to.map_or(Sleep::Not, Sleep::UntilRoom);
            self.processes[p].doing = Activity::Writes(effect, done);
            return;
        }
        self.end_effect(p);
        self.processes[p].state.done();
    }

    /// Writes as much as there is room for.
    pub fn write_channel(&mut self, to: Option<usize>, bytes: &[u8]) -> usize {
        let Some(pipe) = to else { return bytes.len() };
        let channel = &mut self.channels[pipe];
        let len = bytes.len().min(channel.room());
        if !channel.is_broken {
            channel.bytes.extend(&bytes[..len]);
        }
        len
    }

    /// Starts a commit or rollback if known outcomes allow it. Returns true if so.
    fn apply_outcomes(&mut self, p: usize) -> bool {
        let settled = self.session.table.changes();
        let process = &mut self.processes[p];
        if process.open.is_empty() || process.seen_changes == settled {
            return false;
        }
        process.seen_changes = settled;
        let (count, failed) = self.outcomes(p);
        let is_late = self.has(Plant::PokesReadersOnly);
        let process = &mut self.processes[p];
        process.doing = match (count, failed) {
            (0, None) => return false,
            (0, Some(to)) => Activity::RollsBack(Rollback { to, at: RollbackStage::Says(to) }),
            _ => {
                // A dependent that has read nothing of it need not wait for a write.
                let ids = process.open[..count].iter().map(|open| open.id);
                let passed = if is_late { Vec::new() } else { ids.collect() };
                Activity::Commits(Commit {
                    count,
                    failed,
                    at: CommitStage::Says(0),
                    to_poke: passed,
                })
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
        self.counts.early_commits += passed.count() as u64;
        let has_failed = |status: &Status| matches!(status, Status::Failed | Status::Gone);
        let failed = status.iter().skip(count).position(has_failed).map(|n| n + count);
        (count, failed)
    }

    fn status(&self, p: usize, open: &Open) -> Status {
        let (table, tails) = (&self.session.table, &self.session.tails);
        let Some(other) = open.depends_on else { return table.status(open.id) };
        let has_passed = || {
            self.has(Plant::CommitsBeforeRelease)
                || !self.has(Plant::CommitsOnlyAtEndOfRelease)
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
