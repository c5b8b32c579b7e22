//! The host: predictions come true or not, and what the tracker says is carried out. What must
//! hold after each step.

use std::collections::BTreeSet;

use super::history::{Step, Taints, meet, slots};
use super::host::Host;
use super::machine::{Inverse, Life};
use crate::action::Action;
use crate::ids::{CheckpointId, HeldId, ProcessId, SpecId, Thing};
use crate::set::Set;

/// What was before a prediction was resolved, and what has been done since.
pub(super) struct Batch {
    pub before: Taints,
    /// Things that depended on what was open.
    pub speculative: BTreeSet<Thing>,
    /// Speculations that fail.
    failed: Set,
    /// Things that were said to depend on nothing any more.
    pub told: BTreeSet<Thing>,
    /// Things that have ceased to exist.
    pub gone: BTreeSet<Thing>,
    /// Output that was dropped.
    pub dropped: BTreeSet<HeldId>,
}

impl Batch {
    fn fails(&self, thing: Thing) -> bool {
        meet(&self.before.get(thing), &self.failed)
    }
}

impl Host {
    /// It is known whether the prediction is right; one that is may be taken for wrong.
    pub fn resolve(&mut self, spec: SpecId) {
        let before = self.taints();
        let speculative = self.speculative(&before);
        let Some(prediction) = self.specs.remove(&spec) else { return };
        self.known.insert((prediction.process, prediction.state));
        let commits = prediction.right && self.random.u32(..10) > 0;
        let mut failed = BTreeSet::new();
        let fails_with = self.fails_with(spec, &before);
        let told = if commits {
            self.counts.commits += 1;
            self.tracker.commit(spec)
        } else {
            self.counts.failures += 1;
            failed.insert(spec);
            self.tracker.fail(spec)
        };
        let Ok(actions) = told else {
            return self.must(false, "an open speculation was said to be resolved");
        };
        for action in &actions {
            if let Action::Forget(other) = action {
                let known = self.specs.remove(other).is_some();
                self.must(known, "a speculation was forgotten that is not open");
                failed.insert(*other);
                self.counts.forgotten += 1;
            }
        }
        let right = commits || failed == fails_with;
        self.must(right, "other speculations were forgotten than were created in vain");
        let failed = slots(failed);
        self.failed.add(&failed);
        let mut batch = Batch {
            before,
            speculative,
            failed,
            told: BTreeSet::new(),
            gone: BTreeSet::new(),
            dropped: BTreeSet::new(),
        };
        for action in actions {
            self.act(action, &mut batch);
        }
        self.check_batch(&batch);
        self.check();
    }

    fn act(&mut self, action: Action, batch: &mut Batch) {
        match action {
            Action::Forget(_) => {}
            Action::Release(held) => self.release(held, &batch.before),
            Action::Drop(held) => {
                let there = self.held.remove(&held).is_some();
                self.must(there, "output was dropped that is not held");
                batch.dropped.insert(held);
                self.counts.dropped += 1;
            }
            Action::Undo(thing, undo) => {
                self.must(batch.fails(thing), "a change was undone for nothing");
                let there = self.undos.remove(&undo).filter(|(of, _)| *of == thing);
                let done = there.and_then(|(_, inverse)| {
                    if inverse == Inverse::Remove {
                        batch.gone.insert(thing);
                    }
                    self.counts.redelivered += u64::from(inverse == Inverse::Redeliver);
                    self.counts.unwaited += u64::from(inverse == Inverse::WaitAgain);
                    self.machine.undo(thing, inverse)
                });
                self.must(done.is_some(), "a change could not be undone");
            }
            Action::Destroy(process) => {
                self.must(batch.fails(process.into()), "a process was destroyed for nothing");
                self.machine.processes.remove(&process);
                batch.gone.insert(process.into());
                self.counts.destroyed += 1;
                self.take_back(process, 0);
            }
            Action::RollBack(process, checkpoint) => self.roll_back(process, checkpoint, batch),
            Action::DiscardCheckpoint(process, id) => {
                let there = self.checkpoints.remove(&id).is_some_and(|c| c.process == process);
                self.must(there, "a checkpoint was discarded that is not there");
            }
            Action::DiscardUndo(thing, undo) => {
                let there = self.undos.remove(&undo).is_some_and(|(of, _)| of == thing);
                self.must(there, "an undoing was discarded that is not there");
            }
            Action::Settled(object) => _ = batch.told.insert(object.into()),
            Action::Wake(process) => {
                self.must(self.machine.runs(process).is_some(), "who was woken does not run");
                batch.told.insert(process.into());
            }
            Action::MayGo(process) => {
                self.must(self.machine.runs(process).is_none(), "who may go has not exited");
                self.gone.insert(process);
                batch.told.insert(process.into());
            }
        }
    }

    fn release(&mut self, held: HeldId, before: &Taints) {
        let Some(printed) = self.held.remove(&held) else {
            return self.must(false, "output was released that is not held");
        };
        let step = self.history.iter().find(|step| step.held == Some(held));
        let taint = step.and_then(|step| before.steps.get(&step.at));
        let certain = taint.is_some_and(|(_, taint)| !meet(taint, &self.open()));
        let exited = step.is_some_and(|step| self.machine.runs(step.process).is_none());
        self.screen.push(printed);
        self.released.insert(held);
        self.must(certain, "output was released that depends on an open speculation");
        self.counts.released += 1;
        self.counts.released_late += u64::from(exited);
    }

    fn roll_back(&mut self, process: ProcessId, id: CheckpointId, batch: &Batch) {
        let far = self.back(process, &batch.before, &batch.failed) == Some(id);
        self.must(far, "a process was not rolled back as far as it was wrong");
        let Some(checkpoint) = self.checkpoints.remove(&id).filter(|c| c.process == process) else {
            return self.must(false, "a process was rolled back to a checkpoint that is not there");
        };
        self.counts.rolled_back += 1;
        match self.machine.processes.get_mut(&process) {
            Some(there) => {
                self.counts.revived += u64::from(there.life != Life::Runs);
                there.registers = checkpoint.registers;
                there.life = Life::Runs;
            }
            None => self.must(false, "a process was rolled back that is not there"),
        }
        self.take_back(process, checkpoint.at);
    }

    /// The steps of `process` after `at` have not been made.
    fn take_back(&mut self, process: ProcessId, at: u64) {
        self.must(!self.gone.contains(&process), "a process was taken back that had gone");
        let taken = |step: &Step| step.process == process && step.at > at;
        let seen = self.history.iter().filter(|step| taken(step));
        let seen = seen.filter_map(|step| step.held).any(|held| self.released.contains(&held));
        self.must(!seen, "output was seen that was taken back");
        self.history.retain(|step| !taken(step));
    }
}
