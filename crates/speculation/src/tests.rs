//! The paper's rules, one by one. Each section of tests has a host that keeps nothing but names.

use std::time::Duration;

use crate::{
    Access, Accessed, Action, CheckpointId, Effect, HeldId, Limits, Moment, ObjectId, ProcessId,
    Refused, Return, SpecId, Thing, Tracker, UndoId,
};

mod output;
mod processes;
mod propagation;
mod sharing;
mod sim;

const P: ProcessId = ProcessId(8000);
const Q: ProcessId = ProcessId(8001);
const R: ProcessId = ProcessId(8002);
const FILE: ObjectId = ObjectId(3556);
const PIPE: ObjectId = ObjectId(7);

/// A host that takes a checkpoint whenever it has to, and numbers all it is asked for.
struct Host {
    tracker: Tracker,
    now: Duration,
    numbers: u64,
}

fn host() -> Host {
    Host { tracker: Tracker::new(Limits::default()), now: Duration::ZERO, numbers: 0 }
}

impl Host {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn after(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    /// What is told, with a checkpoint if it needs one.
    fn tell<T>(&mut self, tell: impl Fn(&mut Tracker, Moment) -> Result<T, Refused>) -> T {
        let moment = Moment::at(self.now);
        match tell(&mut self.tracker, moment) {
            Err(Refused::NeedsCheckpoint(_)) => {
                let checkpoint = CheckpointId(self.number());
                tell(&mut self.tracker, moment.with(checkpoint))
            }
            told => told,
        }
        .expect("it is not refused")
    }

    fn create(&mut self, process: ProcessId) -> (SpecId, CheckpointId) {
        let created = self.tell(|t, now| t.create(process, Effect::ReadOnly, now));
        (created.spec, checkpoint(created.back).expect("it has one"))
    }

    fn observe(&mut self, process: ProcessId, thing: impl Into<Thing>) -> Option<CheckpointId> {
        let thing = thing.into();
        checkpoint(self.tell(|t, now| t.observe(process, thing, now)))
    }

    fn change(&mut self, process: ProcessId, object: ObjectId) -> (UndoId, Option<CheckpointId>) {
        let undo = UndoId(self.number());
        let access = Access { changes: &[(object, undo)], ..Access::default() };
        let Accessed { back, .. } = self.tell(|t, now| t.access(process, access, now));
        (undo, checkpoint(back))
    }

    fn wait(&mut self, parent: ProcessId, child: ProcessId) -> (UndoId, Option<CheckpointId>) {
        let undo = UndoId(self.number());
        let Accessed { back, .. } = self.tell(|t, now| t.wait(parent, child, undo, now));
        (undo, checkpoint(back))
    }

    fn commit(&mut self, spec: SpecId) -> Vec<Action> {
        self.tracker.commit(spec).expect("it is open")
    }

    fn fail(&mut self, spec: SpecId) -> Vec<Action> {
        self.tracker.fail(spec).expect("it is open")
    }

    fn depends(&self, thing: impl Into<Thing>) -> Vec<SpecId> {
        self.tracker.dependencies(thing)
    }
}

fn checkpoint(back: Return) -> Option<CheckpointId> {
    match back {
        Return::Unneeded => None,
        Return::Own(id) | Return::Shared(id) => Some(id),
    }
}
