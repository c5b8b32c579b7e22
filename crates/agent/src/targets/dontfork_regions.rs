//! Memory that the program keeps from its children (`MADV_DONTFORK`, madvise(2)), as V8 does with
//! its heap, to fork faster. A shadow is a fork and needs it: the advice is revoked for the moment
//! of a sync.
//!
//! The kernel does not list such memory at a price that every sync could pay, so the calls that set
//! it are tracked. Advising memory that has meanwhile become something else would take it away from
//! the program's own children. So once there is such memory, every call that changes mappings is
//! seen, and what is unmapped, moved or mapped over is forgotten first.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::agent_config::without;

use super::call_outcome::Outcome;
use crate::plane::{Call, signal_block};
use crate::session;
use crate::spin_lock::Lock;
use crate::sys;

/// Ranges that are remembered. A shadow ends when it touches a range that did not fit.
const RANGES_MAX: usize = 1024;

/// Ranges that the program has marked with `MADV_DONTFORK`.
pub(super) struct DontforkRegions {
    /// True once the program has used the advice.
    has_any: AtomicBool,
    ranges: Lock<Ranges>,
}

/// Disjoint, unordered ranges, as first address and end.
struct Ranges {
    list: [(u64, u64); RANGES_MAX],
    len: usize,
}

impl Ranges {
    fn forget(&mut self, start: u64, end: u64) {
        let mut at = 0;
        while at < self.len {
            let (first, last) = self.list[at];
            if last <= start || end <= first {
                at += 1;
                continue;
            }
            self.len -= 1;
            self.list[at] = self.list[self.len];
            if first < start {
                self.push(first, start);
            }
            if end < last {
                self.push(end, last);
            }
        }
    }

    fn push(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let known = &mut self.list[..self.len];
        // The kernel mostly merges neighbours into one mapping too.
        if let Some(range) = known.iter_mut().find(|range| range.1 == start) {
            range.1 = end;
        } else if let Some(range) = known.iter_mut().find(|range| range.0 == end) {
            range.0 = start;
        } else if let Some(place) = self.list.get_mut(self.len) {
            *place = (start, end);
            self.len += 1;
        }
    }

    fn advise(&self, advice: u32) {
        for &(start, end) in &self.list[..self.len] {
            // SAFETY: decides only whether a fork copies it.
            let _ = unsafe { sys::advise(start, end - start, advice) };
        }
    }
}

impl DontforkRegions {
    pub(super) const fn new() -> Self {
        let ranges = Ranges { list: [(0, 0); RANGES_MAX], len: 0 };
        DontforkRegions { has_any: AtomicBool::new(false), ranges: Lock::new(ranges) }
    }

    /// Forgets all ranges: a forked child has none of that memory, and none of the threads that
    /// hold our locks.
    pub(super) fn start_in_child(&self) {
        self.ranges.break_open();
        self.ranges.try_with(|ranges| ranges.len = 0);
    }

    /// Lets the fork to come copy all ranges. Signals are blocked.
    pub(super) fn allow_forks(&self) {
        self.advise(k::MADV_DOFORK);
    }

    /// Marks all ranges again after the fork.
    pub(super) fn forbid_forks(&self) {
        self.advise(k::MADV_DONTFORK);
    }

    fn advise(&self, advice: u32) {
        if self.has_any.load(Relaxed) {
            self.ranges.with(|ranges| ranges.advise(advice));
        }
    }

    /// madvise(2): keeps track of what the program marks and unmarks.
    pub(super) fn track_advice(&self, call: &Call) -> Outcome {
        if session::get().is_some_and(|session| session.is_without(without::DONTFORK)) {
            return Outcome::Native;
        }
        let [at, len, advice, ..] = call.args;
        let dont = match advice as u32 {
            k::MADV_DONTFORK => true,
            k::MADV_DOFORK => false,
            _ => return Outcome::Native,
        };
        self.has_any.store(true, Relaxed);
        let (start, end) = page_bounds(at, len);
        let ret = with_signals_blocked(|| {
            self.ranges.with(|ranges| {
                let ret = call.perform();
                ranges.forget(start, end);
                if ret == 0 && dont {
                    ranges.push(start, end);
                }
                ret
            })
        });
        Outcome::Answer(ret)
    }

    /// Forgets `len` bytes from `at`, whose mapping is about to change.
    pub(super) fn forget_memory(&self, at: u64, len: u64) {
        if self.has_any.load(Relaxed) {
            let (start, end) = page_bounds(at, len);
            with_signals_blocked(|| self.ranges.with(|ranges| ranges.forget(start, end)));
        }
    }

    /// Makes a mapping that brings no file into memory.
    pub(super) fn map_native(&self, call: &Call) -> Outcome {
        if !self.has_any.load(Relaxed) {
            return Outcome::Native;
        }
        let [at, len, _, flags, ..] = call.args;
        if flags as u32 & k::MAP_FIXED != 0 {
            self.forget_memory(at, len);
        }
        let ret = call.perform();
        if ret > 0 {
            // The memory that was here before was unmapped unseen.
            self.forget_memory(ret as u64, len);
        }
        Outcome::Answer(ret)
    }
}

/// Bounds of the whole pages of a range, as the kernel rounds them.
fn page_bounds(at: u64, len: u64) -> (u64, u64) {
    (at & !4095, at.saturating_add(len).next_multiple_of(4096))
}

/// Runs `work` with signals blocked: a handler that jumps away must not leave the lock held.
fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mask = signal_block::begin();
    let result = work();
    signal_block::end(mask);
    result
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;
    use std::vec::Vec;

    use super::*;

    fn after(steps: &[(bool, u64, u64)]) -> Vec<(u64, u64)> {
        let mut ranges = Box::new(Ranges { list: [(0, 0); RANGES_MAX], len: 0 });
        for &(add, start, end) in steps {
            ranges.forget(start, end);
            if add {
                ranges.push(start, end);
            }
        }
        let mut list = ranges.list[..ranges.len].to_vec();
        list.sort_unstable();
        list
    }

    #[test]
    fn ranges_are_cut_and_joined() {
        assert_eq!(after(&[(true, 10, 20), (true, 20, 30)]), [(10, 30)]);
        assert_eq!(after(&[(true, 20, 30), (true, 10, 20)]), [(10, 30)]);
        assert_eq!(after(&[(true, 10, 40), (false, 20, 30)]), [(10, 20), (30, 40)]);
        assert_eq!(after(&[(true, 10, 20), (true, 30, 40), (false, 0, 50)]), []);
        assert_eq!(after(&[(true, 10, 20), (true, 15, 35)]), [(10, 35)]);
    }

    #[test]
    fn ranges_that_do_not_fit_are_left_out() {
        let many: Vec<_> = (0..2 * RANGES_MAX as u64).map(|n| (true, 2 * n, 2 * n + 1)).collect();
        assert_eq!(after(&many).len(), RANGES_MAX);
    }
}
