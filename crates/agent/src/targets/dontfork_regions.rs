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
use crate::plane::{AddressRange, Call, signal_block};
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

/// Disjoint, unordered ranges.
struct Ranges {
    list: [AddressRange; RANGES_MAX],
    len: usize,
}

impl Ranges {
    const fn new() -> Self {
        Ranges { list: [AddressRange::EMPTY; RANGES_MAX], len: 0 }
    }

    fn forget(&mut self, gone: AddressRange) {
        let mut at = 0;
        while at < self.len {
            let known = self.list[at];
            if known.end <= gone.start || gone.end <= known.start {
                at += 1;
                continue;
            }
            self.len -= 1;
            self.list[at] = self.list[self.len];
            if known.start < gone.start {
                self.push(AddressRange::new(known.start, gone.start));
            }
            if gone.end < known.end {
                self.push(AddressRange::new(gone.end, known.end));
            }
        }
    }

    fn push(&mut self, new: AddressRange) {
        if new.start >= new.end {
            return;
        }
        let known = &mut self.list[..self.len];
        // The kernel mostly merges neighbours into one mapping too.
        if let Some(range) = known.iter_mut().find(|range| range.end == new.start) {
            range.end = new.end;
        } else if let Some(range) = known.iter_mut().find(|range| range.start == new.end) {
            range.start = new.start;
        } else if let Some(place) = self.list.get_mut(self.len) {
            *place = new;
            self.len += 1;
        }
    }

    fn advise(&self, advice: u32) {
        for range in &self.list[..self.len] {
            // SAFETY: decides only whether a fork copies it.
            let _ = unsafe { sys::advise(range.start, range.bytes(), advice) };
        }
    }
}

impl DontforkRegions {
    pub(super) const fn new() -> Self {
        DontforkRegions { has_any: AtomicBool::new(false), ranges: Lock::new(Ranges::new()) }
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
        let range = whole_pages(at, len);
        let ret = with_signals_blocked(|| {
            self.ranges.with(|ranges| {
                let ret = call.perform();
                ranges.forget(range);
                if ret == 0 && dont {
                    ranges.push(range);
                }
                ret
            })
        });
        Outcome::Answer(ret)
    }

    /// Forgets `len` bytes from `at`, whose mapping is about to change.
    pub(super) fn forget_memory(&self, at: u64, len: u64) {
        if self.has_any.load(Relaxed) {
            let range = whole_pages(at, len);
            with_signals_blocked(|| self.ranges.with(|ranges| ranges.forget(range)));
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

/// Whole pages of a range, as the kernel rounds it.
fn whole_pages(at: u64, len: u64) -> AddressRange {
    AddressRange::new(at - at % sys::PAGE, at.saturating_add(len).next_multiple_of(sys::PAGE))
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
        let mut ranges = Box::new(Ranges::new());
        for &(add, start, end) in steps {
            ranges.forget(AddressRange::new(start, end));
            if add {
                ranges.push(AddressRange::new(start, end));
            }
        }
        let known = &ranges.list[..ranges.len];
        let mut list = known.iter().map(|range| (range.start, range.end)).collect::<Vec<_>>();
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
