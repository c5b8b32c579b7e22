//! A checkpoint of the whole process, and what it comes to: commit or rollback, in place.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use linux_raw_sys::general as k;

use super::memory::Memory;
use super::threads::{self, Threads};
use crate::arch::{Context, RED_ZONE};
use crate::lock::Lock;
use crate::plane::{faults, policy, stop};
use crate::room;
use crate::session::Session;
use crate::sys;

/// What a process needs to become again what it was. All-zero is valid.
struct Checkpoint {
    memory: Memory,
    threads: Threads,
}

/// Made when the process takes its first.
static CHECKPOINT: AtomicPtr<Checkpoint> = AtomicPtr::new(core::ptr::null_mut());
static IN_USE: Lock<()> = Lock::new(());
/// How far the process is; see [`NOT`] and what follows.
static STATE: AtomicU32 = AtomicU32::new(NOT);
/// It does not speculate.
const NOT: u32 = 0;
/// A thread takes a checkpoint.
const TAKING: u32 = 1;
const SPECULATIVE: u32 = 2;
/// The outcome is known, and a thread does what follows from it.
const ENDING: u32 = 3;
/// 1 once it has ended: whoever waits for that waits here.
static RESOLVED: AtomicU32 = AtomicU32::new(0);

/// Signals that a thread cannot but take, when it raises them. All others wait for the outcome.
const NOT_HELD: u64 = {
    let mut signals = 1 << (k::SIGSYS - 1) | 1 << (k::SIGTRAP - 1);
    let mut n = 0;
    while n < faults::TAKEN.len() {
        signals |= 1 << (faults::TAKEN[n] - 1);
        n += 1;
    }
    signals
};

/// The process goes on as if a prediction had come true.
pub fn is_speculative() -> bool {
    STATE.load(SeqCst) >= SPECULATIVE
}

/// Where to wait for the outcome.
pub fn resolved() -> &'static AtomicU32 {
    &RESOLVED
}

/// Signals must be blocked.
fn with<T>(mut work: impl FnMut(&mut Checkpoint) -> T) -> sys::Result<T> {
    let mut at = CHECKPOINT.load(Acquire);
    if at.is_null() {
        at = room::map_private(size_of::<Checkpoint>() as u64)? as *mut Checkpoint;
        CHECKPOINT.store(at, Release);
    }
    // SAFETY: zeroes are valid; it stays, and who holds the lock is alone with it.
    Ok(IN_USE.with(|()| work(unsafe { &mut *at })))
}

/// Takes a checkpoint of the process with the calling thread as in `frame`, from which it goes on speculatively. Whatever the
/// reason why there is none, nothing has happened. `first` is done when nothing can go wrong any more, and nobody else is at work.
pub fn take(session: &Session, frame: &mut Context, first: impl FnOnce()) -> sys::Result<()> {
    let free = STATE.compare_exchange(NOT, TAKING, SeqCst, Relaxed);
    free.map_err(|_| sys::Errno(sys::EALREADY))?;
    let taken = try_to_take(session, frame, first);
    if taken.is_err() {
        STATE.store(NOT, SeqCst);
    }
    taken
}

fn try_to_take(session: &Session, frame: &mut Context, first: impl FnOnce()) -> sys::Result<()> {
    let stopped = stop::stop_others()?;
    with(|Checkpoint { memory, threads }| {
        threads.keep(frame, &stopped)?;
        let mut reach = |frame: &Context| {
            if !memory.covers(frame.stack_pointer() - RED_ZONE) {
                memory.unsettle();
            }
        };
        reach(frame);
        stopped.each(|_, frame| reach(frame));
        memory.keep(session)
    })??;
    faults::take()?;
    first();
    RESOLVED.store(0, SeqCst);
    STATE.store(SPECULATIVE, SeqCst);
    frame.mask = !NOT_HELD;
    stopped.each(|_, frame| frame.mask = !NOT_HELD);
    Ok(())
}

/// What becomes of a speculation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The prediction was right.
    Commit,
    /// It was wrong.
    Fail,
}

/// Whether it is for the caller to [`end`] it. (One does.)
pub fn may_end() -> bool {
    STATE.compare_exchange(SPECULATIVE, ENDING, SeqCst, Relaxed).is_ok()
}

/// Ends the speculation; `frame` is that of the calling thread. (`leaves_memory`: a test plants that it does.)
pub fn end(outcome: Outcome, frame: &mut Context, leaves_memory: bool) {
    let stopped = stop_all();
    let put_back = |checkpoint: &mut Checkpoint| {
        let Checkpoint { memory, threads } = checkpoint;
        if outcome == Outcome::Fail && !leaves_memory {
            threads::with_places_as_they_are(|| memory.put_back())?;
        }
        let go_on = |number, frame: &mut Context| match outcome {
            Outcome::Commit => threads.unmask(number, frame),
            Outcome::Fail => threads.take_back(number, frame),
        };
        let mut result = go_on(sys::gettid(), frame);
        stopped.each(|number, frame| result = result.and_then(|()| go_on(number, frame)));
        result
    };
    if with(put_back).and_then(|result| result).is_err() {
        // It cannot become what it was, and is not to go on as what it is.
        sys::exit(FAILED);
    }
    faults::give_back();
    // Nobody else is at work before this function returns.
    STATE.store(NOT, SeqCst);
    policy::wake(&RESOLVED);
    drop(stopped);
}

/// Exit status of a process that could not be taken back, or that was lost while it speculated.
pub const FAILED: i32 = 125;

fn stop_all() -> stop::Stopped {
    const PATIENCE: u32 = 1000;
    for _ in 0..PATIENCE {
        match stop::stop_others() {
            Ok(stopped) => return stopped,
            Err(_) => sys::sleep_us(100),
        }
    }
    sys::exit(FAILED)
}

/// From here on this process takes no checkpoint.
pub fn give_up() {
    let _ = with(|checkpoint| checkpoint.memory.give_up());
}

/// A call has changed, or is about to change, what is mapped or open.
pub fn note_change(change: impl Fn(&mut Memory)) {
    if !CHECKPOINT.load(Acquire).is_null() {
        let _ = with(|checkpoint| change(&mut checkpoint.memory));
    }
}

/// In a forked child, which does not speculate.
pub fn in_child() {
    IN_USE.break_open();
    STATE.store(NOT, SeqCst);
    if !CHECKPOINT.load(Acquire).is_null() {
        let _ = with(|checkpoint| checkpoint.memory.in_child());
    }
}
