//! The threads of a process that the plane knows, each with a stack for the agent to work on.
//!
//! A patched call site finds its thread by the thread pointer (fs base), which differs between
//! threads of every library in use; the entry code in `arch` has the search written out. A thread
//! that is not known runs natively until it meets the entry code with a spare place at hand.
//!
//! Invariant: once a [`Thread`] is in the table, only the thread that it belongs to touches it, its
//! signal handlers and vfork child included. Exceptions are its TID, and the atomics by which it is
//! stopped.

mod thread_slots;

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use super::alternate_stack::{self, AUTODISARM, Altstack};
use super::kernel_signals::{self, Action};
use super::reported_call_state::Begun;
use super::sent_signals;
use crate::address_range::AddressRange;
use crate::address_space;
use crate::arch::{
    self, Context, RUNAHEAD_SPARE, RUNAHEAD_THREADS, STACK_BYTES, THREAD_HASH, THREAD_HASHES,
    THREAD_PROBES,
};
use crate::sys::{self, Switches, nr};

pub(super) use thread_slots::{expect_thread, expected_came, prepare_spare, take_spares};

/// Bytes of a thread's stack for signals: many frames may lie there for a moment.
const SIGNAL_STACK_BYTES: u64 = 256 << 10;
/// Bytes without access below the stack for signals.
const GUARD_BYTES: u64 = 4096;

/// State of one thread. The entry code in `arch` uses the first fields.
#[repr(C, align(16))]
pub struct Thread {
    /// Highest address of the agent's stack, where work on it begins.
    pub(crate) stack_top: Cell<u64>,
    /// 1 while the agent runs or waits in the kernel on the program's behalf.
    pub(crate) depth: Cell<u64>,
    /// Stack pointer to which `abandon` returns.
    pub(crate) resume: Cell<u64>,
    /// The program's stack pointer, while the agent's stack is in use.
    pub(crate) program_stack: Cell<u64>,
    /// The call under way is one of those for which signals may wait.
    pub(super) may_hold: Cell<bool>,
    /// 1 while signals wait until the program goes on after the call under way
    /// ([`super::signal_handlers`]).
    pub(crate) held: Cell<u64>,
    /// Signal mask with which the program goes on then.
    pub(crate) held_mask: Cell<u64>,
    /// The program's alternate signal stack.
    pub(super) alternate: Cell<Altstack>,
    /// Thread pointer plus one; 0 while the place is free.
    key: Cell<u64>,
    /// Number of the thread.
    tid: Cell<u32>,
    /// Dispatch is armed for it.
    pub(super) armed: Cell<bool>,
    /// Result of the call under way, once the kernel has given it.
    pub(super) result: Cell<Option<i64>>,
    /// The frame in which it is stopped ([`super::thread_stop`]). Read by other threads.
    pub(super) stopped_in: AtomicPtr<Context>,
    /// The number of the stop for which it has come there; 0: it is at work.
    pub(super) stopped_for: AtomicU32,
    /// The number of the last stop for which it could not come.
    pub(super) refused: AtomicU32,
    /// The program believes that SIGSYS is blocked.
    pub(super) blocked: Cell<bool>,
    /// Signal mask before signals were blocked ([`super::signal_block`]).
    pub(super) mask: Cell<Option<u64>>,
    /// Values to restore when the vfork child has gone that uses this thread; None: no child does.
    pub(super) lent: Cell<Option<Lent>>,
    /// True while this thread makes another, for which a place is reserved ([`expect_thread`]).
    pub(super) expects: Cell<bool>,
    /// Stack on which the program is to go on after the call under way; 0: its own.
    pub(crate) go_on_at: Cell<u64>,
    /// Number of the call by which this thread makes a child or a thread.
    pub(super) makes: Cell<u64>,
    /// The call under way that is reported, or that is to be made again ([`super::call_restart`]).
    pub(super) begun: Cell<Option<Begun>>,
    /// Signal mask for the start of a handler that was itself interrupted before it could block
    /// signals.
    pub(super) mask_to_enter: Cell<Option<u64>>,
    /// True while the thread asks the policy of a call that has come as a signal, though all are
    /// reported.
    pub(super) is_asking: Cell<bool>,
    /// True if a stop has interrupted the agent's own work that waits.
    pub(super) is_disturbed: Cell<bool>,
    /// First address and length in bytes of the memory that holds the arguments of the exec under
    /// way; (0, 0): none.
    pub(super) exec_memory: Cell<AddressRange>,
    /// Switches of this thread when the policy last asked.
    pub switches: Cell<Option<Switches>>,
    /// Page faults of this thread that waited, as the policy last saw them.
    pub faults: Cell<Option<Faults>>,
    mapped: Cell<[u64; 2]>,
}

