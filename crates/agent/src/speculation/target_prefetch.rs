//! Reading ahead for a process that may speculate: the target's policy, asked of each call that is let go on, and of no other.
//!
//! It sees what the program reads, once this policy has let that by; what is held, undone or waits it does not see. It answers with what
//! the kernel has said to the program's own call, so it makes no difference who of the two made it. What it remembers of descriptors
//! may be of a piece that was taken back, and is hints only.
//!
//! Its shadows are forks of a process that may speculate. They have a policy of their own from then on, do not come back here but to
//! leave, and share nothing with the session's speculations: of shared memory they have copies.

use crate::descriptor_names::NAMES;
use crate::plane::{Call, Verdict};
use crate::shadow;
use crate::sys::{self, Fd};
use crate::targets;

/// Makes a call that may wait for storage: its result.
pub type CallMaker = fn(&Call) -> i64;

/// Makes it, and reads nothing ahead.
pub fn make_natively(call: &Call) -> i64 {
    // SAFETY: the program asked for exactly this call.
    unsafe { sys::raw(call.nr, call.args) }
}

/// Whether the target's policy wants to see calls of that number.
pub fn target_sees(number: u64) -> bool {
    targets::sees(number) && !targets::has_ended()
}

/// What the target's policy does about a call that the program is about to make: [`Verdict::NATIVE`], or it has made it. The depth is held.
pub fn ask_target(call: &Call) -> Verdict {
    match target_sees(call.nr) && !targets::lets_by(call) {
        true => targets::POLICY.before(call),
        false => Verdict::NATIVE,
    }
}

/// This process has become a shadow in [`asked`], whose answer is to be passed on, and nothing noted.
pub fn is_in_shadow() -> bool {
    shadow::is_shadow()
}

/// Makes a call that a speculative process may make, as [`asked`] has it. The depth is held.
pub fn make_with_prefetch(call: &Call) -> i64 {
    ask_target(call).answered().unwrap_or_else(|| make_natively(call))
}

/// The descriptor does not stand any more for what it did: it was closed, or taken back.
pub fn forget(fd: Fd) {
    NAMES.forget(fd);
}
