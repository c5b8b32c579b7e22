//! Programs that answer for the opens of others.
//!
//! A write lease (fcntl(2)) is broken when any process opens the file, and refused while the file
//! is open. A listener for permission events (fanotify(7)) is asked about each open, and may rely
//! on seeing only those that it expects. Where a program of the session uses either, nothing is
//! opened ahead any more: only the kernel knows which files are concerned.

use linux_raw_sys::general as k;
use runahead_abi::control_protocol;

use super::call_outcome::Outcome;
use super::target_state::Target;
use crate::control_client as supervisor;
use crate::plane::{Call, signal_block};
use crate::session::Session;
use crate::sys::{self, nr};

/// True if this call, when it succeeds, makes the program answer for opens.
pub(super) fn answers_opens(call: &Call) -> bool {
    /// `FAN_CLASS_CONTENT` and `FAN_CLASS_PRE_CONTENT` (linux/fanotify.h).
    const ASKED: u64 = 0x4 | 0x8;
    match call.nr {
        nr::FCNTL => call.args[1] as u32 == k::F_SETLEASE && call.args[2] as u32 == k::F_WRLCK,
        nr::FANOTIFY_INIT => call.args[0] & ASKED != 0,
        _ => false,
    }
}

impl Target {
    /// Ends all shadows and all reading ahead in the session, which closes what they hold open.
    pub(super) fn stop_reading_ahead(&self, session: &'static Session) -> Outcome {
        self.end_shadows(session);
        let mask = signal_block::begin();
        if let Some(file) = supervisor::ask(session, control_protocol::STOP) {
            let _ = sys::close(file);
        }
        signal_block::end(mask);
        Outcome::Native
    }
}
