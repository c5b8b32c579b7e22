//! The table by which a thread finds its state: by its thread pointer, or else by its TID.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};

use super::thread_state::Thread;
use crate::alternate_stack::Altstack;
use crate::arch::{self, RUNAHEAD_THREADS, THREAD_HASH, THREAD_HASHES, THREAD_PROBES};
use crate::sys;

/// Two words of the table: key and thread.
#[repr(C)]
struct Slot {
    key: AtomicU64,
    thread: AtomicPtr<Thread>,
}

fn slots(key: u64) -> impl Iterator<Item = &'static Slot> {
    const _: () = assert!(size_of::<Slot>() == 16);
    let first = (key.wrapping_mul(THREAD_HASH) >> 32) as usize % THREAD_HASHES;
    let table = RUNAHEAD_THREADS.as_ptr().cast::<Slot>();
    // SAFETY: places up to THREAD_HASHES + THREAD_PROBES, of twice THREAD_HASHES; all-zero pages
    // are free slots, and slots are atomics.
    (first..first + THREAD_PROBES).map(move |n| unsafe { &*table.add(n) })
}

/// The thread pointer of this thread.
pub fn pointer() -> u64 {
    arch::thread_pointer(arch::tells_threads_apart())
}

fn key_of_this() -> u64 {
    pointer().wrapping_add(1)
}

/// This thread, if it is known.
pub fn current() -> Option<&'static Thread> {
    find(key_of_this()).or_else(find_by_number)
}

fn find(key: u64) -> Option<&'static Thread> {
    let slot = slots(key).find(|slot| slot.key.load(Relaxed) == key)?;
    // SAFETY: set before the key was, to a place that outlives its thread.
    unsafe { slot.thread.load(Relaxed).as_ref() }
}

/// Finds a thread by its TID: the program has changed its thread pointer without a system call.
fn find_by_number() -> Option<&'static Thread> {
    let tid = sys::gettid();
    let table = RUNAHEAD_THREADS.as_ptr().cast::<Slot>();
    (0..THREAD_HASHES + THREAD_PROBES).find_map(|n| {
        // SAFETY: as in `slots`.
        let slot = unsafe { &*table.add(n) };
        // SAFETY: of other threads' places only the number is read, which is written once, before
        // they are in the table.
        let thread = unsafe { slot.thread.load(Relaxed).as_ref() }?;
        let is_this = slot.key.load(Relaxed) != 0 && thread.tid.get() == tid;
        is_this.then(|| {
            thread.rename();
            thread
        })
    })
}

impl Thread {
    /// Enters the calling thread into the table. Returns false if the table is full.
    pub(crate) fn move_in(&'static self) -> bool {
        let key = key_of_this();
        self.tid.set(sys::gettid());
        let own = core::ptr::from_ref(self).cast_mut();
        let old = slots(key).find(|slot| slot.key.load(Relaxed) == key);
        if let Some(slot) = old {
            // The slot of a thread that has ended unseen.
            slot.thread.store(own, Relaxed);
            self.key.set(key);
            return true;
        }
        for slot in slots(key) {
            let free = core::ptr::null_mut();
            if slot.thread.compare_exchange(free, own, Relaxed, Relaxed).is_ok() {
                self.key.set(key);
                slot.key.store(key, Release);
                return true;
            }
        }
        false
    }

    fn move_out(&self) {
        let key = self.key.replace(0);
        if let Some(slot) = slots(key).find(|slot| slot.key.load(Relaxed) == key) {
            slot.key.store(0, Relaxed);
            slot.thread.store(core::ptr::null_mut(), Release);
        }
    }

    /// The thread pointer may have changed.
    pub(crate) fn rename(&'static self) {
        if self.key.get() != key_of_this() {
            self.move_out();
            if !self.move_in() {
                self.disarm();
            }
        }
    }

    /// This thread is about to end: its place is for others, once it is not on a stack of it any
    /// more.
    pub(crate) fn leave(&'static self) {
        self.disarm();
        self.move_out();
        self.depth.set(0);
        self.may_hold_signals.set(false);
        self.call_progress.set(None);
        self.alternate.set(Altstack::NONE);
        self.lent.set(None);
    }

    /// The vfork child has gone, if there was one.
    pub(crate) fn take_back(&'static self) {
        let Some(lent) = self.lent.take() else { return };
        self.alternate.set(lent.alternate);
        self.mask.set(None);
        self.blocked.set(lent.blocked);
        if lent.key != self.key.get() {
            self.rename();
        }
    }
}

/// Calls `each` with every other thread that is known. Only what the module's invariant allows to
/// other threads may be touched.
pub(crate) fn others(mut each: impl FnMut(&Thread)) {
    let own = sys::gettid();
    let table = RUNAHEAD_THREADS.as_ptr().cast::<Slot>();
    for n in 0..THREAD_HASHES + THREAD_PROBES {
        // SAFETY: as in `slots`.
        let slot = unsafe { &*table.add(n) };
        // SAFETY: as in `find_by_number`.
        let thread = unsafe { slot.thread.load(Acquire).as_ref() };
        if let Some(thread) = thread.filter(|t| t.tid.get() != 0 && t.tid.get() != own) {
            each(thread);
        }
    }
}
