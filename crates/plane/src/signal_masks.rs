//! Keeps SIGSYS unblocked and handled by us, while the program believes what it set.
//!
//! If SIGSYS is blocked when a call is dispatched, the kernel kills the process. So its bit is
//! taken out of every mask that the program hands to the kernel and put back into every mask that
//! it reads; its handler for SIGSYS is kept here and called for signals that are not ours. A SIGSYS
//! that comes while the program believes it blocked would have to wait, be seen to wait, and
//! perhaps be taken by a call: the process then goes on without us, and the kernel does all that.
//!
//! The kernel is given [`signal_handlers::address`] instead of every handler of the program's. That
//! notes in the frame what was believed before, where the handler's mask has SIGSYS in it, and goes
//! on to the handler.

mod mask_calls;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::kernel_signals::{
    Action, MASK_BYTES, SI_TKILL, SIG_DFL, SIG_IGN, SIGNALS, SYNCHRONOUS, SYS_BIT, bit_of, block,
    current_mask, has_sigsys, raise_sigsys, send_again, set_action, undisturbed, without_sigsys,
};
use super::signal_actions::{
    ANY_HANDLERS, ASKS_FOR_STACK, Given, HANDLED, HANDLERS, IN_MASK_OF, ON_STACK, PROGRAMS, changed,
};
use super::signal_handlers::{self, Handler};
use super::thread::Thread;
use super::{dispatch_signal, program_faults};
use crate::arch::Context;
use crate::call::Call;
use crate::interception_end::retire_all_threads;
use crate::interception_state::is_retired;
use crate::lock::Lock;
use crate::sys::{self, copy_in, nr};

pub(super) use mask_calls::{can_go_by, sigaction, sigprocmask};

/// `si_code` of a call that a filter has trapped (asm-generic/siginfo.h).
const SYS_SECCOMP: i32 = 1;

/// State of the process rather than of a thread.
struct Kept {
    /// The program's action for SIGSYS.
    sigsys: Action,
}

static KEPT: Lock<Kept> =
    Lock::new(Kept { sigsys: Action { handler: SIG_DFL, flags: 0, restorer: 0, mask: 0 } });

/// True if the parent of a new thread believes that SIGSYS is blocked.
static BLOCKED_IN_PARENT: AtomicBool = AtomicBool::new(false);

/// True if a new thread begins with SIGSYS blocked, as the program believes.
pub(super) fn new_threads_block() -> bool {
    BLOCKED_IN_PARENT.load(Relaxed)
}

/// The thread is about to make another, which begins with what it believes.
pub(super) fn makes_a_thread(thread: &Thread) {
    BLOCKED_IN_PARENT.store(thread.blocked.get(), Relaxed);
}

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

/// Installs our action again in a new process, before dispatch is on, if it was made with cleared
/// handlers (CLONE_CLEAR_SIGHAND).
pub(super) fn take_again(thread: &Thread) {
    let ours = dispatch_signal::action();
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

/// Frees, in a forked child, the lock that another thread held.
pub(super) fn in_new_process() {
    KEPT.break_open();
}

/// Takes SIGSYS over from the program, with what it inherited: its action, and the mask, or what it
/// believes of that.
pub(super) fn keep_sigsys(thread: &Thread, action: Action, believed: Option<u64>) {
    undisturbed(|mask| {
        KEPT.with(|kept| kept.sigsys = action);
        thread.blocked.set(has_sigsys(believed.unwrap_or(mask)));
        ((), if believed.is_some() { mask } else { without_sigsys(mask) })
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
            let _ = set_action(
                signal as i32,
                Some(&Given::of(signal).restore(now, signal_handlers::address())),
            );
        }
    }
    let action = kept_action(Some(thread));
    let _ = set_action(k::SIGSYS as i32, Some(&action));
}

/// Gives this thread the mask that it believes it has.
pub(super) fn restore_mask(thread: &Thread) {
    if thread.blocked.get() {
        block(SYS_BIT);
    }
}

/// The program's action for SIGSYS, if that is to ignore it. Signals must be blocked.
pub(super) fn ignores_sigsys(thread: &Thread) -> Option<Action> {
    Some(kept_action(Some(thread))).filter(|action| action.handler == SIG_IGN)
}

/// A SIGSYS that is no dispatched call, with this `si_code`, goes where the program wants it.
pub(super) fn forward_sigsys(
    thread: Option<&'static Thread>,
    code: i32,
    info: u64,
    context: &mut Context,
) {
    let mut action = undisturbed(|mask| (kept_action(thread), mask));
    let blocked = thread.filter(|thread| thread.blocked.get());
    if code == SYS_SECCOMP {
        // Of the instruction itself: who blocks or ignores it is killed by it.
        if blocked.is_some() || action.handler == SIG_IGN {
            action.handler = SIG_DFL;
        }
    } else if thread.is_none() && !is_retired() && new_threads_block() {
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
                signal_handlers::enter(
                    thread,
                    k::SIGSYS as i32,
                    Handler::of(&action),
                    mask,
                    context,
                )
            }
        }
    }
}

/// Signals that the program's handler for SIGSYS blocks, beside those that are blocked.
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
    frame.mask = match thread.has_left() {
        true => thread.as_believed(frame.mask),
        false => without_sigsys(frame.mask),
    };
}

/// Sets SIGSYS as the program left it, in a forked child that runs natively. Returns the mask to
/// run with.
pub(super) fn in_child(thread: &Thread, mask: u64) -> u64 {
    KEPT.break_open();
    restore_actions(thread);
    thread.as_believed(mask)
}

/// Restores the signal actions in a vfork child that goes on natively, while its parent does not.
/// Returns the mask to run with.
pub(super) fn in_native_borrower(thread: &Thread, mask: u64) -> u64 {
    undisturbed(|now| {
        restore_actions(thread);
        ((), now)
    });
    thread.as_believed(mask)
}
