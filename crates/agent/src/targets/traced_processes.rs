//! Processes of the session that another process of it attaches to (ptrace(2)).
//!
//! A tracer would see our signals, and the calls that the agent makes. So the process that is about
//! to be traced gives interception up first, and has no shadow any more. Its tracer asks the
//! supervisor for that, which asks the process ([`runahead_abi::control_protocol::TRACES`]). The
//! process says when it is done. If it does not, the tracer goes on after a while.

use linux_raw_sys::ptrace::{PTRACE_ATTACH, PTRACE_SEIZE};
use runahead_abi::control_protocol;

use super::privilege_changes::retire_plane;
use crate::control_client;
use crate::plane::{Call, sent_signals, signal_block};
use crate::session::{self, Session};

const _: () = assert!(sent_signals::END == control_protocol::GIVE_UP_VALUE);

/// Has the process give interception up that the call, one of ptrace(2), attaches to.
pub fn prepare_trace(session: &'static Session, call: &Call) {
    let [request, process, ..] = call.args;
    let attaches = matches!(request as u32, PTRACE_ATTACH | PTRACE_SEIZE);
    if attaches && process as i32 > 0 {
        let mask = signal_block::begin();
        control_client::ask_before_trace(session, process as u32);
        signal_block::end(mask);
    }
}

/// Gives interception up in this process, and says so. All signals are blocked.
pub fn give_up() {
    if let Some(session) = session::get() {
        let _ = retire_plane(session);
        control_client::tell(session, control_protocol::GAVE_UP);
    }
}
