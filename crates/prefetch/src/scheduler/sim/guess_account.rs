//! Costs and gains of guesses, counted apart from the scheduler.
//!
//! Invariant: at any time, what guesses have cost, that is, the processor time that they have
//! taken, as far as others had to wait for a processor (and a part of it, [`SPARE`], where no
//! program had to), and [`BYTE`] for each byte, is at most
//! - [`GRACE`],
//! - a quarter of what targets have waited for unforeseen data,
//! - such a wait, as long as they were on average, for each guess that a target found in memory
//!   when it came, and
//! - what was under way at once, at the price of the dearest.

use runahead_estimators::cost_account::TRY;

/// Sixteenths of waits that go into trying (`guess_budget.rs` of `runahead-predict`).
const TRIED: u64 = 4;
/// Allowed loss before a guess has been used, in nanoseconds, as all times here.
const GRACE: u64 = 5_000_000;
/// Part of its time that an idle processor costs.
const SPARE: f64 = 0.25;
/// Cost of a transferred byte.
const BYTE: u64 = 4;

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Account {
    spent: u64,
    /// Number of unforeseen waits, and their sum.
    waits: (u64, u64),
    /// Guesses that were used, and what they have spared.
    pub used: u64,
    spared: u64,
    /// Guesses that are under way.
    under_way: u64,
    /// Most guesses that were under way at once.
    most: u64,
    /// Cost of the dearest guess.
    dearest: u64,
}

impl Account {
    pub fn begins(&mut self) {
        self.under_way += 1;
        self.most = self.most.max(self.under_way);
    }

    /// Books a guess that has ended: its bytes, its processor time, and the part of that for which
    /// others had to wait.
    pub fn ends(&mut self, bytes: u64, processor: u64, contention: f64) {
        let cost = (processor as f64 * contention.max(SPARE)) as u64 + bytes * BYTE;
        self.under_way -= 1;
        self.spent += cost;
        self.dearest = self.dearest.max(cost);
    }

    /// Books an unforeseen wait of a target.
    pub fn waited(&mut self, time: u64) {
        self.waits = (self.waits.0 + 1, self.waits.1 + time);
    }

    /// A target came, and found in memory what was guessed.
    pub fn used(&mut self) {
        let (count, time) = self.waits;
        self.used += 1;
        self.spared += time.checked_div(count).unwrap_or(0);
    }

    /// Returns the spending as a part of the invariant's bound.
    pub fn part(&self) -> f64 {
        let tried = self.waits.1 * TRIED / TRY as u64;
        self.spent as f64 / (GRACE + tried + self.spared + self.most * self.dearest) as f64
    }
}
