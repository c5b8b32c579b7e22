//! The signal by which dispatch delivers a call, as the kernel makes it.

use linux_raw_sys::general as k;

use super::kernel_signals::{self, Action};
use crate::arch::{self, Context, pkeys};
use crate::sys;

/// `si_code` of a dispatched call (asm-generic/siginfo.h).
pub(super) const SYS_USER_DISPATCH: i32 = 2;

/// `siginfo_t` of a SIGSYS (sigaction(2)).
#[repr(C)]
pub(crate) struct SigsysInfo {
    pub signal: i32,
    pub errno: i32,
    pub code: i32,
    pub pad: i32,
    pub call_address: u64,
    pub call: i32,
    pub arch: u32,
}

/// Our action for the signal.
pub(super) fn action() -> Action {
    // Of a call that is reported it is to be known whether it had begun: it is not restarted, but
    // fails, and is made again.
    let restart = if crate::interception_state::reports() { 0 } else { k::SA_RESTART };
    let flags = k::SA_SIGINFO | k::SA_RESTORER | k::SA_NODEFER | k::SA_ONSTACK | restart;
    Action { handler: pkeys::on_signal(), flags: flags.into(), restorer: arch::restorer(), mask: 0 }
}

/// Gives the kernel our action for the signal, which may have changed ([`action`]). Returns the one
/// that it had.
pub(super) fn install_action() -> sys::Result<Action> {
    kernel_signals::set_action(k::SIGSYS as i32, Some(&action()))
}

/// Frame that our handler would return from, if it was itself interrupted in front of its first
/// instruction and is for a call, which has not been looked at yet.
///
/// # Safety
/// A frame of the kernel's for this thread.
pub(super) unsafe fn unanswered(context: &Context) -> Option<*mut Context> {
    if context.after() != pkeys::on_signal() {
        return None;
    }
    let (info, call) = context.passed();
    // SAFETY: passed on to the caller: the kernel passes both to our handler, live until that
    // returns.
    let is_call = unsafe { (*(info as *const SigsysInfo)).code == SYS_USER_DISPATCH };
    is_call.then_some(call as *mut Context)
}
