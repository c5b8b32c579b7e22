//! End of interception: the policy stands down, or every thread runs natively.

use core::sync::atomic::Ordering::*;

use crate::arch::{self, CALLS, RUNAHEAD_INTEREST, TRAPPED};
use crate::call_routing::set_interest;
use crate::interception_state::{CALLING_OFF, REPORTS, RETIRED, STANDS_DOWN, is_retired};
use crate::sys::has_threads;
use crate::thread::{self, Thread};
use crate::{dispatch_signal, policy, sent_signals, signal_block, signal_masks, sys};

/// Leaves the agent's code after a panic: the program goes on without the agent.
///
/// # Safety
/// Called inside a dispatch.
pub unsafe fn fail_open() -> ! {
    stand_down();
    match thread::current() {
        Some(thread) => {
            signal_block::abandon(thread);
            // SAFETY: passed on to the caller; the frames given up own nothing.
            unsafe { arch::abandon(thread, thread.result.get()) }
        }
        None => sys::exit(1),
    }
}

/// Ends the policy for good: it sees no more calls, children and execs.
///
/// A program with threads stays intercepted, for its signal masks. A thread that ran natively could
/// install a handler with SIGSYS in its mask, during which the kernel would kill the other threads
/// by their dispatch. With one thread there is no such danger, and interception ends.
pub fn stand_down() {
    if is_retired() {
        return;
    }
    if !has_threads() {
        return retire();
    }
    STANDS_DOWN.store(true, Relaxed);
    report_loss();
    policy::remove();
    if REPORTS.swap(false, Relaxed) {
        let _ = dispatch_signal::install_action();
    }
    (0..CALLS as u64).for_each(|nr| set_interest(nr, 0));
}

pub(crate) fn report_loss() {
    if let Some(policy) = policy::events() {
        policy.lost();
    }
}

/// Gives interception up for good, in all threads: the program runs natively from here on.
pub fn retire() {
    if has_threads() { retire_all_threads() } else { retire_this() }
}

/// Gives interception up in this thread. Others find out at their next call, for which patched
/// sites trap.
pub(crate) fn retire_this() {
    report_loss();
    RETIRED.store(true, Relaxed);
    let how = if has_threads() { TRAPPED } else { 0 };
    RUNAHEAD_INTEREST.iter().for_each(|call| call.store(how, Relaxed));
    // No new thread takes a place any more. One that is on its way holds it already, and looks at
    // `RETIRED`.
    thread::take_spares();
    if let Some(thread) = thread::current() {
        leave_for_good(thread);
    }
}

/// Retires as [`retire`] does, and waits up to 20 ms until every thread's dispatch is
/// off. What the caller does next would make our signal fatal to them.
pub fn retire_all_threads() {
    const PATIENCE_US: u64 = 20_000;
    const STEP_US: u64 = 200;
    // A repetition is needed only for a thread at which another SIGSYS had just arrived.
    const AGAIN: u64 = 25;
    // Our handler stays until nothing is under way to it.
    CALLING_OFF.store(true, SeqCst);
    retire_this();
    for step in 0..PATIENCE_US / STEP_US {
        if thread::armed() == 0 {
            break;
        }
        if step % AGAIN == 0 {
            thread::others(|thread| sent_signals::call_off(thread.number()));
        }
        sys::sleep_us(STEP_US);
    }
    CALLING_OFF.store(false, SeqCst);
    if let (0, Some(thread)) = (thread::armed(), thread::current()) {
        signal_masks::restore_sigsys(thread);
    }
}

/// The thread goes on natively, in a process that has retired. The last one gives SIGSYS back.
pub(crate) fn leave_for_good(thread: &Thread) {
    thread.end_pokes();
    // First the mask: the thread that waits for the last to leave may send what only the mask keeps
    // from us.
    signal_masks::restore_mask(thread);
    if thread.disarm() && !CALLING_OFF.load(SeqCst) {
        signal_masks::restore_sigsys(thread);
    }
}
