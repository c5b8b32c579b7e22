//! Faults of the program, while a policy handles them first: those that a wrong prediction causes
//! are rolled back, and must not end the process.
//!
//! The kernel gets our handler in place of the program's action, whatever that is, for the signals
//! in [`TAKEN`]. SIGTRAP is not among them: a breakpoint lies in front of where the thread goes on,
//! and the debugger that has set it waits for it.

use core::sync::atomic::{AtomicBool, Ordering::*};

use linux_raw_sys::general as k;

use crate::arch::{self, Context};
use crate::kernel_signals::{self, Action, SIG_DFL};
use crate::spin_lock::Lock;
use crate::{policy, sys, thread, thread_stop};

/// Signals by which instructions fail.
pub const TAKEN: [u32; 4] = [k::SIGSEGV, k::SIGBUS, k::SIGILL, k::SIGFPE];

/// `si_code` of a SIGSEGV for want of rights (asm-generic/siginfo.h).
const SEGV_ACCERR: i32 = 2;

static IS_TAKEN: AtomicBool = AtomicBool::new(false);
const NO_ACTION: Action = Action { handler: SIG_DFL, flags: 0, restorer: 0, mask: 0 };
/// Actions that the kernel had before.
static BEFORE: Lock<[Action; TAKEN.len()]> = Lock::new([NO_ACTION; TAKEN.len()]);

fn action() -> Action {
    let flags = k::SA_SIGINFO | k::SA_RESTORER | k::SA_ONSTACK;
    let handler = runahead_fault as *const () as u64;
    Action { handler, flags: flags.into(), restorer: arch::restorer(), mask: !0 }
}

/// From here on the policy is told of them ([`policy::ReportingPolicy::fault`]). No other thread is
/// at work; signals are blocked.
pub fn take() -> sys::Result<()> {
    let ours = action();
    BEFORE.with(|before| {
        for (before, signal) in before.iter_mut().zip(TAKEN) {
            *before = kernel_signals::set_action(signal as i32, Some(&ours))?;
        }
        IS_TAKEN.store(true, Relaxed);
        Ok(())
    })
}

/// They are the program's again.
pub fn give_back() {
    if !IS_TAKEN.swap(false, Relaxed) {
        return;
    }
    BEFORE.with(|before| {
        for (before, signal) in before.iter().zip(TAKEN) {
            let _ = kernel_signals::set_action(signal as i32, Some(before));
        }
    });
}

/// Does `work`, which looks at the program's action for this signal, or changes it, while the
/// kernel has that. No other thread is at work; signals are blocked.
pub(super) fn with_programs<T>(signal: u32, work: impl FnOnce() -> T) -> T {
    let number = TAKEN.iter().position(|taken| *taken == signal);
    let Some(number) = number.filter(|_| IS_TAKEN.load(Relaxed)) else { return work() };
    let _ = set_action_of(signal, BEFORE.with(|before| before[number]));
    let result = work();
    if let Ok(now) = set_action_of(signal, action()) {
        BEFORE.with(|before| before[number] = now);
    }
    result
}

/// A new program is to inherit the program's actions: the kernel has them until the exec has failed
/// ([`take_again`]). Signals are blocked.
pub(super) fn lend_for_exec() {
    set_all(|number| BEFORE.with(|before| before[number]));
}

/// The exec has failed.
pub(super) fn take_again() {
    set_all(|_| action());
}

fn set_all(action: impl Fn(usize) -> Action) {
    if IS_TAKEN.load(Relaxed) {
        for (number, signal) in TAKEN.into_iter().enumerate() {
            let _ = set_action_of(signal, action(number));
        }
    }
}

fn set_action_of(signal: u32, action: Action) -> sys::Result<Action> {
    kernel_signals::set_action(signal as i32, Some(&action))
}

/// Frees, in a forked child, the lock that another thread held.
pub(super) fn in_new_process() {
    BEFORE.break_open();
}

/// Our handler, with all signals blocked.
extern "C" fn runahead_fault(signal: i32, info: u64, context: *mut Context) {
    // SAFETY: the kernel passes the frame of this signal, live until we return.
    let context = unsafe { &mut *context };
    // SAFETY: the kernel passes a siginfo_t.
    let (code, at) = unsafe { (*(info as *const i32).add(2), *(info as *const u64).add(2)) };
    if signal == k::SIGSEGV as i32
        && code == SEGV_ACCERR
        && context.is_store()
        && let Some(policy) = policy::reporting()
        && policy.write_fault(at)
    {
        return;
    }
    context.note_bases();
    if let (Some(thread), true) = (thread::current(), policy::installed().is_some()) {
        thread_stop::while_stopped(thread, context, |context| {
            if let Some(policy) = policy::reporting() {
                policy.fault(signal, context);
            }
        });
    }
    context.set_bases();
    if code <= 0 {
        // Another process has sent the signal, and no instruction raises it again.
        kernel_signals::send_to_itself(signal, info);
    }
}
