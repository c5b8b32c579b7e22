//! Stops all other threads of the process: each in front of a call, behind one, or between two
//! instructions of the program. The registers of a stopped thread are in the frame of our signal,
//! where they can be read and changed.
//!
//! Each thread is sent the signal and waits in the handler, with signals blocked, until it is
//! released. A thread that waits in the kernel for a call leaves it as for any signal, and makes it
//! anew, with what is left of a timeout (`call_restart`). That works under a
//! [`ReportingPolicy`](crate::ReportingPolicy); elsewhere a call that any handler interrupts fails
//! with EINTR.
//!
//! If one thread does not come, none is stopped. Such a thread is unknown to the plane, has lent
//! itself to a vfork child, waits where no signal reaches it, has frames of ours in memory of the
//! program, or is a first thread that has ended before the others.

use core::sync::atomic::{AtomicU32, Ordering::*};

use linux_raw_sys::general as k;

use crate::arch::Context;
use crate::reported_call_state::CallProgress;
use crate::sys::{self, nr};
use crate::thread::{self, Thread};
use crate::{kernel_signals, sent_signals};

/// Most times that threads that have not come are sent the signal. A thread that makes a call just
/// then may get only the signal for that call.
const TIMES: u32 = 500;
const AGAIN_US: u64 = 400;

/// TID of the thread that stops the others; 0: none.
static STOPPER: AtomicU32 = AtomicU32::new(0);
/// Number of the current stop; threads wait on this word (futex). 0: threads go on. A thread that
/// has not gone on yet when the next stop begins stays.
static STOPPING: AtomicU32 = AtomicU32::new(0);
/// Number of the last stop.
static LAST: AtomicU32 = AtomicU32::new(0);
/// Stands in for the number of a stop: the thread waits for something else, and does not go on
/// before that.
const WAITS: u32 = u32::MAX;

/// TID of the process's first thread, while it takes signals for the process before others go on;
/// 0: none.
static TAKER: AtomicU32 = AtomicU32::new(0);
/// Most times that the first thread is woken to take signals.
const TAKER_TIMES: u32 = 50;

/// Count of threads that have come or gone on. A thread that waits for either waits on this word.
static MOVES: AtomicU32 = AtomicU32::new(0);

/// Keeps all other threads of the process stopped while it lives. Holds the number of the stop; 0:
/// there are no other threads.
pub struct Stopped(u32);

/// Stops all other threads. EAGAIN: another thread stops this one; EBUSY: a thread does not come.
pub fn stop_others() -> sys::Result<Stopped> {
    if !keep_others_from_stopping() {
        return Err(sys::Errno(sys::EAGAIN));
    }
    if !crate::sys::has_threads() {
        return Ok(Stopped(0));
    }
    let number = LAST.load(Relaxed) % (WAITS - 1) + 1;
    LAST.store(number, Relaxed);
    let stopped = Stopped(number);
    STOPPING.store(number, SeqCst);
    for _ in 0..TIMES {
        thread::others(|thread| {
            if !has_come(thread, number) {
                sent_signals::stop(thread.number());
            }
        });
        // Threads that are not stopped yet may make others: all have come when none is missing.
        let all_have_come = || {
            let mut come = 1;
            thread::others(|thread| come += u32::from(has_come(thread, number)));
            threads().map(|all| all == come)
        };
        if wait_until(all_have_come)? {
            return Ok(stopped);
        }
        let mut refused = false;
        thread::others(|thread| refused |= thread.refused.load(SeqCst) == number);
        if refused {
            break;
        }
    }
    Err(sys::Errno(sys::EBUSY))
}

/// Returns true if the calling thread may stop others, from now on. Then no thread stops it, and
/// none of our signals is on its way to it, as a new program must not find one.
pub(super) fn keep_others_from_stopping() -> bool {
    let own = sys::gettid();
    match STOPPER.compare_exchange(0, own, SeqCst, SeqCst) {
        Ok(_) => true,
        Err(stopper) => stopper == own,
    }
}

/// Lets others stop the calling thread again.
pub(super) fn let_others_stop() {
    let _ = STOPPER.compare_exchange(sys::gettid(), 0, SeqCst, Relaxed);
}

/// Marks a forked child as one without a stop.
pub(super) fn in_new_process() {
    STOPPING.store(0, SeqCst);
    STOPPER.store(0, SeqCst);
}

/// Waits for threads to come or go on, until `done` returns true or [`AGAIN_US`] have passed.
fn wait_until(done: impl Fn() -> sys::Result<bool>) -> sys::Result<bool> {
    loop {
        let moves = MOVES.load(SeqCst);
        if done()? {
            return Ok(true);
        }
        let timed_out =
            sys::futex_wait(&MOVES, moves, Some(AGAIN_US)).is_err_and(|e| e.0 == sys::ETIMEDOUT);
        if timed_out {
            return done();
        }
    }
}

fn has_moved() {
    MOVES.fetch_add(1, SeqCst);
    if STOPPER.load(SeqCst) != 0 {
        sys::futex_wake(&MOVES);
    }
}

impl Stopped {
    /// Calls `each` with the TID of every stopped thread, and the frame in which it goes on.
    pub fn each(&self, mut each: impl FnMut(u32, &mut Context)) {
        if self.0 == 0 {
            return;
        }
        thread::others(|thread| {
            // A thread that waited for something else ([`WAITS`]) and is about to go on finds that
            // it may not.
            while !has_come(thread, self.0) {
                if !is_there(thread) {
                    return;
                }
                // SAFETY: sched_yield(2) takes no arguments.
                let _ = unsafe { sys::raw(nr::SCHED_YIELD, [0; 6]) };
            }
            // SAFETY: that thread's own frame, in which it waits until we release it.
            if let Some(context) = unsafe { thread.stopped_in.load(Acquire).as_mut() } {
                each(thread.number(), context);
            }
        });
    }
}

