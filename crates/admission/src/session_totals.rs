//! Totals of prefetching, of all processes in a session.

use std::sync::atomic::AtomicU64;

use crate::degradation_counts::ReasonCounts;

use crate::memory_budget::Budget;
use crate::session_load::SessionLoad;

/// Totals of a session.
#[derive(Debug, Default)]
pub struct SessionTotals {
    /// Budget of prefetched bytes.
    pub budget: Budget,
    /// Load of the session.
    pub crowd: SessionLoad,
    /// Syncs of all processes.
    pub syncs: AtomicU64,
    /// Time-stamp ticks spent in syncs of all processes.
    pub sync_ticks: AtomicU64,
    /// Why shadows were stopped, and how often.
    pub stops: ReasonCounts,
    /// Hints that the target has passed without using them.
    pub overdue: AtomicU64,
}
