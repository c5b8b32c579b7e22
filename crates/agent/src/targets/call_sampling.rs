//! What a process that rests ([`super::stall_probing`]) leaves unseen.

use super::Target;
use crate::plane::{self, Call, sample_counter};
use crate::sys::nr;

/// Calls of which it sees samples while nothing stalls. What they change of what we remember are
/// - offsets, which are asked for after a rest ([`Target::read_offset`]);
/// - kinds, which are asked for anew ([`Target::wake`]);
/// - names of duplicates, which are wrong until something else is opened in their places: a hint or two
///   may be lost;
/// - counts: a sample stands for those that were not seen ([`Target::count`]).
pub(super) const SAMPLED_CALLS: &[u64] = &[
    nr::READ,
    nr::PREAD64,
    nr::READV,
    nr::PREADV,
    nr::LSEEK,
    nr::STAT,
    nr::LSTAT,
    nr::NEWFSTATAT,
    nr::STATX,
    nr::ACCESS,
    nr::FACCESSAT,
    nr::FACCESSAT2,
    nr::READLINK,
    nr::READLINKAT,
    nr::GETDENTS,
    nr::GETDENTS64,
    nr::CLOSE,
    nr::DUP,
    nr::DUP2,
    nr::DUP3,
];

/// Samples of calls of that number are enough.
pub(crate) fn may_be_sampled(number: u64) -> bool {
    SAMPLED_CALLS.contains(&number)
}

/// Calls of that number are sampled now: by the plane, or, where another policy wants to see all of them, by that ([`skip_unsampled`]).
pub(super) fn is_sampled(number: u64) -> bool {
    plane::is_sampled(number) || super::is_consulted_by_other_policy() && may_be_sampled(number)
}

/// Whether the policy that sees this call need not ask this one about it, as if it had gone by unseen.
pub(crate) fn skip_unsampled(call: &Call) -> bool {
    let here = sample_counter::of_stack(call.stack);
    let lets = here.left() > 0 && may_be_sampled(call.nr);
    if lets {
        here.one_less();
    }
    lets
}

impl Target {
    /// A call has been seen to its end, or to where it is made as it stands: what of those to come is
    /// to be seen.
    pub(super) fn schedule_next_sample(&self, call: &Call) {
        let here = sample_counter::of_stack(call.stack);
        let sampled = is_sampled(call.nr);
        match here.left() {
            0 if sampled => {
                let calls = self.stall_probing.calls_to_skip(|| here.chance());
                here.allow(calls);
            }
            0 => {}
            _ if !self.stall_probing.is_sampling() => sample_counter::none(),
            _ if sampled => here.one_less(),
            _ => {}
        }
    }
}
