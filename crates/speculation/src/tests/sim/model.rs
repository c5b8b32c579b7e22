//! The model: the steps that were not taken back, in their order, on a machine of its own where
//! each question is answered at once and truly. There is no speculation in it.
//!
//! What the host has come to must be what the model comes to. Output may be in another order where
//! nobody could tell: each is after all that its process could have known of.

use std::collections::{BTreeMap, BTreeSet};

use super::history::Step;
use super::host::{Host, Printed};
use super::machine::Machine;
use super::program::{Op, Shape};
use crate::ids::{ProcessId, Thing};

/// What came of the model.
pub(super) struct Outcome {
    machine: Machine,
    /// What was put out, and by its number there what had to be put out before.
    printed: Vec<(Printed, BTreeSet<usize>)>,
}

/// Runs the steps; what is wrong with them if they cannot be run.
pub(super) fn run(shape: &Shape, history: &[Step]) -> Result<Outcome, &'static str> {
    let mut machine = Machine::new(shape);
    let mut printed: Vec<(Printed, BTreeSet<usize>)> = Vec::new();
    // What each could know to have been put out.
    let mut known: BTreeMap<Thing, BTreeSet<usize>> = BTreeMap::new();
    for step in history {
        let process = step.process;
        let deliver = matches!(step.plan.op, Op::Deliver(_)).then_some(step.plan.op);
        let state = machine.runs(process).map(|registers| registers.state);
        let state = state.ok_or("a step was made by a process that is not there")?;
        let plan = machine.plan(process, shape, deliver);
        let plan = plan.ok_or("a step was made that could not be made")?;
        if plan.op != step.plan.op {
            return Err("another step was made than follows from what was before");
        }
        let truth = shape.truth(process, state);
        machine.perform(process, &plan, truth).ok_or("a step was made that fails")?;
        if machine.processes[&process].registers.state != step.after {
            return Err("a step had another result than follows from what was before");
        }
        let mut all = known.remove(&process.into()).unwrap_or_default();
        let changed = plan.changes.iter().map(|&object| Thing::Object(object));
        let waits = plan.waits.iter().map(|&child| Thing::Process(child));
        let changed: Vec<_> = changed.chain(waits).collect();
        for thing in plan.observes.iter().chain(&changed) {
            all.extend(known.get(thing).into_iter().flatten());
        }
        if let Op::Print(sink) = plan.op {
            printed.push((Printed { process, sink, value: state }, all.clone()));
            all.insert(printed.len() - 1);
        }
        let made = plan.makes.iter().map(|&object| Thing::Object(object));
        let born = plan.child.iter().map(|&child| Thing::Process(child));
        for thing in changed.into_iter().chain(made).chain(born).chain([process.into()]) {
            known.entry(thing).or_default().extend(&all);
        }
    }
    Ok(Outcome { machine, printed })
}

/// What the host has come to that the model has not.
pub(super) fn compare(host: &Host) -> Option<&'static str> {
    let outcome = match run(&host.shape, &host.history) {
        Ok(outcome) => outcome,
        Err(wrong) => return Some(wrong),
    };
    if outcome.machine.processes.keys().ne(host.machine.processes.keys()) {
        return Some("other processes exist than without speculation");
    }
    if outcome.machine != host.machine {
        return Some("processes or objects are not as they are without speculation");
    }
    order(&outcome.printed, &host.screen)
}

/// What is wrong with what was seen, by what had to be before what.
fn order(printed: &[(Printed, BTreeSet<usize>)], screen: &[Printed]) -> Option<&'static str> {
    let mut left: BTreeMap<(ProcessId, u64, u64), Vec<usize>> = BTreeMap::new();
    for (n, (Printed { process, sink, value }, _)) in printed.iter().enumerate().rev() {
        left.entry((*process, *sink, *value)).or_default().push(n);
    }
    let mut seen = BTreeSet::new();
    for Printed { process, sink, value } in screen {
        let Some(n) = left.get_mut(&(*process, *sink, *value)).and_then(Vec::pop) else {
            return Some("something was seen that is not put out without speculation");
        };
        if !printed[n].1.is_subset(&seen) {
            return Some("something was seen before what it follows from");
        }
        seen.insert(n);
    }
    (seen.len() < printed.len()).then_some("something was not seen that is put out")
}
