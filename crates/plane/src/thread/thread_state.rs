//! State of one thread, and its stacks.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use crate::address_range::AddressRange;
use crate::alternate_stack::{self, AUTODISARM, Altstack};
use crate::arch::{self, Context};
use crate::kernel_signals::{self, Action};
use crate::reported_call_state::CallProgress;
use crate::sent_signals;
use crate::sys::{self, Switches, nr};

/// Bytes without access below the stack for signals.
pub(super) const GUARD_BYTES: u64 = 4096;

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
    pub(crate) may_hold_signals: Cell<bool>,
    /// 1 while signals wait until the program goes on after the call under way
    /// ([`crate::signal_handlers`]).
    pub(crate) has_held_signals: Cell<u64>,
    /// Signal mask with which the program goes on when held signals may come.
    pub(crate) mask_after_call: Cell<u64>,
    /// The program's alternate signal stack.
    pub(crate) alternate: Cell<Altstack>,
    /// Thread pointer plus one; 0 while the place is free.
    pub(super) key: Cell<u64>,
    /// Number of the thread.
    pub(super) tid: Cell<u32>,
    /// Dispatch is armed for it.
    pub(crate) armed: Cell<bool>,
    /// Result of the call under way, once the kernel has given it.
    pub(crate) result: Cell<Option<i64>>,
    /// The frame in which it is stopped ([`crate::thread_stop`]). Read by other threads.
    pub(crate) stopped_in: AtomicPtr<Context>,
    /// The number of the stop for which it has come there; 0: it is at work.
    pub(crate) stopped_for: AtomicU32,
    /// The number of the last stop for which it could not come.
    pub(crate) refused: AtomicU32,
    /// Signals that it takes as soon as it goes on from where it is stopped.
    pub(crate) due_signals: AtomicU64,
    /// The program believes that SIGSYS is blocked.
    pub(crate) blocked: Cell<bool>,
    /// Signal mask before signals were blocked ([`crate::signal_block`]).
    pub(crate) mask: Cell<Option<u64>>,
    /// Values to restore when the vfork child has gone that uses this thread; None: no child does.
    pub(crate) lent: Cell<Option<LentState>>,
    /// True while this thread makes another, for which a place is reserved
    /// ([`super::expect_thread`]).
    pub(crate) expects: Cell<bool>,
    /// Stack on which the program is to go on after the call under way; 0: its own.
    pub(crate) go_on_at: Cell<u64>,
    /// Number of the call by which this thread makes a child or a thread.
    pub(crate) makes: Cell<u64>,
    /// The call under way that is reported, or that is to be made again ([`crate::call_restart`]).
    pub(crate) call_progress: Cell<Option<CallProgress>>,
    /// Signal mask for the start of a handler that was itself interrupted before it could block
    /// signals.
    pub(crate) mask_to_enter: Cell<Option<u64>>,
    /// True while the thread asks the policy of a call that has come as a signal, though all are
    /// reported.
    pub(crate) is_asking: Cell<bool>,
    /// True if a stop has interrupted the agent's own work that waits.
    pub(crate) is_disturbed: Cell<bool>,
    /// First address and length in bytes of the memory that holds the arguments of the exec under
    /// way; (0, 0): none.
    pub(crate) exec_memory: Cell<AddressRange>,
    /// Switches of this thread when the policy last asked.
    pub switches: Cell<Option<Switches>>,
    /// Page faults of this thread that waited, as the policy last saw them.
    pub faults: Cell<Option<Faults>>,
    /// First address and length in bytes of the mapping that holds this.
    pub(super) mapped: Cell<[u64; 2]>,
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
pub(crate) struct LentState {
    pub(super) alternate: Altstack,
    pub(super) blocked: bool,
    pub(super) key: u64,
    /// The child's own action for SIGSYS.
    pub(crate) sigsys: Action,
}

impl LentState {
    pub(crate) fn with_sigsys(self, sigsys: Action) -> Self {
        LentState { sigsys, ..self }
    }
}

impl Thread {
    /// State of a thread to come, in the mapping `mapped` (address and length in bytes). The
    /// agent's stack for it ends at `stack_top`.
    pub(super) fn new(stack_top: u64, mapped: [u64; 2]) -> Self {
        Thread {
            stack_top: Cell::new(stack_top),
            depth: Cell::new(0),
            resume: Cell::new(0),
            program_stack: Cell::new(0),
            may_hold_signals: Cell::new(false),
            has_held_signals: Cell::new(0),
            mask_after_call: Cell::new(0),
            alternate: Cell::new(Altstack::NONE),
            key: Cell::new(0),
            tid: Cell::new(0),
            armed: Cell::new(false),
            result: Cell::new(None),
            stopped_in: AtomicPtr::new(core::ptr::null_mut()),
            stopped_for: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            due_signals: AtomicU64::new(0),
            blocked: Cell::new(false),
            mask: Cell::new(None),
            lent: Cell::new(None),
            expects: Cell::new(false),
            go_on_at: Cell::new(0),
            makes: Cell::new(0),
            call_progress: Cell::new(None),
            mask_to_enter: Cell::new(None),
            is_asking: Cell::new(false),
            is_disturbed: Cell::new(false),
            exec_memory: Cell::new(AddressRange::EMPTY),
            switches: Cell::new(None),
            faults: Cell::new(None),
            mapped: Cell::new(mapped),
        }
    }

