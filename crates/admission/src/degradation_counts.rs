//! Counts of facilities that a session had to do without, for its statistics.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use runahead_abi::{RunEnd, Shared};

/// Different reasons that are told apart; there are no more than reasons times errors of the
/// kernel.
const MAX: usize = 64;

/// A process has changed its user, its root or the like.
pub const UNDER_OTHER_RULES: &str =
    "a process changed the rules under which it runs: from there on it had no shadows";

/// Reasons, and how often each came up.
#[derive(Debug, Default)]
pub struct ReasonCounts(Mutex<BTreeMap<String, u64>>);

impl ReasonCounts {
    /// Counts a loss.
    pub fn count(&self, what: impl Into<String>) {
        let mut degraded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let what = what.into();
        if degraded.len() < MAX || degraded.contains_key(&what) {
            *degraded.entry(what).or_default() += 1;
        }
    }

    /// Counts what a process that has ended had to do without, as its shared memory tells.
    pub fn count_of(&self, shared: &Shared) {
        let end = |e: u32| RunEnd::from_raw(e);
        if shared.runs.iter().any(|run| end(run.end.load(Relaxed)) == RunEnd::Unsafe) {
            self.count("a process ran without shadows: they could not be confined");
        }
        let control = &shared.control;
        if control.syncs.load(Relaxed) > 0 && control.template_pid.load(Relaxed) == 0 {
            self.count("a process ran without shadows: no process could be made for them");
        }
    }

    /// Returns each reason with its count.
    pub fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
