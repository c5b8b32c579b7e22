//! Stops all other threads of the process: each in front of a call, behind one, or between two instructions of the
//! program's, with its registers in the frame of our signal, where they can be read and changed.
//!
//! Each thread is sent the signal and waits in the handler, with signals blocked, until it is released. One that waits in the
//! kernel for a call leaves it as for any signal, and makes it anew. (So a timeout begins anew, too: who is stopped again
//! and again before it is over never sees its end.) That is for a policy that is told of all calls
//! ([`Interest::Reported`](crate::Interest::Reported)); elsewhere a call that any handler interrupts fails with EINTR.
//!
//! A thread that does not come is not waited for: then nobody is stopped. It may be unknown, have lent itself to a vfork
//! child, wait where no signal reaches it or with a mask for that call, or be a first thread that has ended before the others.

use core::sync::atomic::{AtomicU32, Ordering::*};

use linux_raw_sys::general as k;

use crate::arch::Context;
use crate::thread::{self, Thread};
use crate::{signals, sys};

/// What our signal carries to a thread that is to stop.
pub(super) const STOP: u64 = 0x7261_6864_7374_6f70;
/// How long threads may take to come, and how long until the next look.
const PATIENCE_US: u64 = 50_000;
const STEP_US: u64 = 50;
/// Looks after which the signal is sent again: a thread that makes a call just then may get only the signal for that.
const AGAIN: u64 = 8;

/// The thread that stops the others, until all of them have gone on; 0: nobody.
static STOPPER: AtomicU32 = AtomicU32::new(0);
/// 1 while they are to wait, on this.
static STOPPING: AtomicU32 = AtomicU32::new(0);

/// All other threads of the process are stopped while this is there.
pub struct Stopped(());

/// Stops them. EAGAIN: another thread stops this one; EBUSY: one does not come.
pub fn stop_others() -> sys::Result<Stopped> {
    let own = sys::gettid();
    STOPPER.compare_exchange(0, own, SeqCst, Relaxed).map_err(|_| sys::Errno(sys::EAGAIN))?;
    STOPPING.store(1, SeqCst);
    let stopped = Stopped(());
    if !crate::has_threads() {
        return Ok(stopped);
    }
    for step in 0..PATIENCE_US / STEP_US {
        // Threads that are not stopped yet may make others meanwhile: all of them have come when none is missing.
        let mut come = 1;
        let again = step.is_multiple_of(AGAIN);
        thread::others(|thread| match thread.is_stopped() {
            true => come += 1,
            false if !thread.stop_sent.swap(true, Relaxed) || again => {
                signals::send(thread.number(), STOP);
            }
            false => {}
        });
        if come == threads()? {
            return Ok(stopped);
        }
        sys::sleep_us(STEP_US);
    }
    Err(sys::Errno(sys::EBUSY))
}

impl Stopped {
    /// Calls `each` with every thread that is stopped, and where it goes on.
    pub fn each(&self, mut each: impl FnMut(u32, &mut Context)) {
        thread::others(|thread| {
            // SAFETY: that thread's own frame, in which it waits until we release it.
            if let Some(context) = unsafe { thread.stopped_in.load(Acquire).as_mut() } {
                each(thread.number(), context);
            }
        });
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        STOPPING.store(0, SeqCst);
        sys::futex_wake(&STOPPING);
        // The next one must not take them for stopped.
        loop {
            let mut staying = false;
            thread::others(|thread| staying |= thread.is_stopped());
            if !staying {
                break;
            }
            sys::sleep_us(STEP_US);
        }
        thread::others(|thread| thread.stop_sent.store(false, Relaxed));
        STOPPER.store(0, SeqCst);
    }
}

/// Threads of this process, as the kernel counts them: their directory has a link for each, and two more (proc(5)).
fn threads() -> sys::Result<u32> {
    let task = c"/proc/self/task".as_ptr() as u64;
    let told = sys::statx_path(task, k::STATX_NLINK)?;
    Ok(told.stx_nlink.saturating_sub(2))
}

/// The thread has been sent the signal, and goes on with `context` when it has returned from it. All signals are blocked.
pub(super) fn arrive(thread: &Thread, context: &mut Context) {
    if crate::is_ours(context.after()) {
        // We were at work for it, and what lies there is ours: it will be sent another.
        return thread.stop_sent.store(false, Relaxed);
    }
    while_stopped(thread, context, |_| {});
}

/// Does `work` while the thread counts as stopped in `context`, with which it goes on. All signals are blocked.
pub(super) fn while_stopped(
    thread: &Thread,
    context: &mut Context,
    work: impl FnOnce(&mut Context),
) {
    thread.stopped_in.store(context, SeqCst);
    work(context);
    loop {
        while STOPPING.load(SeqCst) != 0 {
            let _ = sys::futex_wait(&STOPPING, 1, None);
        }
        thread.stopped_in.store(core::ptr::null_mut(), SeqCst);
        // Who has begun to stop threads meanwhile may have seen us stopped.
        if STOPPING.load(SeqCst) == 0 {
            return;
        }
        thread.stopped_in.store(context, SeqCst);
    }
}
