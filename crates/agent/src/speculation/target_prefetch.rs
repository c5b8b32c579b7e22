//! Reading ahead for a process that may speculate: the target's policy sees each call that this
//! policy lets pass, and no other.
//!
//! It does not see calls that are held, undone or waiting. It answers with the kernel's result of
//! the program's own call, so it does not matter which of the two policies made the call. What it
//! remembers of descriptors may stem from a part that was rolled back; it only serves as hints.
//!
//! Its shadows are forks of a process that may speculate. They have a policy of their own, return
//! here only to end, and share nothing with the session's speculations: they have copies of shared
//! memory.

use crate::descriptor_names::NAMES;
use crate::plane::{Call, Verdict};
use crate::shadow;
use crate::sys::{self, Fd};
use crate::targets;

/// Function that makes a call which may wait for storage, and returns its result.
pub type CallMaker = fn(&Call) -> i64;

/// Makes the call without reading ahead.
pub fn make_natively(call: &Call) -> i64 {
    // SAFETY: the program asked for exactly this call.
    unsafe { sys::raw(call.nr, call.args) }
}

/// True if the target's policy wants to see calls of that number.
pub fn target_sees(number: u64) -> bool {
    targets::intercepts(number) && !targets::has_ended()
}

/// Asks the target's policy about a call that the program is about to make. Returns
/// [`Verdict::NATIVE`], or the answer if the policy has made the call. The thread's
/// `depth` is 1: it is inside the agent.
pub fn ask_target(call: &Call) -> Verdict {
    match target_sees(call.nr) && !targets::skip_unsampled(call) {
        true => targets::POLICY.before(call),
        false => Verdict::NATIVE,
    }
}

/// True if this process has become a shadow in [`ask_target`]. Its answer is passed on, and nothing
/// is recorded.
pub fn is_in_shadow() -> bool {
    shadow::is_shadow()
}

/// Makes a call that a speculative process may make, by way of [`ask_target`]. The thread's
/// `depth` is 1.
pub fn make_with_prefetch(call: &Call) -> i64 {
    ask_target(call).answered().unwrap_or_else(|| make_natively(call))
}

/// Drops the name of a descriptor that was closed or rolled back.
pub fn forget(fd: Fd) {
    NAMES.forget(fd);
}
