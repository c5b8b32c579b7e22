//! Parents that wait for children that stall.
//!
//! A shell reads little itself: it is the programs that it starts that come from storage, each only
//! when the one before it has ended. Their parent may run ahead while it waits for them, and does
//! if it hears that they stall, and somebody has waited of late: a child that executes a file that
//! is not in memory says so on a page that it shares with its parent.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::Target;
use super::call_outcome::{Outcome, SyncSide};
use crate::address_space;
use crate::arch::ticks;
use crate::plane::{Call, signal_block};
use crate::session::Session;
use crate::shadow::runner_children::TARGET_CHILDREN;
use crate::sys::{self, AT_FDCWD, nr};

/// Written by children, read by their parent.
#[repr(C)]
struct ExecCounts {
    /// Programs executed that were not in memory.
    cold: AtomicU32,
    /// Programs executed that were in memory.
    warm: AtomicU32,
}

/// See the module's text.
pub(crate) struct ChildStalls {
    /// Where this process hears of its children; null before the first.
    from_children: AtomicPtr<ExecCounts>,
    /// Where this process's parent hears of it, if that is known to us.
    to_parent: AtomicPtr<ExecCounts>,
    /// What was known of `cold` at the last sync that followed from it.
    synced_cold: AtomicU32,
}

impl ChildStalls {
    pub(super) const fn new() -> Self {
        let null = core::ptr::null_mut();
        ChildStalls {
            from_children: AtomicPtr::new(null),
            to_parent: AtomicPtr::new(null),
            synced_cold: AtomicU32::new(0),
        }
    }

    fn counts(of: &AtomicPtr<ExecCounts>) -> Option<&'static ExecCounts> {
        // SAFETY: null, or a page of ours that stays mapped, of atomics.
        unsafe { of.load(Relaxed).as_ref() }
    }

    /// A child is about to be made. Without a page it does without.
    pub(super) fn expect_child(&self) {
        if self.from_children.load(Relaxed).is_null()
            && let Ok(at) = address_space::map_family(size_of::<ExecCounts>() as u64)
        {
            let new = at as *mut ExecCounts;
            if self
                .from_children
                .compare_exchange(core::ptr::null_mut(), new, Relaxed, Relaxed)
                .is_err()
            {
                // SAFETY: another thread's came first; nobody knows of this one.
                unsafe { address_space::give_back(at, size_of::<ExecCounts>() as u64) };
            }
        }
    }

    /// This is the child.
    pub(super) fn start_in_child(&self) {
        let parents = self.from_children.swap(core::ptr::null_mut(), Relaxed);
        let old = self.to_parent.swap(parents, Relaxed);
        if !old.is_null() {
            // SAFETY: of the parent's parent; the only thread of the child has no reference to it.
            unsafe { address_space::give_back(old as u64, size_of::<ExecCounts>() as u64) };
        }
        self.synced_cold.store(0, Relaxed);
    }

    /// A program is executed; `lent` if by a vfork child, which has its parent's memory.
    pub(super) fn note_exec(&self, cold: bool, lent: bool) {
        if let Some(page) = Self::counts(if lent { &self.from_children } else { &self.to_parent }) {
            let count = if cold { &page.cold } else { &page.warm };
            count.fetch_add(1, Relaxed);
        }
    }

    /// Programs that children have found in memory since this was last asked: what running ahead of
    /// them is good for.
    pub(super) fn take_warm_execs(&self) -> u64 {
        Self::counts(&self.from_children).map_or(0, |page| page.warm.swap(0, Relaxed).into())
    }

    /// Children have stalled since this was last asked.
    fn have_stalled(&self) -> bool {
        Self::counts(&self.from_children).is_some_and(|page| {
            let cold = page.cold.load(Relaxed);
            self.synced_cold.swap(cold, Relaxed) != cold
        })
    }

    /// Notes the children of this thread, for the shadow that it is about to make.
    pub(super) fn note_children(&self) {
        // SAFETY: under the lock of syncs, so by one thread at a time.
        let (len, list) = unsafe { TARGET_CHILDREN.get() };
        *len = 0;
        if self.from_children.load(Relaxed).is_null() {
            return;
        }
        let path = c"/proc/thread-self/children".as_ptr() as u64;
        let Ok(fd) = sys::openat2(AT_FDCWD, path, k::O_RDONLY | k::O_CLOEXEC, 0, 0) else { return };
        let mut text = [0u8; 512];
        let got = sys::pread(fd, &mut text, 0).unwrap_or(0);
        let _ = sys::close(fd);
        let numbers = text[..got].split(|b| *b == b' ');
        let numbers = numbers.filter_map(|n| core::str::from_utf8(n).ok()?.parse().ok());
        for (place, number) in list.iter_mut().zip(numbers) {
            *place = number;
            *len += 1;
        }
    }
}

impl Target {
    /// A call that waits for children, perhaps: a moment to run ahead.
    pub(super) fn wait_for_children(&self, session: &'static Session, call: &Call) -> Outcome {
        if !self.child_stalls.have_stalled() || !session.slow_devices().is_any_slow(ticks) {
            return Outcome::Native;
        }
        let mask = signal_block::begin();
        self.join(session);
        if self.sync(session, call) == SyncSide::Shadow {
            return Outcome::InShadow;
        }
        signal_block::end(mask);
        Outcome::Native
    }

    /// The program reads: if that is from a pipe, what children say of themselves is heard meanwhile.
    pub(super) fn read_from_children(&self, session: &'static Session, call: &Call) -> Outcome {
        let waits = !self.child_stalls.from_children.load(Relaxed).is_null()
            && matches!(call.nr, nr::READ)
            && sys::is_pipe(call.fd(0));
        if waits { self.wait_for_children(session, call) } else { Outcome::Native }
    }
}
