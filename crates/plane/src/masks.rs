//! Keeps SIGSYS unblocked and handled by us, while the program believes what it set.
//!
//! If SIGSYS is blocked when a call is dispatched, the kernel kills the process. So its bit is
//! taken out of every mask that the program hands to the kernel and put back into every mask that
//! it reads; its handler for SIGSYS is kept here and called for signals that are not ours. A SIGSYS
//! that comes while the program believes it blocked would have to wait, be seen to wait, and perhaps
//! be taken by a call: the process then goes on without us, and the kernel does all that.
//!
//! The kernel is given [`handlers::address`] instead of every handler of the program's. That notes in the
//! frame what was believed before, where the handler's mask has SIGSYS in it, and goes on to the handler.

mod calls;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::handlers::{self, Handler};
use super::thread::Thread;
use super::{Call, clone, is_retired, retire_all_threads, sigsys};
use crate::arch::Context;
use crate::lock::Lock;
use crate::sys::{self, copy_in, nr};

pub(super) use calls::{
    MASK_CALLS, can_go_by, has_plain_mask, sigaction, sigprocmask, with_temporary_mask,
};

/// `struct kernel_sigaction` (asm/signal.h).
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

pub(super) const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const SYS_BIT: u64 = 1 << (k::SIGSYS - 1);
const MASK_BYTES: u64 = 8;
/// Signals that there are (`_NSIG`).
const SIGNALS: usize = 64;
/// `si_code` of a call that a filter has trapped, and of tkill(2) (asm-generic/siginfo.h).
const SYS_SECCOMP: i32 = 1;
const SI_TKILL: i32 = -6;

/// What the process, and not a thread, has.
struct Kept {
    /// The program's action for SIGSYS.
    sigsys: Action,
}

static KEPT: Lock<Kept> =
    Lock::new(Kept { sigsys: Action { handler: SIG_DFL, flags: 0, restorer: 0, mask: 0 } });

/// Signals whose `sa_mask` the program gave with SIGSYS in it.
static IN_MASK_OF: AtomicU64 = AtomicU64::new(0);
/// Signals for which the kernel has [`handlers::address`] in place of the program's handler.
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// Those of them whose handler asked for the alternate stack.
static ON_STACK: AtomicU64 = AtomicU64::new(0);

/// The program has installed a handler that can run between any two instructions.
static HANDLERS: AtomicBool = AtomicBool::new(false);
/// It has installed a handler.
static ANY_HANDLERS: AtomicBool = AtomicBool::new(false);

/// Handlers in whose place [`handlers::address`] is, by signal number.
static PROGRAMS: [AtomicU64; SIGNALS + 1] = [const { AtomicU64::new(0) }; SIGNALS + 1];

/// The program's action for SIGSYS. Signals must be blocked. A vfork child has one of its own, but
/// not memory to keep it in.
fn kept_action(thread: Option<&Thread>) -> Action {
    let of_child = thread.and_then(|thread| thread.lent.get()).map(|lent| lent.sigsys);
    of_child.unwrap_or_else(|| KEPT.with(|kept| kept.sigsys))
}

fn keep_action(thread: &Thread, action: Action) {
    match thread.lent.get() {
        Some(lent) => thread.lent.set(Some(lent.with_sigsys(action))),
        None => KEPT.with(|kept| kept.sigsys = action),
    }
}

/// The program's action, for a vfork child to begin with.
pub(super) fn action_to_lend() -> Action {
    undisturbed(|mask| (kept_action(None), mask))
}

/// In a new process, before dispatch is on: if it was made with cleared handlers
/// (CLONE_CLEAR_SIGHAND), ours is put back.
pub(super) fn take_again(thread: &Thread) {
    let ours = sigsys::action();
    undisturbed(|mask| {
        let now = set_action(k::SIGSYS as i32, None);
        if now.is_ok_and(|now| now.handler != ours.handler) {
            let ignored = kept_action(Some(thread)).handler == SIG_IGN;
            let handler = if ignored { SIG_IGN } else { SIG_DFL };
            keep_action(thread, Action { handler, flags: 0, restorer: 0, mask: 0 });
            if thread.lent.get().is_none() {
                IN_MASK_OF.store(0, Relaxed);
                HANDLED.store(0, Relaxed);
            }
            let _ = set_action(k::SIGSYS as i32, Some(&ours));
        }
        ((), mask)
    });
}

