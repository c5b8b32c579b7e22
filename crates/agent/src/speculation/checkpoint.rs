//! How far this process is: whether it speculates, and which thread changes that. What is kept for it lies in [`Process`].
//!
//! Its open speculations are one stack. What is committed at its bottom is done: what was held for it alone is released. One that fails takes
//! those above it along, since they began in what never was. One that is committed in the middle waits for those below it.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use linux_raw_sys::general as k;
use runahead_speculation::{ANSWER_MAX, Id, Table};

use super::memory_checkpoints::Memory;
use super::process_checkpoints::{OPEN_MAX, Process};
use super::{FAILED, table_host};
use crate::address_space;
use crate::arch::Context;
use crate::lock::Lock;
use crate::plane::{patch, policy, program_faults, thread_stop};
use crate::session::Session;
use crate::sys;

/// Made when the process takes its first checkpoint.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
static IN_USE: Lock<()> = Lock::new(());
/// How far the process is; see [`NOT`] and what follows.
static STATE: AtomicU32 = AtomicU32::new(NOT_SPECULATIVE);
/// It does not speculate.
const NOT_SPECULATIVE: u32 = 0;
/// A thread takes the first checkpoint.
const TAKING: u32 = 1;
const SPECULATIVE: u32 = 2;
/// A thread takes another checkpoint, or does what follows from an outcome: others wait with what they do.
const CHANGING: u32 = 3;
/// 0 while anything is open: whoever waits for all of it waits here.
static NONE_OPEN: AtomicU32 = AtomicU32::new(1);
/// 0 while a thread is at [`CHANGING`].
static CHANGE_DONE: AtomicU32 = AtomicU32::new(1);
/// Of the table, when it was last looked at.
static SEEN_CHANGES: AtomicU32 = AtomicU32::new(0);
/// How often this process was rolled back.
static ROLLBACKS: AtomicU32 = AtomicU32::new(0);

/// Signals that are held while the process speculates.
pub const BLOCKED_SIGNALS: u64 = !UNBLOCKED_SIGNALS;

/// Signals that a thread cannot but take, when it raises them. All others wait for the outcome.
const UNBLOCKED_SIGNALS: u64 = {
    let mut signals = 1 << (k::SIGSYS - 1) | 1 << (k::SIGTRAP - 1);
    let mut n = 0;
    while n < program_faults::TAKEN.len() {
        signals |= 1 << (program_faults::TAKEN[n] - 1);
        n += 1;
    }
    signals
};

/// The process goes on as if a prediction had come true.
pub fn is_speculative() -> bool {
    STATE.load(SeqCst) >= SPECULATIVE
}

/// Where to wait until nothing is open.
pub fn none_open() -> &'static AtomicU32 {
    &NONE_OPEN
}

/// Where to wait while another thread does what follows from an outcome.
pub fn change_done() -> &'static AtomicU32 {
    &CHANGE_DONE
}

/// Changes whenever the process is rolled back.
pub fn rollbacks() -> u32 {
    ROLLBACKS.load(SeqCst)
}

/// Signals must be blocked.
pub fn with<T>(mut work: impl FnMut(&mut Process) -> T) -> sys::Result<T> {
    let mut at = PROCESS.load(Acquire);
    if at.is_null() {
        at = address_space::map_private(size_of::<Process>() as u64)? as *mut Process;
        PROCESS.store(at, Release);
    }
    // SAFETY: zeroes are valid; it stays, and who holds the lock is alone with it.
    Ok(IN_USE.with(|()| work(unsafe { &mut *at })))
}

/// Moves the process from one state to another, or says that it is in neither.
fn change(from: u32, to: u32) -> sys::Result<()> {
    STATE
        .compare_exchange(from, to, SeqCst, Relaxed)
        .map(drop)
        .map_err(|_| sys::Errno(sys::EALREADY))
}

