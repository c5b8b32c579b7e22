//! End of the policy of a target, which another policy may consult.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::plane;

/// True if another policy consults this one ([`set_consulted_by_other_policy`]).
static IS_CONSULTED: AtomicBool = AtomicBool::new(false);
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Declares that the plane asks another policy, which consults this one about calls that it lets
/// pass. This policy can then end without the other one: see [`has_ended`].
pub(crate) fn set_consulted_by_other_policy() {
    IS_CONSULTED.store(true, Relaxed);
}

/// True if the plane asks another policy, which consults this one.
pub(super) fn is_consulted_by_other_policy() -> bool {
    IS_CONSULTED.load(Relaxed)
}

/// True once this policy has ended: it is not consulted any more, nor in children.
pub(crate) fn has_ended() -> bool {
    HAS_ENDED.load(Relaxed)
}

/// Ends this policy: the program has changed the rules under which it runs.
pub(super) fn end_policy() {
    match is_consulted_by_other_policy() {
        true => HAS_ENDED.store(true, Relaxed),
        false => plane::stand_down(),
    }
}
