//! The host: a machine whose processes go on with predictions, as the tracker allows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::history::{Step, slot};
use super::machine::{Inverse, Machine, Plan};
use super::program::{Op, Registers, Shape};
use super::runs::Counts;
use crate::ids::{CheckpointId, HeldId, ObjectId, ProcessId, SpecId, Thing, UndoId};
use crate::operation::{Access, Effect, Limits, Moment, Output, Refused, Return};
use crate::set::Set;
use crate::{Accessed, Tracker};

/// A prediction that is open.
pub(super) struct Prediction {
    pub process: ProcessId,
    /// The registers of the process when it asked.
    pub state: u64,
    pub right: bool,
}

/// A state of a process.
pub(super) struct Checkpoint {
    pub process: ProcessId,
    pub registers: Registers,
    /// After which steps it was taken, and at what time.
    pub at: u64,
    pub taken: Duration,
}

/// Something that was put out, or is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Printed {
    pub process: ProcessId,
    pub sink: u64,
    pub value: u64,
}

/// By what a broken rule is to be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// By all that must hold.
    Throughout,
    /// By what the world has come to in the end.
    AtTheEnd,
}

pub(super) struct Host {
    pub shape: Shape,
    pub random: fastrand::Rng,
    pub tracker: Tracker,
    pub machine: Machine,
    pub history: Vec<Step>,
    /// Steps and checkpoints so far.
    pub clock: u64,
    pub now: Duration,
    ids: u64,
    pub specs: BTreeMap<SpecId, Prediction>,
    pub failed: Set,
    pub checkpoints: BTreeMap<CheckpointId, Checkpoint>,
    pub undos: BTreeMap<UndoId, (Thing, Inverse)>,
    pub held: BTreeMap<HeldId, Printed>,
    pub released: BTreeSet<HeldId>,
    pub screen: Vec<Printed>,
    /// Processes that are said not to be taken back any more.
    pub gone: BTreeSet<ProcessId>,
    /// Answers that have come, by who asked, and from which state.
    pub known: BTreeSet<(ProcessId, u64)>,
    /// Of so many chances to depend on others' speculations, one is let go by.
    patience: u32,
    /// Signals wait until they are certain.
    pub certain_signals: bool,
    pub counts: Counts,
    pub look: Look,
    pub violations: BTreeSet<&'static str>,
}

/// What the tracker answered, and the checkpoint that was taken for it.
type Told<T> = Option<(T, Option<CheckpointId>)>;

impl Host {
    pub fn new(shape: Shape, mut random: fastrand::Rng, look: Look) -> Self {
        let open = [2, 5, 2_000][random.usize(..3)];
        Host {
            tracker: Tracker::new(Limits { open, ..Limits::default() }),
            machine: Machine::new(&shape),
            history: Vec::new(),
            clock: 0,
            now: Duration::ZERO,
            ids: 0,
            specs: BTreeMap::new(),
            failed: Set::default(),
            checkpoints: BTreeMap::new(),
            undos: BTreeMap::new(),
            held: BTreeMap::new(),
            released: BTreeSet::new(),
            screen: Vec::new(),
            gone: BTreeSet::new(),
            known: BTreeSet::new(),
            patience: random.u32(2..8),
            certain_signals: random.bool(),
            counts: Counts::default(),
            look,
            violations: BTreeSet::new(),
            shape,
            random,
        }
    }

