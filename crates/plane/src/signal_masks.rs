//! Keeps SIGSYS unblocked and handled by us, while the program believes what it set.
//!
//! If SIGSYS is blocked when a call is dispatched, the kernel kills the process. So its bit is
//! taken out of every mask that the program hands to the kernel and put back into every mask that
//! it reads; its action for SIGSYS is kept here, for signals that are not ours
//! (`sigsys_forwarding`).
//!
//! The kernel is given [`signal_handlers::address`] instead of every handler of the program's. That
//! notes in the frame what was believed before, where the handler's mask has SIGSYS in it, and goes
//! on to the handler.

mod mask_calls;

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux_raw_sys::general as k;

use super::dispatch_signal;
use super::kernel_signals::{
    Action, SIG_DFL, SIG_IGN, SIGNALS, SYS_BIT, bit_of, block, has_sigsys, set_action, undisturbed,
    without_sigsys,
};
use super::signal_actions::{GivenAction, HANDLED, IN_MASK_OF, changed};
use super::signal_handlers;
use super::thread::Thread;
use crate::arch::Context;
use crate::spin_lock::Lock;

pub(super) use mask_calls::{can_go_by, sigaction, sigprocmask};

/// The program's action for SIGSYS.
static SIGSYS_ACTION: Lock<Action> =
    Lock::new(Action { handler: SIG_DFL, flags: 0, restorer: 0, mask: 0 });

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
pub(super) fn sigsys_action(thread: Option<&Thread>) -> Action {
    let of_child = thread.and_then(|thread| thread.lent.get()).map(|lent| lent.sigsys);
    of_child.unwrap_or_else(|| SIGSYS_ACTION.with(|sigsys| *sigsys))
}

/// Sets what [`sigsys_action`] returns. Signals must be blocked.
pub(super) fn set_sigsys_action(thread: Option<&Thread>, action: Action) {
    match thread.and_then(|thread| Some((thread, thread.lent.get()?))) {
        Some((thread, lent)) => thread.lent.set(Some(lent.with_sigsys(action))),
        None => SIGSYS_ACTION.with(|sigsys| *sigsys = action),
    }
}

/// The program's action, for a vfork child to begin with.
pub(super) fn action_to_lend() -> Action {
    undisturbed(|mask| (sigsys_action(None), mask))
}

/// Installs our action again in a new process, before dispatch is on, if it was made with cleared
/// handlers (CLONE_CLEAR_SIGHAND).
pub(super) fn take_again(thread: &Thread) {
    let ours = dispatch_signal::action();
    undisturbed(|mask| {
        let now = set_action(k::SIGSYS as i32, None);
        if now.is_ok_and(|now| now.handler != ours.handler) {
            let ignored = sigsys_action(Some(thread)).handler == SIG_IGN;
            let handler = if ignored { SIG_IGN } else { SIG_DFL };
            set_sigsys_action(Some(thread), Action { handler, flags: 0, restorer: 0, mask: 0 });
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
    SIGSYS_ACTION.break_open();
}

/// Takes SIGSYS over from the program, with what it inherited: its action, and the mask, or what it
/// believes of that.
pub(super) fn keep_sigsys(thread: &Thread, action: Action, believed: Option<u64>) {
    undisturbed(|mask| {
        SIGSYS_ACTION.with(|sigsys| *sigsys = action);
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
                Some(&GivenAction::of(signal).restore(now, signal_handlers::address())),
            );
        }
    }
    let action = sigsys_action(Some(thread));
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
    Some(sigsys_action(Some(thread))).filter(|action| action.handler == SIG_IGN)
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
    SIGSYS_ACTION.break_open();
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