/// Takes a checkpoint of the process with the calling thread as in `frame`, from which on it speculates that `id` will be
/// committed, or that of another process's on which it `depends_on`. Whatever the reason why there is none, nothing has happened.
pub fn take(
    session: &Session,
    id: Id,
    tag: u32,
    depends_on: Option<Id>,
    frame: &mut Context,
) -> sys::Result<()> {
    let push = |process: &mut Process, frames| process.push(id, tag, depends_on, frames);
    if change(SPECULATIVE, CHANGING).is_ok() {
        CHANGE_DONE.store(0, SeqCst);
        let taken = take_another(session, frame, push);
        STATE.store(SPECULATIVE, SeqCst);
        policy::wake(&CHANGE_DONE);
        return taken;
    }
    change(NOT_SPECULATIVE, TAKING)?;
    let taken = take_first(session, frame, push);
    if taken.is_err() {
        STATE.store(NOT_SPECULATIVE, SeqCst);
    }
    taken
}

fn take_first(
    session: &Session,
    frame: &mut Context,
    push: impl Fn(&mut Process, (u64, u64)),
) -> sys::Result<()> {
    let stopped = thread_stop::stop_others()?;
    patch::keep_frames(true);
    let taken = with(|process| {
        process.begin();
        let frames = process.save(session, frame, &stopped, false)?;
        let masked = program_faults::take().and_then(|()| {
            let masked = process.threads.mask(frame, &stopped, BLOCKED_SIGNALS);
            masked.inspect_err(|_| program_faults::give_back())
        });
        masked.or_else(|errno| process.memory.end().and(Err(errno)))?;
        push(process, frames);
        Ok(())
    });
    taken.and_then(|taken| taken).inspect_err(|_| patch::keep_frames(false))?;
    NONE_OPEN.store(0, SeqCst);
    // Nobody else is at work before this function returns.
    STATE.store(SPECULATIVE, SeqCst);
    Ok(())
}

fn take_another(
    session: &Session,
    frame: &mut Context,
    push: impl Fn(&mut Process, (u64, u64)),
) -> sys::Result<()> {
    let stopped = thread_stop::stop_others()?;
    with(|process| {
        if process.end - process.first == OPEN_MAX as u64 {
            return Err(sys::Errno(sys::E2BIG));
        }
        let is_another = process.has_checkpoint();
        let frames = process.save(session, frame, &stopped, is_another)?;
        push(process, frames);
        Ok(())
    })?
}

/// What has become of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transition {
    /// It speculates, and the thread is where it was.
    Unchanged,
    /// It was rolled back: the thread goes on as its frame says.
    RolledBack,
    /// It does not speculate any more.
    Ended,
    /// Another thread does what follows from an outcome, or takes a checkpoint: to be asked again ([`settled`]).
    Busy,
}

/// Whether all outcomes that are known by now have had what follows from them.
pub fn outcomes_are_applied(table: &Table) -> bool {
    SEEN_CHANGES.load(SeqCst) == table.changes()
}

/// Does what follows from outcomes that are known by now; `frame` is that of the calling thread, which is not stopped.
pub fn apply_outcomes(table: &Table, frame: &mut Context) -> Transition {
    let settled = table.changes();
    match STATE.load(SeqCst) {
        NOT_SPECULATIVE | TAKING => return Transition::Ended,
        SPECULATIVE if outcomes_are_applied(table) => return Transition::Unchanged,
        _ if change(SPECULATIVE, CHANGING).is_err() => return Transition::Busy,
        _ => {}
    }
    CHANGE_DONE.store(0, SeqCst);
    SEEN_CHANGES.store(settled, SeqCst);
    let before = rollbacks();
    let is_done = commit_or_roll_back(table, frame);
    STATE.store(if is_done { NOT_SPECULATIVE } else { SPECULATIVE }, SeqCst);
    patch::keep_frames(!is_done);
    policy::wake(&CHANGE_DONE);
    if is_done {
        policy::wake(&NONE_OPEN);
    }
    match is_done {
        _ if rollbacks() != before => Transition::RolledBack,
        true => Transition::Ended,
        false => Transition::Unchanged,
    }
}