    /// Sets if signals may wait until the call that begins is over.
    pub(crate) fn allow_held_signals(&self, may: bool) {
        self.may_hold_signals.set(may);
        if !may {
            self.release_held_signals();
        }
    }

    /// Makes signals wait from here on. `mask` is the program's.
    pub(crate) fn hold_signals(&self, mask: u64) {
        self.mask_after_call.set(mask);
        self.has_held_signals.set(1);
    }

    /// Notes the mask that the program believes to have. Returns the one for the kernel.
    pub fn believe_mask(&self, mask: u64) -> u64 {
        self.blocked.set(kernel_signals::has_sigsys(mask));
        kernel_signals::without_sigsys(mask)
    }

    /// Returns the mask that the program believes to have when the kernel has `mask`.
    pub fn as_believed(&self, mask: u64) -> u64 {
        if self.blocked.get() {
            mask | kernel_signals::SYS_BIT
        } else {
            kernel_signals::without_sigsys(mask)
        }
    }

    /// True if a signal has retired this thread while the agent worked on a call of it. The
    /// kernel's mask must be the program's then, SIGSYS included.
    pub(crate) fn has_left(&self) -> bool {
        crate::interception_state::is_retired() && !self.armed.get()
    }

    /// Lets held signals come, here.
    pub(crate) fn release_held_signals(&self) {
        if let Some(mask) = self.take_held_signals() {
            sys::set_mask(self.as_believed(mask));
        }
    }

    /// Sets the stack pointer with which the program goes on after the call under way.
    pub fn go_on_at(&self, stack: u64) {
        self.go_on_at.set(stack);
    }

    /// Drops held signals: this is another process.
    pub fn drop_held_signals(&self) {
        self.has_held_signals.set(0);
    }

    /// Ends the wait of held signals. Returns the mask to go on with, if there were any.
    pub(crate) fn take_held_signals(&self) -> Option<u64> {
        (self.has_held_signals.replace(0) != 0).then(|| self.mask_after_call.get())
    }

    /// True if no thread has moved into this place yet.
    pub(crate) fn is_spare(&self) -> bool {
        self.key.get() == 0
    }

    /// The policy's timer does not poke this thread any more, which is the one that runs: soon that
    /// may have another meaning here.
    pub(crate) fn end_pokes(&self) {
        let Some(faults) = self.faults.take() else { return };
        // SAFETY: a timer of the policy's.
        let _ = unsafe { sys::raw(nr::TIMER_DELETE, [faults.timer.into(), 0, 0, 0, 0, 0]) };
        kernel_signals::drop_timers(sent_signals::POKE);
    }

    /// The stack on which the kernel puts its frames.
    pub(crate) fn signal_stack(&self) -> Altstack {
        let first = self.stack_top.get() + GUARD_BYTES;
        let bytes = core::ptr::from_ref(self) as u64 - first;
        Altstack { first, flags: AUTODISARM, bytes }
    }

    /// The frame of a signal is on that, and not in memory of the program's.
    pub(crate) fn has_frame(&self, context: &Context) -> bool {
        self.signal_stack().holds(core::ptr::from_ref(context) as u64)
    }

    /// A stack pointer is on the stack that the agent works on, which may be empty.
    pub(crate) fn is_on_stack(&self, pointer: u64) -> bool {
        (self.mapped.get()[0]..=self.stack_top.get()).contains(&pointer)
    }

    /// From now on the kernel is to use ours, which holds no frame.
    pub(crate) fn take_signals(&self) {
        alternate_stack::give_kernel(self.signal_stack());
    }

    /// Works on the agent's stack for a call that the program makes at `stack`, which may be its
    /// own. Where we are on that, too, so that what lies there is needed: from where we are.
    ///
    /// # Safety
    /// The depth is held.
    pub(crate) unsafe fn on_stack(&self, stack: u64, argument: u64, work: extern "C" fn(u64)) {
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

    /// True while the agent works for this thread, or for a vfork child that uses it.
    pub fn is_at_work(&self) -> bool {
        self.depth.get() != 0
    }

    /// True while a vfork child uses this thread.
    pub fn is_lent(&self) -> bool {
        self.lent.get().is_some()
    }

    /// A vfork child starts to use this, with that action for SIGSYS.
    pub(crate) fn lend(&self, sigsys: Action) {
        self.lent.set(Some(LentState {
            alternate: self.alternate.get(),
            blocked: self.blocked.get(),
            key: self.key.get(),
            sigsys,
        }));
    }
}
