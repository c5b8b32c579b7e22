//! A SIGSYS that is no dispatched call goes where the program wants it.
//!
//! One that comes while the program believes it blocked would have to wait, be seen to wait, and
//! perhaps be taken by a call: the process then goes on without us, and the kernel does all that.

use linux_raw_sys::general as k;

use super::kernel_signals::{
    Action, SI_TKILL, SIG_DFL, SIG_IGN, SYS_BIT, has_sigsys, raise_sigsys, send_again, set_action,
    undisturbed, without_sigsys,
};
use super::signal_handlers::{self, Handler};
use super::signal_masks::{new_threads_block, set_sigsys_action, sigsys_action};
use super::thread::Thread;
use crate::arch::Context;
use crate::interception_end::retire_all_threads;
use crate::interception_state::is_retired;
use crate::sys;

/// `si_code` of a call that a filter has trapped (asm-generic/siginfo.h).
const SYS_SECCOMP: i32 = 1;

/// A SIGSYS that is no dispatched call, with this `si_code`, goes where the program wants it.
pub(super) fn forward(
    thread: Option<&'static Thread>,
    code: i32,
    info: u64,
    context: &mut Context,
) {
    let mut action = undisturbed(|mask| (sigsys_action(thread), mask));
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
                undisturbed(|mask| (set_sigsys_action(thread, reset), mask));
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
