//! Stalls that speculation has added, of a whole session: the counterpart of Fraser & Chang's
//! eviction list (section 6.1), of which user space gets to see only a part.
//!
//! Two signals are needed:
//! - The target stalls on a chunk that its log has as read ([`Control::refaults`]): the chunk had
//!   been in memory, read by the target or for it. This needs nothing.
//! - `workingset_refault_file` of our control group, or of the machine, rises: the kernel has read
//!   again what it had evicted. This needs a file that containers have, too.
//!
//! The log alone can be wrong: a chunk counts as read when the wanted part of it has been, and data
//! may come in just as the target stalls on it. So the kernel's counter must have moved, too.
//! cachestat(2) says the same for one file, and only to its owner: see
//! docs/design/prefetching-memory.md.
//!
//! Evicted data would have stayed without us only if we hold memory: prefetched and not used, or
//! that of shadows. As with the paper's list, which has as many entries as there are speculative
//! pages, no more can have been pushed out at a time than we hold. The sum is shared out among the
//! processes in proportion to what they hold.
//!
//! [`Control::refaults`]: runahead_abi::Control

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::process::proc_files::number;
use runahead_estimators::access_identity::CHUNK_BYTES;

use crate::memory_budget;

/// Stalls are counted in parts of this.
const ONE: f64 = 256.0;

/// Stalls that speculation has added, of a session.
#[derive(Debug, Default)]
pub struct SessionRefaults {
    /// Stalls added, in parts.
    added: AtomicU64,
    /// Bytes that all processes hold.
    held: AtomicU64,
}

/// Part of one process in a [`SessionRefaults`].
#[derive(Debug, Default)]
pub(crate) struct RefaultShare {
    seen: u64,
    held: u64,
    refaults: u64,
    kernel: Option<u64>,
}

impl SessionRefaults {
    /// Stalls added so far.
    pub fn added(&self) -> u64 {
        (self.added.load(Relaxed) as f64 / ONE).round() as u64
    }
}

impl RefaultShare {
    /// Stalls to be laid at the door of this process since the last time. It has met `refaults` so
    /// far, and `held` tells what it holds, which is asked only if it matters.
    pub(crate) fn account(
        &mut self,
        ghost: &SessionRefaults,
        refaults: u64,
        kernel: impl FnOnce() -> Option<u64>,
        held: impl FnOnce() -> u64,
    ) -> f64 {
        let new = refaults.saturating_sub(self.refaults);
        self.refaults = refaults;
        let others = ghost.added.load(Relaxed) != self.seen;
        if new == 0 && !others {
            return 0.0;
        }
        self.hold(ghost, held());
        let all = ghost.held.load(Relaxed);
        if new > 0 && self.has_moved(kernel()) && all > 0 {
            let most = all as f64 / (new as f64 * CHUNK_BYTES as f64);
            let added = (new as f64 * most.min(1.0) * ONE) as u64;
            ghost.added.fetch_add(added, Relaxed);
        }
        let total = ghost.added.load(Relaxed);
        let added = total.saturating_sub(self.seen) as f64 / ONE;
        self.seen = total;
        if all == 0 { 0.0 } else { added * self.held as f64 / all as f64 }
    }

    /// This process holds `bytes` from now on.
    pub(crate) fn hold(&mut self, ghost: &SessionRefaults, bytes: u64) {
        ghost.held.fetch_add(bytes, Relaxed);
        ghost.held.fetch_sub(self.held, Relaxed);
        self.held = bytes;
    }

    /// True if the kernel's count has changed since the last call. Without a count the answer is
    /// false: a target that stalls just as its data comes in looks the same in the log.
    fn has_moved(&mut self, kernel: Option<u64>) -> bool {
        let before = std::mem::replace(&mut self.kernel, kernel);
        match (before, kernel) {
            (Some(before), Some(now)) => now != before,
            // There is nothing to compare it with.
            _ => false,
        }
    }
}

/// Detects that another process drops the page cache (`drop_caches`, proc_sys_vm(5)).
#[derive(Debug, Default)]
pub(crate) struct CacheDrops(Option<u64>);

impl CacheDrops {
    /// True if the page cache was dropped since the last call.
    pub(crate) fn has_moved(&mut self) -> bool {
        let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let times = ["drop_pagecache", "drop_slab"].map(|name| number(&text, name));
        let now = times.into_iter().flatten().reduce(u64::saturating_add);
        let before = std::mem::replace(&mut self.0, now);
        before.is_some() && before != now
    }
}

/// Pages of files that the kernel had evicted and read again: of our control group, or else of the
/// machine.
pub(crate) fn refaults() -> Option<u64> {
    let group = memory_budget::own_groups().into_iter().find_map(|dir| {
        let text = std::fs::read_to_string(dir.join("memory.stat")).ok()?;
        number(&text, "total_workingset_refault_file")
            .or_else(|| number(&text, "workingset_refault_file"))
    });
    group.or_else(|| {
        let text = std::fs::read_to_string("/proc/vmstat").ok()?;
        number(&text, "workingset_refault_file")
    })
}

/// Returns the private memory of processes in bytes, as far as it can be read (proc(5),
/// `smaps_rollup`).
pub(crate) fn private_memory(processes: &[u32]) -> u64 {
    let of = |process: &u32| {
        let path = format!("/proc/{process}/smaps_rollup");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let kib = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        (kib("Private_Clean:") + kib("Private_Dirty:")) << 10
    };
    processes.iter().filter(|&&process| process != 0).map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = CHUNK_BYTES;

    #[test]
    fn stalls_are_added_only_while_something_is_held_and_the_kernel_says_so() {
        let (ghost, mut share) = (SessionRefaults::default(), RefaultShare::default());
        let kernel = |n: u64| move || Some(n);
        assert_eq!(share.account(&ghost, 5, kernel(10), || 100 * CHUNK), 0.0, "a beginning");
        assert_eq!(share.account(&ghost, 8, kernel(10), || 100 * CHUNK), 0.0, "no eviction");
        assert_eq!(share.account(&ghost, 10, kernel(11), || 100 * CHUNK), 2.0);
        assert_eq!(share.account(&ghost, 10, kernel(99), || panic!("nothing to ask")), 0.0);
        assert_eq!(share.account(&ghost, 20, kernel(100), || 0), 0.0, "nothing is held");
        assert_eq!(
            share.account(&ghost, 30, kernel(101), || 4 * CHUNK),
            4.0,
            "no more than is held"
        );
        assert_eq!(share.account(&ghost, 40, || None, || 4 * CHUNK), 0.0, "nobody can tell");
        assert_eq!(ghost.added(), 6);
    }

    #[test]
    fn a_process_that_holds_more_answers_for_more_refaults() {
        let ghost = SessionRefaults::default();
        let (mut large, mut small) = (RefaultShare::default(), RefaultShare::default());
        large.hold(&ghost, 30 * CHUNK);
        small.account(&ghost, 1, || Some(1), || 10 * CHUNK);
        let own = small.account(&ghost, 9, || Some(2), || 10 * CHUNK);
        assert_eq!(own, 2.0);
        assert_eq!(large.account(&ghost, 0, || None, || 30 * CHUNK), 6.0);
        large.hold(&ghost, 0);
        small.hold(&ghost, 0);
        assert_eq!(ghost.held.load(Relaxed), 0);
    }

    #[test]
    fn the_kernels_own_files_are_understood() {
        assert!(refaults().is_some(), "neither memory.stat nor /proc/vmstat tells");
        assert!(private_memory(&[std::process::id()]) > 0);
        assert_eq!(private_memory(&[0, u32::MAX]), 0);
    }
}