/// In a forked child: what was held is free.
pub(super) fn in_new_process() {
    KEPT.break_open();
}

/// Signals that only the running instruction can raise, at its own address.
const SYNCHRONOUS: [u32; 5] = [k::SIGSEGV, k::SIGBUS, k::SIGILL, k::SIGFPE, k::SIGTRAP];

/// True once a signal handler may interrupt the program anywhere.
pub(super) fn has_async_handlers() -> bool {
    HANDLERS.load(Relaxed)
}

/// False while no handler of the program's can have run, nor have changed the mask of a thread.
pub(super) fn has_handlers() -> bool {
    ANY_HANDLERS.load(Relaxed)
}

pub(super) fn set_action(signal: i32, action: Option<&Action>) -> sys::Result<Action> {
    let mut old = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let new = action.map_or(core::ptr::null(), core::ptr::from_ref);
    let args = [signal as u64, new as u64, &raw mut old as u64, MASK_BYTES, 0, 0];
    // SAFETY: both point to live actions, or null; handlers are the program's or ours.
    sys::check(unsafe { sys::raw(nr::RT_SIGACTION, args) })?;
    Ok(old)
}

/// Takes SIGSYS over from the program, with what it inherited: its action, and the mask.
pub(super) fn keep_sigsys(thread: &Thread, action: Action) {
    undisturbed(|mask| {
        KEPT.with(|kept| kept.sigsys = action);
        thread.blocked.set(has_sigsys(mask));
        ((), without_sigsys(mask))
    });
}

/// Gives SIGSYS back to the program, when interception ends.
pub(super) fn restore_sigsys(thread: &Thread) {
    undisturbed(|mask| {
        restore_actions(thread);
        ((), mask)
    });
}

/// Gives the kernel the actions that the program believes it has. Signals must be blocked.
fn restore_actions(thread: &Thread) {
    let changed = changed();
    for signal in (1..=SIGNALS as u32).filter(|signal| changed & bit_of(*signal) != 0) {
        if let Ok(now) = set_action(signal as i32, None) {
            let _ = set_action(signal as i32, Some(&Given::of(signal).restore(now)));
        }
    }
    let action = kept_action(Some(thread));
    let _ = set_action(k::SIGSYS as i32, Some(&action));
}

/// Signals whose actions the kernel has otherwise than the program gave them.
fn changed() -> u64 {
    IN_MASK_OF.load(Relaxed) | HANDLED.load(Relaxed)
}

const ASKS_FOR_STACK: u64 = k::SA_ONSTACK as u64;

/// What the kernel does not know of an action.
#[derive(Clone, Copy)]
struct Given {
    handler: u64,
    in_mask: bool,
    handled: bool,
    on_stack: bool,
}

impl Given {
    fn of(signal: u32) -> Self {
        let has = |of: &AtomicU64| of.load(Relaxed) & bit_of(signal) != 0;
        let handler = PROGRAMS.get(signal as usize).map_or(SIG_DFL, |own| own.load(Relaxed));
        let [in_mask, handled, on_stack] = [&IN_MASK_OF, &HANDLED, &ON_STACK].map(has);
        Given { handler, in_mask, handled, on_stack }
    }

    /// The kernel's action, as the program gave it.
    fn restore(self, mut action: Action) -> Action {
        if self.in_mask {
            action.mask |= SYS_BIT;
        }
        if self.handled {
            let asked = if self.on_stack { ASKS_FOR_STACK } else { 0 };
            action.flags = action.flags & !ASKS_FOR_STACK | asked;
        }
        // (One with SA_RESETHAND is gone once it was called.)
        if action.handler == handlers::address() {
            action.handler = self.handler;
        }
        action
    }
}

fn bit_of(signal: u32) -> u64 {
    1u64.checked_shl(signal.wrapping_sub(1)).unwrap_or(0)
}

