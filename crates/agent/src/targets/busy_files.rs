//! Opens for writing of a file that a shadow still executes.
//!
//! The kernel refuses to open a file for writing while a process executes it (`ETXTBSY`). A shadow
//! of a program that has ended may be such a process. A program that exits waits for its shadows,
//! but one that is killed by a signal cannot. So a process that is refused ends all shadows of the
//! session, and makes its call again.

use runahead_estimators::Micros;

use super::call_outcome::Outcome;
use super::shadow_visibility;
use crate::plane::Call;
use crate::session::Session;
use crate::sys;
use crate::time_stamp::ticks;

/// Longest time until the memory of shadows is freed that have given up what they held. A file that
/// is executed by others keeps its opener waiting that long.
const PATIENCE: Micros = Micros(100_000);
/// Interval between two attempts, in microseconds.
const ATTEMPT_US: u64 = 200;

/// Makes a call that fails if its file is executed.
pub(super) fn perform(session: &'static Session, call: &Call) -> Outcome {
    retry_if_busy(session, call, Outcome::Answer(call.perform()))
}

/// Makes `call` again if it was refused because its file is executed, once no shadow can execute
/// it.
pub(super) fn retry_if_busy(session: &'static Session, call: &Call, made: Outcome) -> Outcome {
    const BUSY: i64 = sys::fail(sys::ETXTBSY);
    if !matches!(made, Outcome::Answer(BUSY)) {
        return made;
    }
    shadow_visibility::outlive_session_shadows(session);
    let give_up_at = ticks() + PATIENCE.to_ticks(session.tick_rate());
    loop {
        let ret = call.perform();
        if ret != BUSY || ticks() > give_up_at {
            return Outcome::Answer(ret);
        }
        sys::sleep_us(ATTEMPT_US);
    }
}
