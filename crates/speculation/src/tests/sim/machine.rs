//! Processes and objects as they are: no speculation, no tracker. The host of the simulation has
//! one, and so has the model.

use std::collections::{BTreeMap, VecDeque};

use super::program::{Op, Registers, Shape, mix};
use crate::ids::{ObjectId, ProcessId, Thing};

/// How far a process has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Runs,
    Exited(u64),
    /// Its parent has waited for it.
    Reaped(u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Process {
    pub registers: Registers,
    pub life: Life,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Object {
    File(u64),
    Pipe(VecDeque<u64>),
    Signal { to: ProcessId, value: u64, delivered: bool },
}

/// What undoes a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Inverse {
    Write(u64),
    PutBack(u64),
    TakeBack,
    Remove,
    Redeliver,
    WaitAgain,
}

/// An operation that can be performed now, and all that it has to do with.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub op: Op,
    pub observes: Vec<Thing>,
    pub changes: Vec<ObjectId>,
    pub makes: Vec<ObjectId>,
    /// The child that it forks.
    pub child: Option<ProcessId>,
    /// The child that it waits for.
    pub waits: Option<ProcessId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Machine {
    pub processes: BTreeMap<ProcessId, Process>,
    pub objects: BTreeMap<ObjectId, Object>,
}

impl Machine {
    pub fn new(shape: &Shape) -> Self {
        let process = |n| {
            let registers = Registers::first(shape.seed, ProcessId(n));
            (ProcessId(n), Process { registers, life: Life::Runs })
        };
        let files = (0..shape.files).map(|n| (shape.file(n), Object::File(0)));
        let pipes = (0..shape.pipes).map(|n| (shape.pipe(n), Object::Pipe(VecDeque::new())));
        Machine {
            processes: (0..shape.processes).map(process).collect(),
            objects: files.chain(pipes).collect(),
        }
    }

    /// The registers of a process that runs.
    pub fn runs(&self, process: ProcessId) -> Option<&Registers> {
        let process = self.processes.get(&process)?;
        (process.life == Life::Runs).then_some(&process.registers)
    }

    /// What `process` does next, or `op` if that is given; none if it has to wait, or is not there.
    pub fn plan(&self, process: ProcessId, shape: &Shape, op: Option<Op>) -> Option<Plan> {
        let registers = self.runs(process)?;
        let op = op.unwrap_or_else(|| registers.next(shape));
        let name = registers.name(process);
        let (mut observes, mut changes, mut makes) = (vec![], vec![], vec![]);
        let (mut child, mut waits) = (None, None);
        match op {
            Op::Predict(_) | Op::Print(_) | Op::Sync => {}
            Op::Read(file) => observes.push(file.into()),
            Op::Peek(other) => observes.push(other.into()),
            Op::Write(object) | Op::Put(object) => changes.push(object),
            Op::Swap(one, other) => changes.extend([one, other]),
            Op::Take(pipe) if self.is_empty(pipe)? => return None,
            Op::TryTake(pipe) if self.is_empty(pipe)? => observes.push(pipe.into()),
            Op::Take(pipe) | Op::TryTake(pipe) => changes.push(pipe),
            Op::Make => makes.push(ObjectId(name)),
            Op::Fork => child = Some(ProcessId(name)),
            Op::Wait(other) => match self.processes.get(&other)?.life {
                Life::Exited(_) => waits = Some(other),
                _ => return None,
            },
            Op::Signal(to) => {
                observes.push(to.into());
                if self.runs(to).is_some() {
                    makes.push(ObjectId(name));
                }
            }
            Op::Exit => makes.extend(registers.parent.map(|_| ObjectId(name))),
            Op::Deliver(signal) => match self.objects.get(&signal)? {
                Object::Signal { to, delivered: false, .. } if *to == process => {
                    changes.push(signal);
                }
                _ => return None,
            },
        }
        Some(Plan { op, observes, changes, makes, child, waits })
    }

    fn is_empty(&self, pipe: ObjectId) -> Option<bool> {
        match self.objects.get(&pipe)? {
            Object::Pipe(data) => Some(data.is_empty()),
            _ => None,
        }
    }

    /// Performs what is planned, `answer` being what is asked for. What undoes the changes, in the
    /// order of `plan.changes`; none if something is not as it was when that was planned.
    pub fn perform(
        &mut self,
        process: ProcessId,
        plan: &Plan,
        answer: u64,
    ) -> Option<Vec<Inverse>> {
        let mut registers = self.runs(process)?.clone();
        let (state, mut inverses) = (registers.state, Vec::new());
        let mut life = Life::Runs;
        let value = match plan.op {
            Op::Predict(_) => answer,
            Op::Print(_) | Op::Sync => 1,
            Op::Read(file) => self.file(file)?,
            Op::Peek(other) => self.processes.get(&other)?.registers.state,
            Op::Write(file) => {
                let old = self.file(file)?;
                self.objects.insert(file, Object::File(mix(old, state)));
                inverses.push(Inverse::Write(old));
                old
            }
            Op::Swap(one, other) => {
                let (a, b) = (self.file(one)?, self.file(other)?);
                self.objects.extend([(one, Object::File(b)), (other, Object::File(a))]);
                inverses.extend([Inverse::Write(a), Inverse::Write(b)]);
                mix(a, b)
            }
            Op::TryTake(_) if plan.changes.is_empty() => 0,
            Op::Take(pipe) | Op::TryTake(pipe) => {
                let value = self.pipe(pipe)?.pop_front()?;
                inverses.push(Inverse::PutBack(value));
                value
            }
            Op::Put(pipe) => {
                self.pipe(pipe)?.push_back(state);
                inverses.push(Inverse::TakeBack);
                self.pipe(pipe)?.len() as u64
            }
            Op::Make => {
                let [file] = plan.makes[..] else { return None };
                registers.own.push(file);
                self.make(file, Object::File(state))?
            }
            Op::Fork => {
                let child = plan.child?;
                let forked = registers.forked(process, child);
                registers.children.push(child);
                let there = Process { registers: forked, life: Life::Runs };
                self.processes.insert(child, there).is_none().then_some(child.0)?
            }
            Op::Wait(child) => {
                registers.children.pop();
                let child = self.processes.get_mut(&child)?;
                let Life::Exited(status) = child.life else { return None };
                child.life = Life::Reaped(status);
                status
            }
            Op::Signal(to) => match plan.makes[..] {
                [] => 0,
                [signal, ..] => {
                    self.make(signal, Object::Signal { to, value: state, delivered: false })?
                }
            },
            Op::Exit => {
                life = Life::Exited(state);
                if let (Some(to), [signal]) = (registers.parent, &plan.makes[..]) {
                    self.make(*signal, Object::Signal { to, value: state, delivered: false })?;
                }
                1
            }
            Op::Deliver(signal) => match self.objects.get_mut(&signal)? {
                Object::Signal { delivered, value, .. } => {
                    *delivered = true;
                    inverses.push(Inverse::Redeliver);
                    *value
                }
                _ => return None,
            },
        };
        registers.learn(value);
        registers.steps += u64::from(!matches!(plan.op, Op::Deliver(_)));
        registers.named += u64::from(plan.makes.len() + plan.child.iter().len() > 0);
        self.processes.insert(process, Process { registers, life });
        Some(inverses)
    }

    fn file(&self, file: ObjectId) -> Option<u64> {
        match self.objects.get(&file)? {
            Object::File(value) => Some(*value),
            _ => None,
        }
    }

    fn pipe(&mut self, pipe: ObjectId) -> Option<&mut VecDeque<u64>> {
        match self.objects.get_mut(&pipe)? {
            Object::Pipe(data) => Some(data),
            _ => None,
        }
    }

    fn make(&mut self, id: ObjectId, object: Object) -> Option<u64> {
        self.objects.insert(id, object).is_none().then_some(2)
    }

    /// Undoes a change; none if that is not possible.
    pub fn undo(&mut self, thing: Thing, inverse: Inverse) -> Option<()> {
        match thing {
            Thing::Process(process) => {
                let process = self.processes.get_mut(&process)?;
                let Life::Reaped(status) = process.life else { return None };
                process.life = Life::Exited(status);
            }
            Thing::Object(id) => match (self.objects.get_mut(&id)?, inverse) {
                (_, Inverse::Remove) => _ = self.objects.remove(&id),
                (Object::File(value), Inverse::Write(old)) => *value = old,
                (Object::Pipe(data), Inverse::PutBack(value)) => data.push_front(value),
                (Object::Pipe(data), Inverse::TakeBack) => _ = data.pop_back()?,
                (Object::Signal { delivered, .. }, Inverse::Redeliver) => *delivered = false,
                _ => return None,
            },
        }
        Some(())
    }
}
