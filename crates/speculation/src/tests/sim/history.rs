//! The steps that have not been taken back, and who depends on what by them alone: found anew each
//! time, apart from the tracker.

use std::collections::BTreeMap;

use super::machine::Plan;
use crate::ids::{HeldId, ProcessId, SpecId, Thing};
use crate::set::{Set, Slot};

/// A step that a process has made.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// When: after all steps and checkpoints with a lower number.
    pub at: u64,
    pub process: ProcessId,
    pub plan: Plan,
    /// The prediction that it went on with.
    pub spec: Option<SpecId>,
    /// What it put out.
    pub held: Option<HeldId>,
    /// The registers' state after it.
    pub after: u64,
}

/// Which speculations things depend on, resolved ones too: the slots are their numbers.
#[derive(Default)]
pub(super) struct Taints {
    pub things: BTreeMap<Thing, Set>,
    /// By when it was made, whose each step is, and what the process depended on after it.
    pub steps: BTreeMap<u64, (ProcessId, Set)>,
}

impl Taints {
    pub fn of(steps: &[Step]) -> Self {
        let mut taints = Taints::default();
        for step in steps {
            taints.add(step);
        }
        taints
    }

    fn add(&mut self, step: &Step) {
        let plan = &step.plan;
        let mut all = self.get(step.process.into());
        let changed = plan.changes.iter().map(|&object| Thing::Object(object));
        let waited = plan.waits.iter().map(|&process| Thing::Process(process));
        let changed: Vec<_> = changed.chain(waited).collect();
        for thing in plan.observes.iter().chain(&changed) {
            all.add(&self.get(*thing));
        }
        if let Some(spec) = step.spec {
            all.insert(slot(spec));
        }
        for thing in changed {
            self.things.entry(thing).or_default().add(&all);
        }
        let made = plan.makes.iter().map(|&object| Thing::Object(object));
        let born = plan.child.iter().map(|&process| Thing::Process(process));
        for thing in made.chain(born).chain([step.process.into()]) {
            self.things.insert(thing, all.clone());
        }
        self.steps.insert(step.at, (step.process, all));
    }

    pub fn get(&self, thing: Thing) -> Set {
        self.things.get(&thing).cloned().unwrap_or_default()
    }
}

/// The place of a speculation in sets of this simulation.
pub(super) fn slot(spec: SpecId) -> Slot {
    Slot(u32::try_from(spec.0).expect("few"))
}

/// The set of these.
pub(super) fn slots(specs: impl IntoIterator<Item = SpecId>) -> Set {
    let mut set = Set::default();
    specs.into_iter().for_each(|spec| set.insert(slot(spec)));
    set
}

/// Whether the sets have something in common.
pub(super) fn meet(one: &Set, other: &Set) -> bool {
    one.iter().any(|slot| other.contains(slot))
}
