//! Asks the policy for its verdict on a call that has reached the agent's stack.

use crate::intercepted_call::Call;
use crate::interception_state::{reports, sees_all};
use crate::plane_calls::is_checked;
use crate::policy::{self, AnyPolicy, Verdict};
use crate::{clone, native_calls, signal_handlers, signal_masks, sys};

/// Asks the policy. Entered by the entry code and by `sigsys`, on the agent's stack.
pub(crate) extern "C" fn runahead_dispatch(call: *mut Call) -> Verdict {
    // SAFETY: the entry code passes the frame that it has just built, and holds the depth, so this
    // is the only reference to it.
    let call = unsafe { &*call };
    call.thread.result.set(None);
    call.thread.allow_held_signals(signal_handlers::may_hold_signals(call.nr));
    if call.thread.is_spare() && !clone::adopt(call.thread, call.stack) {
        return Verdict::NATIVE;
    }
    if is_checked(call.nr) {
        return if signal_masks::can_go_by(call) { Verdict::NATIVE } else { Verdict::TRAP };
    }
    if !sees_all() && native_calls::takes_its_stack(call) {
        return Verdict::TRAP;
    }
    let verdict = match policy::installed() {
        None => return Verdict::NATIVE,
        Some(AnyPolicy::Plain(policy)) => policy.before(call),
        Some(AnyPolicy::Reporting(policy)) => match policy.before(call) {
            Some(verdict) => verdict,
            None if reports() => Verdict::TRAP,
            None => Verdict::NATIVE,
        },
    };
    match verdict.answered() {
        Some(sys::RESTART) => Verdict::NATIVE,
        _ => verdict,
    }
}
