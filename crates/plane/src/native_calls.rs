//! Calls of the program that are made as they stand, and its signal mask meanwhile.

use super::thread::Thread;
use super::{kernel_signals, signal_actions, trampolines};
use crate::arch::{self, Context};
use crate::intercepted_call::Call;
use crate::sys::{self, nr};

/// Bytes that a reported call has below the red zone meanwhile; a patched site has fewer.
pub(super) const RECORD_BYTES: usize = 14 * size_of::<u64>();

/// The call takes away what is at the stack pointer, or where patched sites and reported calls keep
/// something below.
pub(super) fn takes_its_stack(call: &Call) -> bool {
    const BELOW: u64 = arch::RED_ZONE + RECORD_BYTES as u64;
    let [at, len, ..] = call.args;
    let (end, lowest) = (at.saturating_add(len), call.stack.saturating_sub(BELOW));
    matches!(call.nr, nr::MUNMAP | nr::MADVISE | nr::MMAP | nr::MREMAP)
        && at <= call.stack
        && end > lowest
}

/// Makes the call as it stands. Where a signal may interrupt it, the program does so itself: then
/// no frame of ours is in the handler's way.
pub(super) fn perform(call: &Call, site: u64, context: &mut Context) {
    if made_by_the_program(site, context) {
        return;
    }
    // The result is not noted: a dispatch that we interrupt has one of its own under way.
    // SAFETY: the program asked for exactly this call.
    context.set_result(unsafe { sys::raw(call.nr, call.args) });
    keep_changed_mask(context);
}

/// Lets the program itself make a call that signals may interrupt.
pub(super) fn made_by_the_program(site: u64, context: &mut Context) -> bool {
    if !signal_actions::has_handlers() && !crate::sys::has_threads() {
        return false;
    }
    // What comes from here on finds the program at its call. (See `keep_mask` for what came
    // before.)
    let mask = sys::set_mask(!0);
    if blocks_held_signals(mask) {
        // What came before waits for us, and comes first.
        context.resume_at(site);
        return true;
    }
    let made = trampolines::plainly_from_the_program(site, context);
    if made {
        context.mask = mask;
    } else {
        sys::set_mask(mask);
    }
    made
}

/// A handler that ran meanwhile may have changed the mask for good (in the frame that it returned
/// through); returning from our signal must not set the old one again. Nothing runs in between: the
/// return is what unblocks signals, so this is the last thing done.
pub(super) fn keep_mask(context: &mut Context) {
    let _ = keep_mask_unless_signals_held(context);
}

/// [`keep_mask`], or true if signals have come and wait for us: then the program's mask is in the
/// frame.
pub(super) fn keep_mask_unless_signals_held(context: &mut Context) -> bool {
    let mask = sys::set_mask(!0);
    let held = blocks_held_signals(mask);
    if !held {
        context.mask = mask;
    }
    held
}

/// True if this mask is that of the agent's work, for which signals that have come wait. The
/// thread's own mask is in the frame.
fn blocks_held_signals(mask: u64) -> bool {
    kernel_signals::has_sigsys(mask) && !crate::interception_state::is_retired()
}

/// Signals have come that wait for us, and handlers of the program's for them.
pub(super) fn has_held_signals() -> bool {
    signal_actions::has_handlers() && blocks_held_signals(sys::mask())
}

/// Keeps the mask as [`keep_mask`] does where something can have changed it.
pub(super) fn keep_changed_mask(context: &mut Context) {
    if signal_actions::has_handlers() || crate::interception_state::is_retired() {
        keep_mask(context);
    }
}

/// Keeps the mask where that of the frame is right unless a SIGSYS, or being called off, had the
/// thread leave while we were at work: until then the kernel did not have that signal in its mask.
pub(super) fn keep_mask_if_left(thread: &Thread, context: &mut Context) {
    if thread.has_left() {
        keep_mask(context);
    }
}
