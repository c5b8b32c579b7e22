//! Parents that wait for children that stall.
//!
//! A shell reads little itself. The programs that it starts come from storage, each only when the
//! one before it has ended. Their parent can run ahead while it waits for them. It does so if they
//! report stalls and some process has waited for storage of late. A child that executes a file that
//! is not in memory counts it on a page that it shares with its parent.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use linux_raw_sys::general as k;

use crate::address_space;
use crate::shadow::runner_children::TARGET_CHILDREN;
use crate::sys::{self, AT_FDCWD};

/// Counts of executed programs, written by children and read by their parent.
#[repr(C)]
struct ExecCounts {
    /// Executed programs that were not in memory.
    cold: AtomicU32,
    /// Executed programs that were in memory.
    warm: AtomicU32,
}

/// Stalls of child processes, as reported on shared pages.
pub(crate) struct ChildStalls {
    /// Page on which this process's children report; null before the first child.
    from_children: AtomicPtr<ExecCounts>,
    /// Page on which this process reports to its parent; null if the parent has none.
    to_parent: AtomicPtr<ExecCounts>,
    /// Value of `cold` at the last sync that it caused.
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

    /// Prepares the shared page before a child is made. Without a page the child does not report.
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
                // SAFETY: another thread's page was stored first; no reference to this one exists.
                unsafe { address_space::give_back(at, size_of::<ExecCounts>() as u64) };
            }
        }
    }

    /// Makes the inherited page the one for the parent, in a new child.
    pub(super) fn start_in_child(&self) {
        let parents = self.from_children.swap(core::ptr::null_mut(), Relaxed);
        let old = self.to_parent.swap(parents, Relaxed);
        if !old.is_null() {
            // SAFETY: of the parent's parent; the only thread of the child has no reference to it.
            unsafe { address_space::give_back(old as u64, size_of::<ExecCounts>() as u64) };
        }
        self.synced_cold.store(0, Relaxed);
    }

    /// Counts the exec of a program. `lent`: by a vfork child, which shares its parent's memory.
    pub(super) fn note_exec(&self, cold: bool, lent: bool) {
        if let Some(page) = Self::counts(if lent { &self.from_children } else { &self.to_parent }) {
            let count = if cold { &page.cold } else { &page.warm };
            count.fetch_add(1, Relaxed);
        }
    }

    /// Takes the number of executed programs that were in memory since the last call: the gain from
    /// running ahead of children.
    pub(super) fn take_warm_execs(&self) -> u64 {
        Self::counts(&self.from_children).map_or(0, |page| page.warm.swap(0, Relaxed).into())
    }

    /// True once the process has prepared for a child.
    pub(super) fn has_children(&self) -> bool {
        !self.from_children.load(Relaxed).is_null()
    }

    /// True if children have stalled since the last call.
    pub(super) fn have_stalled(&self) -> bool {
        Self::counts(&self.from_children).is_some_and(|page| {
            let cold = page.cold.load(Relaxed);
            self.synced_cold.swap(cold, Relaxed) != cold
        })
    }

    /// Stores the PIDs of this thread's children for the shadow that it is about to make.
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
