//! Programs that answer for the opens of others.
//!
//! A lease for writing (fcntl(2)) is broken by whoever opens the file, and not given while somebody has it open; and who
//! gets permission events (fanotify(7)) is asked for each open, and may count on those that it expects. Where a program of
//! the session does either, nothing is opened ahead of anybody any more: for which files that matters
//! is known to the kernel alone.

use linux_raw_sys::general as k;
use runahead_abi::control_protocol;

use super::Target;
use super::call_outcome::Outcome;
use crate::control_client as supervisor;
use crate::plane::{Call, signal_block};
use crate::session::Session;
use crate::sys::{self, nr};

/// By this call, if it succeeds, the program will answer for opens.
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
    /// There is nothing read ahead and no shadow in the session from here on, and nothing open for them.
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
