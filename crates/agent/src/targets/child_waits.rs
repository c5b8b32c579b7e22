//! Calls in which a parent waits for children: syncs there, if they have stalled
//! ([`super::child_stalls`]).

use super::call_outcome::{Outcome, SyncSide};
use super::target_state::Target;
use crate::plane::{Call, signal_block};
use crate::session::Session;
use crate::sys::{self, nr};
use crate::time_stamp::ticks;

impl Target {
    /// Makes a sync before a call that may wait for children, if they have stalled.
    pub(super) fn wait_for_children(&self, session: &'static Session, call: &Call) -> Outcome {
        if !self.child_stalls.have_stalled() || !session.slow_devices().is_any_slow(ticks) {
            return Outcome::Native;
        }
        let mask = signal_block::begin();
        self.join(session);
        if self.sync(session, call) == SyncSide::Shadow {
            return Outcome::InShadow;
        }
        signal_block::end(mask);
        Outcome::Native
    }

    /// Makes a sync before a read from a pipe, if children have stalled: the program waits for them
    /// there.
    pub(super) fn read_from_children(&self, session: &'static Session, call: &Call) -> Outcome {
        let waits = self.child_stalls.has_children()
            && matches!(call.nr, nr::READ)
            && sys::is_pipe(call.fd(0));
        if waits { self.wait_for_children(session, call) } else { Outcome::Native }
    }
}