/// A signal has arrived for a handler of the program's, which is returned.
pub(super) fn begin_handler(
    thread: Option<&Thread>,
    signal: i32,
    context: &mut Context,
) -> Handler {
    let bit = bit_of(signal as u32);
    if let Some(thread) = thread.filter(|_| !is_retired())
        && IN_MASK_OF.load(Relaxed) & bit != 0
    {
        context.note_believed(thread.blocked.replace(true), SYS_BIT);
    }
    let Given { handler, on_stack, .. } = Given::of(signal as u32);
    Handler { address: handler, on_stack, restorer: None }
}

/// Gives this thread the mask that it believes it has.
pub(super) fn restore_mask(thread: &Thread) {
    if thread.blocked.get() {
        block(SYS_BIT);
    }
}

/// Adds to the mask in force.
fn block(mask: u64) {
    let args = [k::SIG_BLOCK.into(), &raw const mask as u64, 0, MASK_BYTES, 0, 0];
    // SAFETY: reads the eight bytes of `mask`.
    unsafe { sys::raw(nr::RT_SIGPROCMASK, args) };
}

/// `mask` with SIGSYS as the program believes it to be.
pub(super) fn as_believed(thread: &Thread, mask: u64) -> u64 {
    if thread.blocked.get() { mask | SYS_BIT } else { mask & !SYS_BIT }
}

/// SIGSYS is in `mask`.
pub(super) fn has_sigsys(mask: u64) -> bool {
    mask & SYS_BIT != 0
}

/// `mask` as the kernel may have it.
pub(super) fn without_sigsys(mask: u64) -> u64 {
    mask & !SYS_BIT
}

/// The program's action for SIGSYS, if that is to ignore it. Signals must be blocked.
pub(super) fn ignores_sigsys(thread: &Thread) -> Option<Action> {
    Some(kept_action(Some(thread))).filter(|action| action.handler == SIG_IGN)
}

/// A SIGSYS that is no dispatched call, with this `si_code`, goes where the program wants it.
pub(super) fn forward_sigsys(thread: Option<&Thread>, code: i32, info: u64, context: &mut Context) {
    let mut action = undisturbed(|mask| (kept_action(thread), mask));
    let blocked = thread.filter(|thread| thread.blocked.get());
    if code == SYS_SECCOMP {
        // Of the instruction itself: who blocks or ignores it is killed by it.
        if blocked.is_some() || action.handler == SIG_IGN {
            action.handler = SIG_DFL;
        }
    } else if thread.is_none() && !is_retired() && clone::new_threads_block() {
        // A new thread that is not known yet: it comes again when that is so (`clone::adopt`).
        context.mask |= SYS_BIT;
        return undisturbed(|mask| {
            send_again(SI_TKILL, info);
            ((), mask | SYS_BIT)
        });
    } else if blocked.is_some() {
        // Now it would wait, and calls would see it wait, or take it.
        retire_all_threads();
        context.mask |= SYS_BIT;
        return undisturbed(|mask| {
            send_again(code, info);
            ((), mask | SYS_BIT)
        });
    }
    match action.handler {
        SIG_IGN => {}
        SIG_DFL => {
            let _ = set_action(k::SIGSYS as i32, Some(&action));
            raise_sigsys();
        }
        _ => {
            if action.flags & u64::from(k::SA_RESETHAND) != 0 {
                let reset = Action { handler: SIG_DFL, ..action };
                undisturbed(|mask| match thread {
                    Some(thread) => (keep_action(thread, reset), mask),
                    None => (KEPT.with(|kept| kept.sigsys = reset), mask),
                });
            }
            let now = sys::set_mask(!0);
            let mask = now | mask_for_handler(thread, &action, context);
            // SAFETY: this signal's own frame; its handler was to be ours.
            unsafe {
                handlers::enter(thread, k::SIGSYS as i32, Handler::of(&action), mask, context)
            }
        }
    }
}

/// What the program's handler for SIGSYS blocks beside what is blocked.
fn mask_for_handler(thread: Option<&Thread>, action: &Action, context: &mut Context) -> u64 {
    let deferred = action.flags & u64::from(k::SA_NODEFER) == 0;
    let mut mask = action.mask | if deferred { SYS_BIT } else { 0 };
    if let Some(thread) = thread.filter(|thread| thread.armed.get()) {
        context.note_believed(thread.blocked.get(), SYS_BIT);
        if has_sigsys(mask) {
            thread.blocked.set(true);
        }
        mask = without_sigsys(mask);
    }
    mask
}

