//! What must hold after each step and each resolution, by the history alone.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Taints, meet, slot, slots};
use super::host::{Host, Look};
use super::resolve::Batch;
use crate::ids::{CheckpointId, ProcessId, SpecId, Thing};
use crate::set::Set;

impl Host {
    /// Speculations that are open.
    pub fn open(&self) -> Set {
        slots(self.specs.keys().copied())
    }

    /// The things that depend on what is open.
    pub fn speculative(&self, taints: &Taints) -> BTreeSet<Thing> {
        let open = self.open();
        let things = taints.things.iter().filter(|(_, taint)| meet(taint, &open));
        things.map(|(thing, _)| *thing).collect()
    }

    /// The last checkpoint of `process` before it came to depend on any of `failed`.
    pub fn back(&self, process: ProcessId, taints: &Taints, failed: &Set) -> Option<CheckpointId> {
        let mut steps = taints.steps.iter();
        let first = steps.find(|(_, (of, taint))| *of == process && meet(taint, failed));
        let (&first, _) = first?;
        let own = self.checkpoints.iter().filter(|(_, c)| c.process == process && c.at < first);
        own.max_by_key(|(_, c)| c.at).map(|(id, _)| *id)
    }

    /// Speculations that fail with `spec`: what processes have created in work that is taken back.
    pub fn fails_with(&self, spec: SpecId, taints: &Taints) -> BTreeSet<SpecId> {
        let mut failed = BTreeSet::from([spec]);
        if self.look == Look::AtTheEnd {
            return failed;
        }
        loop {
            let slots = slots(failed.iter().copied());
            let processes = self.machine.processes.keys();
            let back: BTreeMap<_, _> =
                processes.map(|&process| (process, self.back(process, taints, &slots))).collect();
            let mut more = BTreeSet::new();
            for step in &self.history {
                let Some(created) = step.spec.filter(|s| self.specs.contains_key(s)) else {
                    continue;
                };
                let taken = match back.get(&step.process).copied().flatten() {
                    Some(checkpoint) => step.at > self.checkpoints[&checkpoint].at,
                    // It was forked by who was wrong.
                    None => meet(&taints.steps[&step.at].1, &slots),
                };
                if taken && !failed.contains(&created) {
                    more.insert(created);
                }
            }
            if more.is_empty() {
                return failed;
            }
            failed.extend(more);
        }
    }

    /// All that is there, and all that ever had to do with what is there.
    fn everything(&self, taints: &Taints) -> BTreeSet<Thing> {
        let processes = self.machine.processes.keys().map(|process| Thing::Process(*process));
        let objects = self.machine.objects.keys().map(|object| Thing::Object(*object));
        processes.chain(objects).chain(taints.things.keys().copied()).collect()
    }

    /// Who depends on what now; nobody on anything if that is not looked at.
    pub fn taints(&self) -> Taints {
        match self.look {
            Look::Throughout => Taints::of(&self.history),
            Look::AtTheEnd => Taints::default(),
        }
    }

    /// What the tracker knows is what follows from the history.
    pub fn check(&mut self) {
        // (Ever more rarely in long worlds, as each time takes as long as the history is.)
        if self.look == Look::AtTheEnd || !self.clock.is_multiple_of(1 + self.clock / 100) {
            return;
        }
        let taints = Taints::of(&self.history);
        for thing in self.everything(&taints) {
            let taint = taints.get(thing);
            let open = self.specs.keys().copied();
            let depends: Vec<SpecId> = open.filter(|spec| taint.contains(slot(*spec))).collect();
            let told = self.tracker.dependencies(thing);
            self.must(told == depends, "dependencies are not what follows from the history");
            let speculative = self.tracker.is_speculative(thing);
            self.must(
                speculative != depends.is_empty(),
                "what is speculative is not what follows from the history",
            );
            let wrong = meet(&taint, &self.failed);
            self.must(!wrong, "something depends on what has failed");
        }
        for process in &self.gone.clone() {
            let speculative = self.tracker.is_speculative(*process);
            // (Its parent may have waited for it since.)
            let runs = self.machine.runs(*process).is_some();
            self.must(!runs || !speculative, "a process runs that had gone");
        }
        let open = self.specs.len();
        self.must(self.tracker.open() == open, "another number of speculations is open");
        let held: Vec<_> = self.held.keys().copied().collect();
        for held in held {
            let Some(step) = self.history.iter().find(|step| step.held == Some(held)) else {
                self.must(false, "output is held that was taken back");
                continue;
            };
            let waits = meet(&taints.steps[&step.at].1, &self.open());
            // It may wait for what shares the last checkpoint before it.
            let own = self.checkpoints.values().filter(|c| c.process == step.process);
            let shares = own.filter(|c| c.at < step.at).max_by_key(|c| c.at);
            let later = shares.is_some_and(|checkpoint| {
                let steps = self.history.iter().filter(|other| other.process == step.process);
                let mut later = steps.filter(|other| other.at > checkpoint.at);
                later.any(|other| meet(&taints.steps[&other.at].1, &self.open()))
            });
            self.must(waits || later, "output is held that depends on nothing");
        }
    }

    /// A resolution has come to what it should.
    pub fn check_batch(&mut self, batch: &Batch) {
        let after = self.speculative(&self.taints());
        let settled = batch.speculative.difference(&after).copied();
        let settled: BTreeSet<_> = settled.filter(|thing| !batch.gone.contains(thing)).collect();
        self.must(settled == batch.told, "not all were told that they depend on nothing");
        let dropped = self.history.iter().filter_map(|step| step.held);
        let dropped = dropped.filter(|held| batch.dropped.contains(held)).count();
        self.must(dropped == 0, "output was dropped that was not taken back");
        let made = self.history.iter().filter_map(|step| step.spec).collect::<BTreeSet<_>>();
        let orphans = self.specs.keys().any(|spec| !made.contains(spec));
        self.must(!orphans, "a speculation has outlived the work that created it");
    }

    /// Nothing is left to be resolved.
    pub fn check_end(&mut self) {
        self.must(self.tracker.open() == 0, "a speculation is left");
        self.must(self.tracker.speculative() == 0, "something is left speculative");
        self.must(self.checkpoints.is_empty(), "a checkpoint is left");
        self.must(self.undos.is_empty(), "an undoing is left");
        self.must(self.held.is_empty(), "output is left");
    }
}
