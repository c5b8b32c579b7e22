//! execve and execveat: the new program inherits what this one believes of its signals, and those
//! above have their say before.

use linux_raw_sys::general as k;

use super::kernel_signals::{self, Action};
use super::policy::Exec;
use super::thread::Thread;
use super::{policy, program_faults, signal_masks};
use crate::address_range::AddressRange;
use crate::intercepted_call::Call;
use crate::{address_space, sys};

/// Makes the call; returns only if it fails.
///
/// It is made from the stack that we were called on, that of our signal's frame: while that is
/// there the kernel has no alternate stack, as a new program has none. What is done before and
/// after is done with signals blocked.
pub(super) fn exec(call: &Call) -> i64 {
    let thread = call.thread;
    let mask = sys::set_mask(!0);
    let mut work = ExecWork { call: *call, prepared: None, answer: None };
    on_agent_stack(&mut work, prepare);
    if let Some(answer) = work.answer {
        sys::set_mask(kernel_signals::without_sigsys(mask));
        return answer;
    }
    let believed = thread.as_believed(mask);
    sys::set_mask(policy::events().map_or(believed, |policy| policy.mask_over_exec(believed)));
    // SAFETY: the program asked for exactly this call, or the policy has another made in its place.
    let ret = unsafe { sys::raw(work.call.nr, work.call.args) };
    let now = sys::set_mask(!0);
    on_agent_stack(&mut work, undo);
    sys::set_mask(kernel_signals::without_sigsys(now));
    ret
}

/// Arguments and result of an exec on the agent's stack.
struct ExecWork {
    /// The call that is made.
    call: Call,
    prepared: Option<Prepared>,
    /// Result for the program in place of a call; None: the call is made.
    answer: Option<i64>,
}

/// State to undo if the call fails.
struct Prepared {
    token: Option<policy::Token>,
    ours: Option<Action>,
}

extern "C" fn prepare(work: u64) {
    // SAFETY: `exec` passes its own, which lives until we return.
    let work = unsafe { &mut *(work as *mut ExecWork) };
    match policy::events().map_or(Exec::AsItStands, |policy| policy.redirect_exec(&work.call)) {
        Exec::AsItStands => {}
        Exec::Answer(answer) => return work.answer = Some(answer),
        Exec::Instead { nr, args, memory } => {
            work.call = Call { nr, args, ..work.call };
            work.call.thread.exec_memory.set(memory);
        }
    }
    let token = policy::events().map(|policy| policy.before_exec(&work.call));
    // An ignored SIGSYS stays ignored over exec, a handler does not.
    let ours = signal_masks::ignores_sigsys(work.call.thread)
        .and_then(|action| kernel_signals::set_action(k::SIGSYS as i32, Some(&action)).ok());
    program_faults::lend_for_exec();
    work.prepared = Some(Prepared { token, ours });
}

extern "C" fn undo(work: u64) {
    // SAFETY: as in `prepare`.
    let work = unsafe { &mut *(work as *mut ExecWork) };
    give_memory_back(work.call.thread);
    let Some(Prepared { token, ours }) = work.prepared.take() else { return };
    program_faults::take_again();
    if let Some(ours) = ours {
        let _ = kernel_signals::set_action(k::SIGSYS as i32, Some(&ours));
    }
    if let (Some(policy), Some(token)) = (policy::events(), token) {
        policy.exec_failed(token);
    }
}

/// Frees the memory of an exec's arguments: the exec has failed, or was a vfork child's, which is
/// gone.
pub(super) fn give_memory_back(thread: &Thread) {
    let memory = thread.exec_memory.replace(AddressRange::EMPTY);
    if memory != AddressRange::EMPTY {
        // SAFETY: the policy has mapped it for that call, which is over, and no other code knows of
        // it.
        unsafe { address_space::give_back(memory.start, memory.bytes()) };
    }
}

/// Signals are blocked.
fn on_agent_stack(work: &mut ExecWork, step: extern "C" fn(u64)) {
    let thread = work.call.thread;
    let at = core::ptr::from_mut(work) as u64;
    if thread.depth.get() != 0 && thread.lent.get().is_none() {
        // A handler that interrupted the agent: its stack is in use.
        return step(at);
    }
    let depth = thread.depth.replace(1);
    // SAFETY: the depth was free, or held for a vfork child, which uses no stack of ours.
    unsafe { thread.on_stack(work.call.stack, at, step) };
    thread.depth.set(depth);
}
