//! Stand-in for `planted_violations.rs` in an image without the feature `fault-injection`: every
//! shadow has its sandbox, and no call of the program is made as it stands.

use super::runner::{Runner, Stop};
use crate::plane::Call;
use crate::session::Session;

/// False: every shadow has its sandbox.
pub(super) const fn without_sandbox(_: &Session) -> bool {
    false
}

/// Attempts nothing.
pub(super) const fn attempt(_: &Session, _: &Call) -> Option<i64> {
    None
}

impl Runner {
    /// Plants nothing.
    pub(super) const fn plant_rubbish(&mut self) -> Result<(), Stop> {
        Ok(())
    }
}
