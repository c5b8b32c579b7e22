//! Call sampling: the calls that a process leaves unseen while nothing stalls
//! ([`super::stall_probing`]).

use super::policy_end::is_consulted_by_other_policy;
use super::target_state::Target;
use crate::plane::{self, Call, sample_counter};
use crate::sys::nr;

/// Calls that are sampled while nothing stalls. Unseen calls change remembered state:
/// - offsets, which are asked for again after sampling ([`Target::read_offset`]);
/// - file kinds, which are asked for again ([`Target::leave_sampling`]);
/// - names of duplicates, which are wrong until the number is opened again: a hint or two may be
///   lost;
/// - counts: a sample stands for the calls that were not seen ([`Target::count_access`]).
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

/// True if samples of calls of that number are enough.
pub(crate) fn may_be_sampled(number: u64) -> bool {
    SAMPLED_CALLS.contains(&number)
}

/// True if calls of that number are being sampled: by the plane, or, where another policy needs all
/// calls, by that policy ([`skip_unsampled`]).
pub(super) fn is_sampled(number: u64) -> bool {
    plane::is_sampled(number) || is_consulted_by_other_policy() && may_be_sampled(number)
}

/// Counts a call as skipped and returns true if the policy that sees it need not consult this one.
pub(crate) fn skip_unsampled(call: &Call) -> bool {
    let here = sample_counter::of_stack(call.stack);
    let lets = here.left() > 0 && may_be_sampled(call.nr);
    if lets {
        here.one_less();
    }
    lets
}

impl Target {
    /// Decides how many of the thread's next calls go by unseen, after a call that was seen.
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