/// True: nothing is open any more.
fn commit_or_roll_back(table: &Table, frame: &mut Context) -> bool {
    let work = |process: &mut Process| {
        let (committed, failed) = process.outcomes(table);
        let is_all = process.end - process.first == committed;
        process.commit(table, committed);
        (is_all, failed)
    };
    let Ok((is_all, failed)) = with(work) else { return false };
    if !is_all && failed.is_none() {
        return false;
    }
    let stopped = stop_all();
    let work = |process: &mut Process| {
        if let Some(position) = failed {
            process.roll_back(table, position, frame, &stopped)?;
            ROLLBACKS.fetch_add(1, SeqCst);
        }
        let is_done = process.first == process.end;
        if is_done {
            process.end(table, frame, &stopped)?;
        }
        Ok::<_, sys::Errno>(is_done)
    };
    match with(work) {
        Ok(Ok(is_done)) => is_done,
        // It cannot become what it was, and is not to go on as what it is.
        _ => sys::exit(FAILED),
    }
}

fn stop_all() -> thread_stop::Stopped {
    const PATIENCE: u32 = 1000;
    for _ in 0..PATIENCE {
        match thread_stop::stop_others() {
            Ok(stopped) => return stopped,
            Err(_) => sys::sleep_us(100),
        }
    }
    sys::exit(FAILED)
}

/// Whoever settles one of those that are open is to poke its owner.
pub fn request_pokes(table: &Table) {
    let _ = with(|process| {
        let wanted = process.pokes_requested;
        let news = process.open().filter(|(position, _)| *position >= wanted);
        news.for_each(|(_, open)| table.request_poke(open.id));
        process.pokes_requested = process.end;
    });
}

/// Calls `each` with all that are open, the oldest first, what was to be remembered of each, and on which of another's it depends.
pub fn each_open(mut each: impl FnMut(Id, u32, Option<Id>)) {
    let _ = with(|process| {
        process.open().for_each(|(_, open)| each(open.id, open.tag, open.depends_on));
    });
}

/// What was said when `id` failed, into `to`: its bytes. None: it is not known (any more).
pub fn answer(id: u64, to: &mut [u8; ANSWER_MAX]) -> Option<usize> {
    let find = |process: &mut Process| {
        // (Those that never were have the number 0.)
        let answer = process.answers.iter().find(|answer| id != 0 && answer.id == id)?;
        to[..answer.len].copy_from_slice(&answer.bytes[..answer.len]);
        Some(answer.len)
    };
    with(find).ok().flatten()
}

/// From here on this process takes no checkpoint.
pub fn disable() {
    let _ = with(|process| process.memory.disable());
}

/// A call has changed, or is about to change, what is mapped or open.
pub fn note_change(change: impl Fn(&mut Memory)) {
    if !PROCESS.load(Acquire).is_null() {
        let _ = with(|process| change(&mut process.memory));
    }
}

/// In a forked child, whose thread was `before` in its parent. It does not speculate, but for its `birth`: its own speculation, and that
/// on which it depends.
pub fn in_child(before: u32, birth: Option<(Id, Id)>) {
    IN_USE.break_open();
    STATE.store(if birth.is_some() { SPECULATIVE } else { NOT_SPECULATIVE }, SeqCst);
    patch::keep_frames(birth.is_some());
    if !PROCESS.load(Acquire).is_null() {
        let _ = with(|process| process.in_child(before, birth));
    }
    SEEN_CHANGES.fetch_sub(1, SeqCst);
}

/// In a new program, whose process speculated before: see [`Process::begin_as`]. Nothing is intercepted yet.
pub fn begin_after_exec(births: (Id, Id), mask: u64) -> sys::Result<()> {
    program_faults::take()?;
    with(|process| process.begin_after_exec(births, mask))?;
    patch::keep_frames(true);
    NONE_OPEN.store(0, SeqCst);
    STATE.store(SPECULATIVE, SeqCst);
    // (Something may have come of it meanwhile.)
    SEEN_CHANGES.store(table_host::table().map_or(0, Table::changes).wrapping_sub(1), SeqCst);
    Ok(())
}

/// Whether the process ends, should anything be taken back: it has nothing open but its birth.
pub fn ends_if_wrong() -> bool {
    with(|process| process.only_birth().is_some()) == Ok(true)
}

/// The youngest that is open.
pub fn last_open() -> Option<Id> {
    with(|process| process.open().last().map(|(_, open)| open.id)).ok().flatten()
}