/// Page faults of a thread that waited for a device, as the policy last saw them.
#[derive(Clone, Copy)]
pub struct Faults {
    /// Number of the timer by which the policy looks.
    pub timer: u32,
    /// Period of the timer: nanoseconds of the thread's processor time.
    pub every_ns: u64,
    /// Page faults at the last look.
    pub seen: u64,
    /// Time of the last look in time-stamp ticks, and the thread's processor time at that look in
    /// nanoseconds.
    pub at: (u64, u64),
}

/// State of a parent's thread that a vfork child may change.
#[derive(Clone, Copy)]
pub(super) struct Lent {
    alternate: Altstack,
    blocked: bool,
    key: u64,
    /// The child's own action for SIGSYS.
    pub(super) sigsys: Action,
}

impl Lent {
    pub(super) fn with_sigsys(self, sigsys: Action) -> Self {
        Lent { sigsys, ..self }
    }
}

/// Two words of the table: key and thread.
#[repr(C)]
struct Slot {
    key: AtomicU64,
    thread: AtomicPtr<Thread>,
}

/// Threads with dispatch armed.
static ARMED: AtomicU32 = AtomicU32::new(0);

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
    /// Sets if signals may wait until the call that begins is over.
    pub(super) fn hold_if(&self, may: bool) {
        self.may_hold.set(may);
        if !may {
            self.release();
        }
    }

    /// Makes signals wait from here on. `mask` is the program's.
    pub(super) fn hold(&self, mask: u64) {
        self.held_mask.set(mask);
        self.held.set(1);
    }

    /// Returns the mask that the program believes to have when the kernel has `mask`.
    pub fn believed_mask(&self, mask: u64) -> u64 {
        self.as_believed(mask)
    }

    /// Notes the mask that the program believes to have. Returns the one for the kernel.
    pub fn believe_mask(&self, mask: u64) -> u64 {
        self.blocked.set(kernel_signals::has_sigsys(mask));
        kernel_signals::without_sigsys(mask)
    }

    /// `mask` with SIGSYS as the program believes it to be.
    pub(super) fn as_believed(&self, mask: u64) -> u64 {
        if self.blocked.get() {
            mask | kernel_signals::SYS_BIT
        } else {
            kernel_signals::without_sigsys(mask)
        }
    }

    /// True if a signal has retired this thread while the agent worked on a call of it. The
    /// kernel's mask must be the program's then, SIGSYS included.
    pub(super) fn has_left(&self) -> bool {
        crate::interception_state::is_retired() && !self.armed.get()
    }

    /// Lets held signals come, here.
    pub(super) fn release(&self) {
        if let Some(mask) = self.take_held() {
            sys::set_mask(self.as_believed(mask));
        }
    }

    /// Sets the stack pointer with which the program goes on after the call under way.
    pub fn go_on_at(&self, stack: u64) {
        self.go_on_at.set(stack);
    }

    /// Drops held signals: this is another process.
    pub fn forget_held(&self) {
        self.held.set(0);
    }

    /// Ends the wait of held signals. Returns the mask to go on with, if there were any.
    pub(super) fn take_held(&self) -> Option<u64> {
        (self.held.replace(0) != 0).then(|| self.held_mask.get())
    }

    /// Maps a place with a stack of `stack` bytes, for a thread to come.
    fn map(stack: usize) -> sys::Result<&'static Thread> {
        let at = address_space::map_stack(stack as u64)?;
        let place = (at + stack as u64 - size_of::<Thread>() as u64) & !15;
        let top = (place - SIGNAL_STACK_BYTES) & !(GUARD_BYTES - 1);
        // SAFETY: memory that has just been mapped, of which nothing is used.
        unsafe { sys::protect(top, GUARD_BYTES, 0) }?;
        let thread = Thread {
            stack_top: Cell::new(top),
            depth: Cell::new(0),
            resume: Cell::new(0),
            program_stack: Cell::new(0),
            may_hold: Cell::new(false),
            held: Cell::new(0),
            held_mask: Cell::new(0),
            alternate: Cell::new(Altstack::NONE),
            key: Cell::new(0),
            tid: Cell::new(0),
            armed: Cell::new(false),
            result: Cell::new(None),
            stopped_in: AtomicPtr::new(core::ptr::null_mut()),
            stopped_for: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            blocked: Cell::new(false),
            mask: Cell::new(None),
            lent: Cell::new(None),
            expects: Cell::new(false),
            go_on_at: Cell::new(0),
            makes: Cell::new(0),
            begun: Cell::new(None),
            mask_to_enter: Cell::new(None),
            is_asking: Cell::new(false),
            is_disturbed: Cell::new(false),
            exec_memory: Cell::new(AddressRange::EMPTY),
            switches: Cell::new(None),
            faults: Cell::new(None),
            mapped: Cell::new([at, stack as u64]),
        };
        // SAFETY: the end of a fresh mapping, aligned, with room for one; it is unmapped only when
        // its thread has ended.
        unsafe {
            (place as *mut Thread).write(thread);
            Ok(&*(place as *const Thread))
        }
    }

    /// Maps the place of the program's first thread.
    pub(super) fn map_first() -> sys::Result<&'static Thread> {
        Self::map(STACK_BYTES)
    }

    /// True if no thread has moved into this place yet.
    pub(super) fn is_spare(&self) -> bool {
        self.key.get() == 0
    }

    /// Enters the calling thread into the table. Returns false if the table is full.
    pub(super) fn move_in(&'static self) -> bool {
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
    pub(super) fn rename(&'static self) {
        if self.key.get() != key_of_this() {
            self.move_out();
            if !self.move_in() {
                self.disarm();
            }
        }
    }

    /// The policy's timer does not poke this thread any more, which is the one that runs: soon that
    /// may have another meaning here.
    pub(super) fn end_pokes(&self) {
        let Some(faults) = self.faults.take() else { return };
        // SAFETY: a timer of the policy's.
        let _ = unsafe { sys::raw(nr::TIMER_DELETE, [faults.timer.into(), 0, 0, 0, 0, 0]) };
        kernel_signals::drop_timers(sent_signals::POKE);
    }

    /// Arms dispatch for this thread, which is the one that runs.
    pub(super) fn arm(&self) -> sys::Result<()> {
        arm_dispatch()?;
        if !self.armed.replace(true) {
            ARMED.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// This thread's calls are the kernel's again, but for those from patched sites. True if no
    /// other thread is armed.
    pub(super) fn disarm(&self) -> bool {
        disarm_dispatch();
        let was = self.armed.replace(false);
        if was {
            alternate_stack::give_kernel(self.alternate.get());
        }
        was && ARMED.fetch_sub(1, Relaxed) == 1
    }

    /// This thread is about to end: its place is for others, once it is not on a stack of it any
    /// more.
    pub(super) fn leave(&'static self) {
        self.disarm();
        self.move_out();
        self.depth.set(0);
        self.may_hold.set(false);
        self.begun.set(None);
        self.alternate.set(Altstack::NONE);
        self.lent.set(None);
    }

    /// Makes this place a spare one: it was not needed, or its thread has left.
    pub(super) fn give_back(&self) {
        let own = core::ptr::from_ref(self).cast_mut();
        let none = core::ptr::null_mut();
        let free = |s: &AtomicPtr<Thread>| s.compare_exchange(none, own, Release, Relaxed).is_ok();
        if !RUNAHEAD_SPARE.iter().any(free) {
            let [at, len] = self.mapped.get();
            // SAFETY: the place is in no table, and no thread is on its stack: its own thread took
            // it from the table, and is on the program's stack.
            unsafe { address_space::give_back(at, len) };
        }
    }

    /// The stack on which the kernel puts its frames.
    pub(super) fn signal_stack(&self) -> Altstack {
        let first = self.stack_top.get() + GUARD_BYTES;
        let bytes = core::ptr::from_ref(self) as u64 - first;
        Altstack { first, flags: AUTODISARM, bytes }
    }

    /// The frame of a signal is on that, and not in memory of the program's.
    pub(super) fn has_frame(&self, context: &Context) -> bool {
        self.signal_stack().holds(core::ptr::from_ref(context) as u64)
    }

    /// A stack pointer is on the stack that the agent works on, which may be empty.
    pub(super) fn is_on_stack(&self, pointer: u64) -> bool {
        (self.mapped.get()[0]..=self.stack_top.get()).contains(&pointer)
    }

    /// From now on the kernel is to use ours, which holds no frame.
    pub(super) fn take_signals(&self) {
        alternate_stack::give_kernel(self.signal_stack());
    }

    /// Works on the agent's stack for a call that the program makes at `stack`, which may be its
    /// own. Where we are on that, too, so that what lies there is needed: from where we are.
    ///
    /// # Safety
    /// The depth is held.
    pub(super) unsafe fn on_stack(&self, stack: u64, argument: u64, work: extern "C" fn(u64)) {
        let here = core::ptr::from_ref(&argument) as u64;
        let elsewhere = self.signal_stack().holds(here);
        self.program_stack.set(if elsewhere { stack } else { here });
        // SAFETY: passed on to the caller: that stack is free.
        unsafe { arch::on_stack(self.stack_top.get(), argument, work) };
    }

    /// Number of the thread (gettid(2)).
    pub fn number(&self) -> u32 {
        self.tid.get()
    }

    /// A vfork child is using this.
    pub fn is_at_work(&self) -> bool {
        self.depth.get() != 0
    }

    /// True while a vfork child uses this thread.
    pub fn is_lent(&self) -> bool {
        self.lent.get().is_some()
    }

    /// A vfork child starts to use this, with that action for SIGSYS.
    pub(super) fn lend(&self, sigsys: Action) {
        self.lent.set(Some(Lent {
            alternate: self.alternate.get(),
            blocked: self.blocked.get(),
            key: self.key.get(),
            sigsys,
        }));
    }

    /// The vfork child has gone, if there was one.
    pub(super) fn take_back(&'static self) {
        let Some(lent) = self.lent.take() else { return };
        self.alternate.set(lent.alternate);
        self.mask.set(None);
        self.blocked.set(lent.blocked);
        if lent.key != self.key.get() {
            self.rename();
        }
    }
}

/// Resets the count of armed threads and the table in a forked child, whose only thread is
/// `thread`.
pub(super) fn forget_others(thread: &Thread) {
    // Timers are not inherited.
    thread.faults.set(None);
    ARMED.store(0, Relaxed);
    thread_slots::expect_none();
    thread.armed.set(false);
}

/// Calls `each` with every other thread that is known. Only what the module's invariant allows to
/// other threads may be touched.
pub(super) fn others(mut each: impl FnMut(&Thread)) {
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

/// Threads with dispatch armed.
pub(super) fn armed() -> u32 {
    ARMED.load(Relaxed)
}

/// Switches dispatch on for the calling thread.
pub(super) fn arm_dispatch() -> sys::Result<()> {
    use linux_raw_sys::prctl::{PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON};
    let text = crate::interception_state::text();
    let range = [PR_SYS_DISPATCH_ON.into(), text.start, text.bytes(), 0];
    // SAFETY: the range holds every call instruction of the agent, the signal's restorer included;
    // without a selector byte there is nothing that the program could overwrite.
    unsafe { sys::prctl(PR_SET_SYSCALL_USER_DISPATCH, range) }.map(|_| ())
}

/// Switches it off.
pub(super) fn disarm_dispatch() {
    use linux_raw_sys::prctl::{PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF};
    // SAFETY: switching dispatch off leaves native calls.
    let _ =
        unsafe { sys::prctl(PR_SET_SYSCALL_USER_DISPATCH, [PR_SYS_DISPATCH_OFF.into(), 0, 0, 0]) };
}
