//! Speculation state of this process: true speculation, transitions, and the thread that performs
//! them. The saved state lies in [`Process`].
//!
//! The open speculations are a stack. A speculation that is committed at the bottom is finished,
//! and the output held for it alone is released. One that fails takes those above it with it, since
//! they began in a state that never existed. One that is committed in the middle waits for those
//! below it.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use linux_raw_sys::general as k;
use runahead_abi::agent_config::plant;
use runahead_speculation::{ANSWER_MAX, Id, Table};

use super::memory_checkpoints::Memory;
use super::process_checkpoints::{OPEN_MAX, Process};
use super::thread_states::FrameRange;
use super::{FAILED, table_host};
use crate::address_space;
use crate::arch::Context;
use crate::plane::{handled_signals, patch, policy, program_faults, thread_stop};
use crate::session::Session;
use crate::spin_lock::Lock;
use crate::sys::{self, nr};

/// Checkpoints of this process; allocated at the first one.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
static IN_USE: Lock<()> = Lock::new(());
/// State of the process: one of [`NOT_SPECULATIVE`] and the constants below.
static STATE: AtomicU32 = AtomicU32::new(NOT_SPECULATIVE);
/// The process does not speculate.
const NOT_SPECULATIVE: u32 = 0;
/// A thread takes the first checkpoint.
const TAKING: u32 = 1;
const SPECULATIVE: u32 = 2;
/// A thread takes another checkpoint or applies an outcome. Other threads wait.
const CHANGING: u32 = 3;
/// Futex: 0 while any speculation is open. Threads that wait for all outcomes wait here.
static NONE_OPEN: AtomicU32 = AtomicU32::new(1);
/// Futex: 0 while a thread is in [`CHANGING`].
static CHANGE_DONE: AtomicU32 = AtomicU32::new(1);
/// Value of [`Table::changes`] when outcomes were last applied.
static SEEN_CHANGES: AtomicU32 = AtomicU32::new(0);
/// Number of rollbacks of this process.
static ROLLBACKS: AtomicU32 = AtomicU32::new(0);

/// Signals that may be blocked while the process speculates.
pub const BLOCKED_SIGNALS: u64 = !UNBLOCKED_SIGNALS;

/// Returns the mask that a thread has while its process speculates, if `own` is its own.
///
/// Signals with a handler wait for the outcome. Of others the kernel takes care at once: it ends or
/// stops the process, or drops them.
pub fn mask_meanwhile(session: &Session, own: u64) -> u64 {
    // A planted prediction stands where the process would not wait: its end would come too early.
    let is_planted = matches!(session.plant(), plant::SPECULATED | plant::SPECULATED_WRONGLY);
    let handled = if is_planted { !0 } else { handled_signals() };
    (own | handled) & BLOCKED_SIGNALS
}

/// Signals that a thread must take at once when it raises them. All others wait for the outcome.
const UNBLOCKED_SIGNALS: u64 = {
    let mut signals = 1 << (k::SIGSYS - 1) | 1 << (k::SIGTRAP - 1);
    let mut n = 0;
    while n < program_faults::TAKEN.len() {
        signals |= 1 << (program_faults::TAKEN[n] - 1);
        n += 1;
    }
    signals
};

/// Returns the signals that are pending for the thread or the process.
pub fn pending_signals() -> u64 {
    let mut waiting = 0u64;
    // SAFETY: writes a mask of eight bytes.
    unsafe { sys::raw(nr::RT_SIGPENDING, [&raw mut waiting as u64, 8, 0, 0, 0, 0]) };
    waiting
}

/// True if the process continues on a prediction.
pub fn is_speculative() -> bool {
    STATE.load(SeqCst) >= SPECULATIVE
}

/// Returns the futex that is 0 while any speculation is open.
pub fn none_open() -> &'static AtomicU32 {
    &NONE_OPEN
}

/// Returns the futex that is 0 while another thread applies an outcome.
pub fn change_done() -> &'static AtomicU32 {
    &CHANGE_DONE
}

/// Returns the number of rollbacks of this process.
pub fn rollbacks() -> u32 {
    ROLLBACKS.load(SeqCst)
}

/// Runs `work` on the checkpoints of the process, under their lock. Signals must be blocked.
pub fn with<T>(mut work: impl FnMut(&mut Process) -> T) -> sys::Result<T> {
    let mut at = PROCESS.load(Acquire);
    if at.is_null() {
        at = address_space::map_private(size_of::<Process>() as u64)? as *mut Process;
        PROCESS.store(at, Release);
    }
    // SAFETY: zeroes are valid; the mapping stays; the lock makes this access exclusive.
    Ok(IN_USE.with(|()| work(unsafe { &mut *at })))
}

/// Moves the process from state `from` to `to`. EALREADY: it is not in `from`.
fn change(from: u32, to: u32) -> sys::Result<()> {
    STATE
        .compare_exchange(from, to, SeqCst, Relaxed)
        .map(drop)
        .map_err(|_| sys::Errno(sys::EALREADY))
}

