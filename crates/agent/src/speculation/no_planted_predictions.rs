//! Stand-in for `planted_predictions.rs` in an image without the feature `fault-injection`: a
//! process speculates only on what its program predicts.

use crate::arch::Context;
use crate::session::Session;
use crate::sys;

/// Starts nothing.
pub const fn start(_: &Session) -> sys::Result<()> {
    Ok(())
}

/// Does nothing in a forked child.
pub const fn in_child() {}

/// False: no predictions are planted.
pub const fn is_on() -> bool {
    false
}

/// False: no prediction is wanted at this call.
pub const fn wants() -> bool {
    false
}

/// Plants nothing in front of a call.
pub const fn plant_in_front(_: &Session, _: &mut Context) -> bool {
    false
}

/// Plants nothing behind a call.
pub const fn plant(_: &Session, _: i64, _: &mut Context) -> bool {
    false
}

/// Records no duration.
pub const fn note_took(_: usize, _: u64) {}

/// Records no exec.
pub const fn note_executed() {}

/// Records no wait.
pub const fn note_wait(_: u64) {}

/// Settles nothing.
pub const fn settle() {}

/// Settles nothing.
pub const fn settle_one() {}
