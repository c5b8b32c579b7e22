//! Shadows of a program, as the supervisor decides, with the production account of their worth.

use std::collections::BTreeSet;

use runahead_predict::cost_benefit::{CostBenefit, ShadowDecision};

use super::*;

/// The shadows of one program.
#[derive(Default)]
pub(super) struct Shadows {
    cost_benefit: CostBenefit,
    stopped: bool,
    /// True if the storage serves one request at a time: nothing is read ahead for any program.
    sole: bool,
    /// Hints that the program has not come to, by position.
    open: BTreeSet<(u64, File)>,
    issued: u64,
    used: u64,
    missed: u64,
    /// Unforeseen waits: their number and sum.
    pub waits: (u64, u64),
    weighed: u64,
}

impl Shadows {
    pub fn may_run(&self) -> bool {
        !self.stopped && !self.sole
    }

    pub fn is_sole(&self) -> bool {
        self.sole
    }

    /// When the account was made up.
    pub fn weighed(&self) -> u64 {
        self.weighed
    }

    pub fn hinted(&mut self, file: File) {
        self.issued += u64::from(self.open.insert((file.position, file)));
    }

    /// Notes that the program has come to `file`, which a hint `foresaw` or not. Hints that it has
    /// passed without using them were wrong.
    pub fn reached(&mut self, file: File, foresaw: bool) {
        let first = File { device: 0, program: 0, group: 0, position: 0, astray: 0 };
        let later = self.open.split_off(&(file.position + 1, first));
        let passed = std::mem::replace(&mut self.open, later);
        let used = passed.contains(&(file.position, file));
        self.used += u64::from(used);
        self.missed += passed.len() as u64 - u64::from(used);
        self.missed += u64::from(!foresaw && !self.open.is_empty());
    }

    fn sample(&mut self, budget: u64, depth: usize) -> runahead_predict::cost_benefit::Sample {
        let held = self.open.len() as u64 * FILE_BYTES;
        let (count, time) = self.waits;
        runahead_predict::cost_benefit::Sample {
            issued: std::mem::take(&mut self.issued),
            used: std::mem::take(&mut self.used),
            missed: std::mem::take(&mut self.missed),
            held: held as f64 / budget as f64,
            stall: Duration::from_nanos(time.checked_div(count).unwrap_or(5_000_000)),
            depth,
            ..runahead_predict::cost_benefit::Sample::default()
        }
    }
}

impl World {
    /// Makes up the account of program `n`, and stops its shadows or tries them again.
    pub(super) fn weigh(&mut self, n: usize) {
        let (depth, sole) = (self.scheduler.limit(), self.scheduler.is_sole());
        let program = &mut self.programs[n];
        let shadows = &mut program.shadows;
        shadows.weighed = self.now;
        let sample = shadows.sample(program.budget, depth);
        let change = shadows.cost_benefit.observe(Duration::from_nanos(self.now), &sample);
        let stops = matches!(change, Some(ShadowDecision::Stop(_))) || sole && !shadows.sole;
        shadows.stopped = match change {
            Some(change) => matches!(change, ShadowDecision::Stop(_)),
            None => shadows.stopped,
        };
        shadows.sole |= sole;
        if stops {
            program.run += 1;
            program.hinted = program.position;
            let (client, run) = (program.client, program.run);
            program.shadows.open.clear();
            self.checks.gave_up(n, run);
            let mut fx = Effects::default();
            self.scheduler.drop_stale(client, Some(run), &mut fx);
            self.settle(fx);
        }
    }
}
