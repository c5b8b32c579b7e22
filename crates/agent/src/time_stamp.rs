//! The time-stamp counter, in the unit that the supervisor knows. `plane` has no units of its own
//! and gives the bare count.

use runahead_estimators::Ticks;

use crate::arch;

/// Time-stamp of this moment.
#[inline]
pub fn ticks() -> Ticks {
    Ticks(arch::ticks())
}