/// The program returns from a signal through this frame: its mask becomes what the kernel may have.
pub(super) fn restore_from(thread: &Thread, frame: &mut Context) {
    let noted = frame.forget_note();
    if noted || has_sigsys(frame.mask) {
        thread.blocked.set(has_sigsys(frame.mask));
    }
    frame.mask = match has_left(thread) {
        true => as_believed(thread, frame.mask),
        false => without_sigsys(frame.mask),
    };
}

/// A signal has made the thread leave while we were at work on a call of it: what the program
/// believes of SIGSYS is then to be so.
pub(super) fn has_left(thread: &Thread) -> bool {
    is_retired() && !thread.armed.get()
}

/// In a forked child that runs natively: SIGSYS is as the program left it. The mask to run with.
pub(super) fn in_child(thread: &Thread, mask: u64) -> u64 {
    KEPT.break_open();
    restore_actions(thread);
    as_believed(thread, mask)
}

/// In a vfork child that goes on natively, while its parent does not. The mask to run with.
pub(super) fn in_native_borrower(thread: &Thread, mask: u64) -> u64 {
    undisturbed(|now| {
        restore_actions(thread);
        ((), now)
    });
    as_believed(thread, mask)
}

/// Sends this process a SIGSYS that is not a dispatched call.
fn raise_sigsys() {
    // SAFETY: kill(2) of this process with a signal that it was sent before.
    unsafe { sys::raw(nr::KILL, [sys::getpid().into(), k::SIGSYS.into(), 0, 0, 0, 0]) };
}

/// Sends this process the signal once more that `info` is of; it must be blocked.
fn send_again(code: i32, info: u64) {
    let (process, signal) = (u64::from(sys::getpid()), u64::from(k::SIGSYS));
    let (call, args) = if code == SI_TKILL {
        (nr::RT_TGSIGQUEUEINFO, [process, sys::gettid().into(), signal, info, 0, 0])
    } else {
        (nr::RT_SIGQUEUEINFO, [process, signal, info, 0, 0, 0])
    };
    // SAFETY: reads the siginfo_t that the kernel has just given us.
    unsafe { sys::raw(call, args) };
}

/// Sends this thread the signal once more that `info` is of; false if that cannot be.
pub(super) fn send_to_itself(signal: i32, info: u64) -> bool {
    let args = [sys::getpid().into(), sys::gettid().into(), signal as u64, info, 0, 0];
    // SAFETY: reads the siginfo_t that the kernel has just given us.
    unsafe { sys::raw(nr::RT_TGSIGQUEUEINFO, args) == 0 }
}

/// It may be the running instruction that has raised it.
pub(super) fn may_be_raised_here(signal: i32) -> bool {
    SYNCHRONOUS.contains(&(signal as u32))
}

/// A second signal of that number waits: one that is sent now would come after it, or not at all.
pub(super) fn is_another_waiting(signal: i32) -> bool {
    let mut waiting = 0u64;
    let args = [&raw mut waiting as u64, MASK_BYTES, 0, 0, 0, 0];
    // SAFETY: the kernel writes eight bytes of ours.
    unsafe { sys::raw(nr::RT_SIGPENDING, args) };
    waiting & bit_of(signal as u32) != 0
}

/// Does `work` while no handler can run: between two calls of ours SIGSYS may then be blocked.
fn undisturbed<T>(work: impl FnOnce(u64) -> (T, u64)) -> T {
    let mask = sys::set_mask(!0);
    let (result, mask) = work(mask);
    sys::set_mask(mask);
    result
}

/// The mask in force, as the kernel has it.
pub(super) fn current_mask() -> u64 {
    let mut mask = 0u64;
    let args = [k::SIG_BLOCK.into(), 0, &raw mut mask as u64, MASK_BYTES, 0, 0];
    // SAFETY: only reads the mask, into eight bytes of ours.
    unsafe { sys::raw(nr::RT_SIGPROCMASK, args) };
    mask
}