impl Stopped {
    /// Returns the signals that other threads take as soon as they go on. The calling thread cannot
    /// ask the kernel for those of one thread alone.
    pub fn due_signals(&self) -> u64 {
        let mut due = 0;
        if self.0 != 0 {
            thread::others(|thread| due |= thread.due_signals.load(SeqCst));
        }
        due
    }

    /// Lets the first thread take the signals for the process that have come during the stop.
    /// Otherwise the kernel would give each to the thread that goes on first. Without a stop it
    /// gives them to the first thread, unless that has them blocked (signal(7)).
    fn let_the_first_take_signals(&self) {
        let first = sys::getpid();
        if self.0 == 0 || first == sys::gettid() || kernel_signals::waiting() == 0 {
            return;
        }
        let mut is_stopped = false;
        thread::others(|thread| {
            is_stopped |= thread.number() == first && thread.stopped_for.load(SeqCst) == self.0;
        });
        if !is_stopped {
            return;
        }
        TAKER.store(first, SeqCst);
        for _ in 0..TAKER_TIMES {
            sys::futex_wake(&STOPPING);
            if wait_until(|| Ok(TAKER.load(SeqCst) == 0)) == Ok(true) {
                return;
            }
        }
        TAKER.store(0, SeqCst);
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.let_the_first_take_signals();
        STOPPING.store(0, SeqCst);
        // A woken thread may be the next to stop the others.
        STOPPER.store(0, SeqCst);
        sys::futex_wake(&STOPPING);
    }
}

/// True if the thread has come for the stop of that number.
fn has_come(thread: &Thread, number: u32) -> bool {
    [number, WAITS].contains(&thread.stopped_for.load(SeqCst))
}

/// True if the kernel knows the thread (tgkill(2) without a signal). A thread that has ended unseen
/// may still have its place.
fn is_there(thread: &Thread) -> bool {
    let args = [sys::getpid().into(), thread.number().into(), 0, 0, 0, 0];
    // SAFETY: sends nothing.
    unsafe { sys::raw(nr::TGKILL, args) == 0 }
}

/// Threads of this process, as the kernel counts them: their directory has a link for each, and two
/// more (proc(5)).
fn threads() -> sys::Result<u32> {
    let task = c"/proc/self/task".as_ptr() as u64;
    let directory = sys::statx_path(task, k::STATX_NLINK)?;
    Ok(directory.stx_nlink.saturating_sub(2))
}

/// The thread has been sent the signal, and goes on with `context` when it has returned from it.
/// All signals are blocked.
pub(super) fn arrive(thread: &Thread, context: &mut Context) {
    if crate::interception_state::is_ours(context.after()) {
        // The thread runs the agent's code, whose frames no policy may change. It will be sent
        // another signal.
        thread.is_disturbed.set(true);
        return;
    }
    if !thread.has_frame(context) {
        // A handler that met another's first instructions has its frames on the program's stack.
        thread.refused.store(STOPPING.load(SeqCst), SeqCst);
        return has_moved();
    }
    wait(thread, context);
}

/// Returns what the thread of that TID has noted of the call that it is in. It is the calling
/// thread, or a stopped one.
pub fn call_progress(number: u32) -> Option<CallProgress> {
    let mut progress = None;
    with(number, |thread| progress = thread.call_progress.get());
    progress
}

/// Sets what the thread of that TID has noted. It is the calling thread, or a stopped one.
pub fn set_call_progress(number: u32, progress: Option<CallProgress>) {
    with(number, |thread| thread.call_progress.set(progress));
}

fn with(number: u32, mut work: impl FnMut(&Thread)) {
    match thread::current() {
        Some(own) if own.number() == number => work(own),
        _ => thread::others(|thread| {
            if thread.number() == number {
                work(thread);
            }
        }),
    }
}

/// Does `work`, which waits, while the thread counts as stopped in `context`, with which it goes
/// on. All signals are blocked.
pub(super) fn while_stopped(
    thread: &Thread,
    context: &mut Context,
    work: impl FnOnce(&mut Context),
) {
    thread.stopped_in.store(context, SeqCst);
    thread.stopped_for.store(WAITS, SeqCst);
    has_moved();
    work(context);
    wait(thread, context);
}

/// Waits until no thread stops this one, which goes on with `context`. All signals are blocked.
pub(super) fn wait(thread: &Thread, context: *mut Context) {
    loop {
        let number = STOPPING.load(SeqCst);
        // SAFETY: the caller's own frame.
        thread.due_signals.store(kernel_signals::waiting() & !unsafe { (*context).mask }, SeqCst);
        thread.stopped_in.store(context, SeqCst);
        thread.stopped_for.store(number, SeqCst);
        has_moved();
        if number != 0 && TAKER.load(SeqCst) == thread.number() {
            // SAFETY: the caller's own frame.
            kernel_signals::take_for_the_process(unsafe { (*context).mask });
            TAKER.store(0, SeqCst);
            has_moved();
        }
        if number != 0 {
            let _ = sys::futex_wait(&STOPPING, number, None);
        } else if STOPPING.load(SeqCst) == 0 {
            return;
        }
    }
}