    pub fn must(&mut self, holds: bool, what: &'static str) {
        if !holds && self.look == Look::Throughout {
            self.violations.insert(what);
        }
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Tells the tracker of an operation of `process`, with a checkpoint if it has to be, or by
    /// chance. None if the process has to wait, or the host has it wait.
    fn tell<T>(
        &mut self,
        process: ProcessId,
        patient: bool,
        tell: impl Fn(&mut Tracker, Moment) -> Result<T, Refused>,
    ) -> Told<T> {
        let moment = Moment::at(self.now);
        if self.random.u32(..12) > 0 {
            match tell(&mut self.tracker, moment) {
                Ok(told) => return Some((told, None)),
                Err(Refused::NeedsCheckpoint(other)) if other == process => {}
                Err(Refused::TooMany(_)) => return None,
                Err(_) => {
                    self.must(false, "a process was refused what it may do");
                    return None;
                }
            }
            if patient && self.random.u32(..self.patience) == 0 {
                self.counts.waits += 1;
                return None;
            }
        }
        let checkpoint = CheckpointId(self.id());
        match tell(&mut self.tracker, moment.with(checkpoint)) {
            Ok(told) => Some((told, Some(checkpoint))),
            Err(Refused::TooMany(_)) => None,
            Err(_) => {
                self.must(false, "a process was refused what it may do");
                None
            }
        }
    }

    /// What the process will be taken back to.
    fn keep(&mut self, process: ProcessId, back: Return, own: Option<CheckpointId>) {
        match back {
            Return::Unneeded => {}
            Return::Own(id) => {
                self.must(own == Some(id), "another checkpoint was used than was taken");
                let registers = self.machine.processes[&process].registers.clone();
                let (at, taken) = (self.clock, self.now);
                self.checkpoints.insert(id, Checkpoint { process, registers, at, taken });
            }
            Return::Shared(id) => {
                let now = self.now;
                let young = self.checkpoints.get(&id).is_some_and(|checkpoint| {
                    let fresh = now - checkpoint.taken < Limits::default().share;
                    checkpoint.process == process && fresh
                });
                self.must(young, "a checkpoint was shared that is old, or not there");
                self.counts.shared += 1;
            }
        }
    }

    /// `process` makes a step, or has the signal delivered. Whether it could.
    pub fn step(&mut self, process: ProcessId, deliver: Option<ObjectId>) -> bool {
        let op = deliver.map(Op::Deliver);
        let Some(plan) = self.machine.plan(process, &self.shape, op) else { return false };
        let state = self.machine.processes[&process].registers.state;
        let mut answer = self.shape.truth(process, state);
        let (mut spec, mut held, mut undos) = (None, None, Vec::new());
        match plan.op {
            Op::Sync if self.tracker.is_speculative(process) => return false,
            Op::Sync => {}
            Op::Predict(_) if self.known.contains(&(process, state)) => {}
            Op::Predict(effect) => match self.predict(process, state, effect) {
                None => return false,
                Some((created, predicted)) => (spec, answer) = (Some(created), predicted),
            },
            Op::Print(sink) => held = Some(self.print(process, sink, state)),
            Op::Wait(child) => {
                let undo = UndoId(self.id());
                let told = self.tell(process, true, |t, now| t.wait(process, child, undo, now));
                let Some((Accessed { back, kept }, own)) = told else { return false };
                self.keep(process, back, own);
                if kept {
                    self.undos.insert(undo, (child.into(), Inverse::WaitAgain));
                }
            }
            Op::Fork => {
                let child = plan.child.expect("it is planned");
                let told = self.tracker.fork(process, child);
                self.must(told.is_ok(), "a process was refused what it may do");
            }
            _ => match self.access(process, &plan) {
                None => return false,
                Some(kept) => undos = kept,
            },
        }
        let Some(inverses) = self.machine.perform(process, &plan, answer) else {
            self.must(false, "something was there that was to be made");
            return false;
        };
        let removes = std::iter::repeat(Inverse::Remove);
        for ((undo, object), inverse) in undos.into_iter().zip(inverses.into_iter().chain(removes))
        {
            self.undos.insert(undo, (object.into(), inverse));
        }
        if plan.op == Op::Exit {
            self.exit(process);
        }
        self.clock += 1;
        let after = self.machine.processes[&process].registers.state;
        self.history.push(Step { at: self.clock, process, plan, spec, held, after });
        self.check();
        true
    }

    /// `process` goes on with a prediction: its name, and what it says.
    fn predict(&mut self, process: ProcessId, state: u64, effect: Effect) -> Option<(SpecId, u64)> {
        let told = self.tell(process, false, |t, now| t.create(process, effect, now));
        let (created, own) = told?;
        let taints = self.taints().get(process.into());
        let after: Vec<_> =
            self.specs.keys().filter(|id| taints.contains(slot(**id))).copied().collect();
        self.must(created.after == after, "a speculation depends on others than its process");
        self.keep(process, created.back, own);
        let truth = self.shape.truth(process, state);
        let predicted = if self.random.u32(..3) == 0 { truth + 1 } else { truth };
        let right = predicted == truth;
        self.specs.insert(created.spec, Prediction { process, state, right });
        Some((created.spec, predicted))
    }

    fn print(&mut self, process: ProcessId, sink: u64, value: u64) -> HeldId {
        let held = HeldId(self.id());
        let printed = Printed { process, sink, value };
        match self.tracker.output(process, held) {
            Ok(Output::Held) => _ = self.held.insert(held, printed),
            Ok(Output::Now) => {
                self.screen.push(printed);
                self.released.insert(held);
            }
            Err(_) => self.must(false, "a process was refused what it may do"),
        }
        held
    }

    /// The process does with objects what is planned. The changes that may be undone; none if it
    /// has to wait.
    fn access(&mut self, process: ProcessId, plan: &Plan) -> Option<Vec<(UndoId, ObjectId)>> {
        let mut with_id = |object: &ObjectId| (*object, UndoId(self.id()));
        let changes: Vec<_> = plan.changes.iter().map(&mut with_id).collect();
        let makes: Vec<_> = plan.makes.iter().map(&mut with_id).collect();
        let access = Access { observes: &plan.observes, changes: &changes, makes: &makes };
        let told = self.tell(process, true, |t, now| t.access(process, access, now));
        let (Accessed { back, kept }, own) = told?;
        self.keep(process, back, own);
        let all = changes.iter().chain(&makes).filter(|_| kept);
        Some(all.map(|&(object, undo)| (undo, object)).collect())
    }

    fn exit(&mut self, process: ProcessId) {
        match self.tracker.exit(process) {
            Ok(true) => _ = self.gone.insert(process),
            Ok(false) => self.counts.exits += 1,
            Err(_) => self.must(false, "a process was refused what it may do"),
        }
    }
}
