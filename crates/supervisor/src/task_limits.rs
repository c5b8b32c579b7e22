//! Limit of the tasks (processes and threads) of a session.
//!
//! They count against the same limits as the command's own: those of the control groups of both
//! (`pids.max`, which containers and services set) and that of the user. So a session uses at most
//! a small share of what is free. As less is free, it gives up shadows and workers. With hardly any
//! free, the command runs without the agent.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use runahead_admission::memory_budget;
use runahead_admission::process::proc_files::{quantity, status};
use runahead_admission::session_admission::TaskRoom;
use runahead_prefetch::Prefetcher;

use crate::rlimits::LimitTooLow;
use crate::{io_process, rlimits};

/// Divisor: a session takes at most this part of the free tasks.
const SHARE: u64 = 8;
/// Tasks of a shadow: a template, its runner, and the helper that either forks.
const TASKS_PER_SHADOW: u64 = 3;
/// Tasks of every session: the supervisor's first thread, one at the control socket, the first
/// thread of the I/O process, and the thread that waits for that process.
const BASE_TASKS: u64 = 4;
/// Fewest tasks with which a session gains: a dispatcher, one worker and one shadow more.
const TASKS_MIN: u64 = BASE_TASKS + 2 + TASKS_PER_SHADOW;
/// Shortest interval between two counts of tasks. It grows with the number of tasks that may be
/// added, since few are soon used up.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
const TASKS_PER_INTERVAL: u64 = 16;
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(250);

/// Limit of tasks of a session.
#[derive(Debug, Default)]
pub struct TaskLimits {
    /// Number of processes that may have shadows.
    shadowed: AtomicUsize,
    is_tight: AtomicBool,
}

/// Counts of the latest look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TaskUsage {
    /// Number of tasks that may still be started under the limits, by any process.
    free: u64,
    /// Threads of the supervisor and the I/O process.
    threads: u64,
    /// Processes that have joined, or are about to.
    shadowed: u64,
}

impl TaskUsage {
    fn allowed(self) -> u64 {
        (self.free + self.threads).div_ceil(SHARE)
    }

    fn fits(self) -> bool {
        self.threads + TASKS_PER_SHADOW * self.shadowed <= self.allowed()
    }

    fn workers(self) -> u64 {
        (self.allowed().saturating_sub(BASE_TASKS) / 2).max(1)
    }
}

impl TaskLimits {
    fn usage(&self) -> Option<TaskUsage> {
        let free = tasks_left("self")?;
        let shadowed = self.shadowed.load(Relaxed) as u64;
        Some(TaskUsage { free, threads: threads(), shadowed })
    }

    /// True if one more process may join, with a dispatcher and shadows of its own.
    pub(crate) fn allows_one_more(&self) -> bool {
        self.usage().is_none_or(|now| {
            TaskUsage { threads: now.threads + 1, shadowed: now.shadowed + 1, ..now }.fits()
        })
    }

    /// True if one more thread may be started.
    pub(crate) fn allows_thread(&self) -> bool {
        self.usage().is_none_or(|now| TaskUsage { threads: now.threads + 1, ..now }.fits())
    }

    /// Counts a process that has joined.
    pub(crate) fn add_process(&self) {
        self.shadowed.fetch_add(1, Relaxed);
    }

    /// Counts the end of a process that had joined.
    pub(crate) fn remove_process(&self) {
        self.shadowed.fetch_sub(1, Relaxed);
    }

    /// Counts the tasks, and limits the workers of `prefetcher` to those that fit. Returns the time
    /// until the next count, or `None` without a limit.
    pub(crate) fn apply(&self, prefetcher: &Prefetcher) -> Option<Duration> {
        let now = self.usage()?;
        prefetcher.set_threads(now.workers() as usize);
        self.is_tight.store(!now.fits(), Relaxed);
        let tasks = u32::try_from(now.allowed() / TASKS_PER_INTERVAL).unwrap_or(u32::MAX).max(1);
        Some(CHECK_INTERVAL.saturating_mul(tasks).min(CHECK_INTERVAL_MAX))
    }
}

impl TaskRoom for TaskLimits {
    /// True if the latest [`TaskLimits::apply`] found too few free tasks.
    fn is_tight(&self) -> bool {
        self.is_tight.load(Relaxed)
    }

    fn allows_shadows(&self, process: u32) -> bool {
        // The process may be in a control group of its own, with fewer free tasks.
        let own =
            tasks_left(&process.to_string()).is_none_or(|free| free >= SHARE * TASKS_PER_SHADOW);
        own && self.usage().is_none_or(TaskUsage::fits)
    }
}

/// Returns the limit for which the command must run in place of this process, not beside it.
pub(crate) fn reason_no_session() -> Option<LimitTooLow> {
    let free = tasks_left("self")?;
    let now = TaskUsage { free, threads: 1, shadowed: 0 };
    (now.allowed() < TASKS_MIN).then_some(LimitTooLow::ControlGroup { free })
}

/// Number of processes and threads that `process` could still start; `None`: no limit.
fn tasks_left(process: &str) -> Option<u64> {
    let groups = memory_budget::groups_of(process, "pids");
    groups.iter().filter_map(|dir| left_in_group(dir)).chain(rlimits::process_limit(0)).min()
}

fn left_in_group(group: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok()?.trim().parse().ok();
    let (limit, used): (u64, u64) = (read("pids.max")?, read("pids.current")?);
    Some(limit.saturating_sub(used))
}

fn threads() -> u64 {
    io_process::proc_names().iter().map(|process| threads_of(process)).sum()
}

fn threads_of(process: &str) -> u64 {
    status(process).and_then(|text| quantity(&text, "Threads:")).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_takes_a_small_share_of_the_free_tasks() {
        let now = |free, threads, shadowed| TaskUsage { free, threads, shadowed };
        assert!(now(64, 1, 0).allowed() >= TASKS_MIN && now(63, 1, 0).allowed() < TASKS_MIN);
        assert!(now(60, 6, 1).fits(), "one process can be helped in a group of 66");
        assert!(!now(60, 6, 2).fits() && !now(40, 6, 1).fits() && now(43, 6, 0).fits());
        assert_eq!((now(0, 5, 1).workers(), now(3, 3, 0).workers()), (1, 1));
        assert!(now(1 << 16, 300, 200).fits() && now(1 << 16, 3, 0).workers() > 256);
    }

    #[test]
    fn tasks_left_are_the_limit_minus_those_in_use() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).expect("ours");
        };
        assert_eq!(left_in_group(dir.path()), None);
        write("pids.current", "7\n");
        write("pids.max", "max\n");
        assert_eq!(left_in_group(dir.path()), None);
        write("pids.max", "20\n");
        assert_eq!(left_in_group(dir.path()), Some(13));
        write("pids.max", "5\n");
        assert_eq!(left_in_group(dir.path()), Some(0), "it may be set below what there is");
    }
}