/// Takes a checkpoint with the calling thread as in `frame`. From then on the process speculates
/// that `id`, or the foreign speculation that it `depends_on`, will be committed. An error leaves
/// everything unchanged.
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
    push: impl Fn(&mut Process, FrameRange),
) -> sys::Result<()> {
    let stopped = thread_stop::stop_others()?;
    // A signal's handler would run later than what its sender does next is seen.
    let due = pending_signals() & !frame.mask | stopped.due_signals();
    if due & mask_meanwhile(session, 0) != 0 {
        return Err(sys::Errno(sys::EAGAIN));
    }
    patch::keep_frames(true);
    let taken = with(|process| {
        process.begin();
        let frames = process.save(session, frame, &stopped, false)?;
        let masked = program_faults::take().and_then(|()| {
            let masked = process.threads.mask(frame, &stopped, |own| mask_meanwhile(session, own));
            masked.inspect_err(|_| program_faults::give_back())
        });
        masked.or_else(|errno| process.memory.end().and(Err(errno)))?;
        push(process, frames);
        Ok(())
    });
    taken.and_then(|taken| taken).inspect_err(|_| patch::keep_frames(false))?;
    NONE_OPEN.store(0, SeqCst);
    // No other thread runs before this function returns.
    STATE.store(SPECULATIVE, SeqCst);
    Ok(())
}

fn take_another(
    session: &Session,
    frame: &mut Context,
    push: impl Fn(&mut Process, FrameRange),
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

/// Change of the process since a thread last checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transition {
    /// It speculates, and the thread is where it was.
    Unchanged,
    /// It was rolled back. The thread continues as its frame says.
    RolledBack,
    /// It does not speculate any more.
    Ended,
    /// Another thread applies an outcome or takes a checkpoint. Wait at [`change_done`] and ask
    /// again.
    Busy,
}

/// True if all outcomes known by now have been applied.
pub fn outcomes_are_applied(table: &Table) -> bool {
    SEEN_CHANGES.load(SeqCst) == table.changes()
}

/// Applies the outcomes that are known by now. `frame` belongs to the calling thread, which is not
/// stopped.
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

/// Commits and rolls back as the table says. Returns true if no speculation is open any more.
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
        // The process cannot be restored, and must not continue in its present state.
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

/// Requests a poke for the owner of each open speculation when it is settled.
pub fn request_pokes(table: &Table) {
    let _ = with(|process| {
        let wanted = process.pokes_requested;
        let news = process.open().filter(|(position, _)| *position >= wanted);
        news.for_each(|(_, open)| table.request_poke(open.id));
        process.pokes_requested = process.end;
    });
}

/// Calls `each` with the id, tag and foreign dependency of each open speculation, the oldest first.
pub fn each_open(mut each: impl FnMut(Id, u32, Option<Id>)) {
    let _ = with(|process| {
        process.open().for_each(|(_, open)| each(open.id, open.tag, open.depends_on));
    });
}

/// Copies the answer of failed speculation `id` into `to` and returns its length in bytes. None if
/// no answer is stored.
pub fn answer(id: u64, to: &mut [u8; ANSWER_MAX]) -> Option<usize> {
    let find = |process: &mut Process| {
        // Unused entries have the id 0.
        let answer = process.answers.iter().find(|answer| id != 0 && answer.id == id)?;
        to[..answer.len].copy_from_slice(&answer.bytes[..answer.len]);
        Some(answer.len)
    };
    with(find).ok().flatten()
}

/// Disables checkpoints of this process for good.
pub fn disable() {
    let _ = with(|process| process.memory.disable());
}

/// Applies `change` to the memory state: a call changed, or is about to change, a mapping or
/// descriptor.
pub fn note_change(change: impl Fn(&mut Memory)) {
    if !PROCESS.load(Acquire).is_null() {
        let _ = with(|process| change(&mut process.memory));
    }
}

/// Resets the state in a forked child, whose thread was `before` in its parent. The child does not
/// speculate, except on its `birth`: its own speculation, and the one that it depends on.
pub fn in_child(before: u32, birth: Option<(Id, Id)>) {
    IN_USE.break_open();
    STATE.store(if birth.is_some() { SPECULATIVE } else { NOT_SPECULATIVE }, SeqCst);
    patch::keep_frames(birth.is_some());
    if !PROCESS.load(Acquire).is_null() {
        let _ = with(|process| process.in_child(before, birth));
    }
    SEEN_CHANGES.fetch_sub(1, SeqCst);
}

/// Resumes speculation in a new program of a process that speculated before; see
/// [`Process::begin_after_exec`]. Nothing is intercepted yet.
pub fn begin_after_exec(births: (Id, Id), mask: u64) -> sys::Result<()> {
    program_faults::take()?;
    with(|process| process.begin_after_exec(births, mask))?;
    patch::keep_frames(true);
    NONE_OPEN.store(0, SeqCst);
    STATE.store(SPECULATIVE, SeqCst);
    // The speculation may have been resolved meanwhile.
    SEEN_CHANGES.store(table_host::table().map_or(0, Table::changes).wrapping_sub(1), SeqCst);
    Ok(())
}

/// True if the process would end instead of being rolled back: only its birth is open.
pub fn ends_if_wrong() -> bool {
    with(|process| process.only_birth().is_some()) == Ok(true)
}

/// Returns the youngest open speculation.
pub fn last_open() -> Option<Id> {
    with(|process| process.open().last().map(|(_, open)| open.id)).ok().flatten()
}
