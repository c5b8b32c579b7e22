//! execve and execveat: the new program inherits what this one believes of its signals, and those
//! above have their say before.

use linux_raw_sys::general as k;

use super::thread::Thread;
use super::{Call, Token, hooks, masks};
use crate::arch;
use crate::sys;

/// What is handed to the agent's stack and back.
struct Work<'a> {
    call: &'a Call,
    ret: i64,
}

/// Makes the call; returns only if it fails.
pub(super) fn exec(call: &Call) -> i64 {
    let thread = call.thread;
    let mut work = Work { call, ret: 0 };
    let at = &raw mut work as u64;
    let busy = thread.depth.get() != 0 && thread.lent.get().is_none();
    if busy {
        // A handler that interrupted the agent: its stack is in use.
        on_agent_stack(at);
    } else {
        // The program's stack may be small here, as that of a child of posix_spawn(3).
        let depth = thread.depth.replace(1);
        // SAFETY: the depth was free, or held for a vfork child, which uses no stack of ours.
        unsafe { arch::on_stack(thread.stack_top.get(), at, on_agent_stack) };
        thread.depth.set(depth);
    }
    work.ret
}

extern "C" fn on_agent_stack(work: u64) {
    // SAFETY: `exec` passes its own, which lives until we return.
    let work = unsafe { &mut *(work as *mut Work<'_>) };
    work.ret = perform(work.call, work.call.thread);
}

fn perform(call: &Call, thread: &Thread) -> i64 {
    let mask = sys::set_mask(!0);
    let token: Option<Token> = hooks().map(|hooks| (hooks.before_exec)(call));
    // An ignored SIGSYS stays ignored over exec, a handler does not.
    let ours = masks::ignores_sigsys(thread)
        .and_then(|action| masks::set_action(k::SIGSYS as i32, Some(&action)).ok());
    sys::set_mask(masks::as_believed(thread, mask));
    let ret = call.perform();
    let now = sys::set_mask(!0);
    if let Some(ours) = ours {
        let _ = masks::set_action(k::SIGSYS as i32, Some(&ours));
    }
    if let (Some(hooks), Some(token)) = (hooks(), token) {
        (hooks.exec_failed)(token);
    }
    sys::set_mask(masks::without_sigsys(now));
    ret
}
