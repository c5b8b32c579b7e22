//! Calls that the plane makes itself, by their numbers.

use crate::interception_state::{reports, sees_all};
use crate::sys::nr;
use crate::temporary_masks;

/// Calls that the plane handles itself, but that often leave it nothing to do.
pub(crate) fn is_checked(call: u64) -> bool {
    matches!(call, nr::RT_SIGACTION | nr::RT_SIGPROCMASK) && !sees_all() && !reports()
}

/// Calls that the plane handles itself, on behalf of every policy but one that sees all of them.
pub(crate) fn is_the_planes(call: u64) -> bool {
    if sees_all() {
        return call == nr::RT_SIGRETURN;
    }
    temporary_masks::MASK_CALLS.contains(&call)
        || matches!(
            call,
            nr::RT_SIGRETURN
                | nr::CLONE
                | nr::FORK
                | nr::VFORK
                | nr::CLONE3
                | nr::RT_SIGACTION
                | nr::RT_SIGPROCMASK
                | nr::SIGALTSTACK
                | nr::EXECVE
                | nr::EXECVEAT
                | nr::ARCH_PRCTL
                | nr::EXIT
        )
}
