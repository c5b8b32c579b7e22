//! Processors that this process may use.

use rustix::thread::{CpuSet, sched_getaffinity};

/// Returns the numbers of two processors, or none if there are not two.
pub fn two_processors() -> (Option<usize>, Option<usize>) {
    let Ok(allowed) = sched_getaffinity(None) else { return (None, None) };
    let mut found = (0..CpuSet::MAX_CPU).filter(|n| allowed.is_set(*n));
    match (found.next(), found.next()) {
        (first, second @ Some(_)) => (first, second),
        _ => (None, None),
    }
}
