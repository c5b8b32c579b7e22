//! The calling process, as the session's speculations see it, and what it shares of those with the others.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};

use runahead_abi::control_protocol::SPECULATES;
use runahead_speculation::{self as speculation, Host, Owner, Table};

use crate::plane::{policy, thread};
use crate::session::{self, Session};
use crate::sys::{self, Errno, nr};
use crate::{address_space, control_client};

/// The calling process.
pub struct ThisProcess;

pub static HOST: ThisProcess = ThisProcess;

impl Host for ThisProcess {
    fn current_thread(&self) -> Owner {
        this_thread()
    }

    fn is_alive(&self, owner: Owner) -> bool {
        is_alive(owner) && !has_ended(owner.process)
    }

    fn pause(&self) {
        // SAFETY: sched_yield(2) takes no arguments.
        let _ = unsafe { sys::raw(nr::SCHED_YIELD, [0; 6]) };
    }

    fn poke(&self, whom: Owner) {
        if whom != self.current_thread() {
            policy::poke(whom.process, whom.thread);
        }
    }
}

/// What the session shares, once this process has asked for it.
static SHARED: AtomicPtr<speculation::Session> = AtomicPtr::new(core::ptr::null_mut());

/// What the session shares, if this process has it.
pub fn shared() -> Option<&'static speculation::Session> {
    // SAFETY: null, or a mapping of all of it that stays; it is atomics, and bytes that are locked.
    unsafe { SHARED.load(Acquire).as_ref() }
}

/// The session's table, if this process has it.
pub fn table() -> Option<&'static Table> {
    shared().map(|shared| &shared.table)
}

/// What the session shares. Signals must be blocked.
pub fn map_shared(session: &Session) -> sys::Result<&'static speculation::Session> {
    if let Some(shared) = shared() {
        return Ok(shared);
    }
    let file = control_client::ask(session, SPECULATES).ok_or(Errno(sys::ENOTCONN))?;
    // (This is early; a process that joins needs the near stretch when the program may have looked at what is free.)
    let at = address_space::map_shared_far(file, size_of::<speculation::Session>() as u64);
    let _ = sys::close(file);
    let at = at? as *mut speculation::Session;
    // (Two threads may have come here. One mapping is as good as the other.)
    SHARED.store(at, Release);
    shared().ok_or(Errno(sys::ENOMEM))
}

/// The process has not asked for it yet.
static NOT_ASKED: AtomicBool = AtomicBool::new(true);

/// Whether [`ask_once`] would ask.
pub fn has_not_asked() -> bool {
    NOT_ASKED.load(Relaxed)
}

/// Asks for what the session shares at one of the first calls of a program: whoever watches a thread in /proc would take
/// the wait for the supervisor for that of a later call. Whether it has asked now. Signals must be blocked.
pub fn ask_once() -> bool {
    let asks = NOT_ASKED.load(Relaxed) && NOT_ASKED.swap(false, Relaxed);
    if asks && let Some(session) = session::get() {
        let _ = map_shared(session);
    }
    asks
}

/// The session's table. Signals must be blocked.
pub fn map_table(session: &Session) -> sys::Result<&'static Table> {
    map_shared(session).map(|shared| &shared.table)
}

/// This process's number; 0: nobody has asked for it.
static PROCESS_ID: AtomicU32 = AtomicU32::new(0);

/// This thread, as others can reach it.
pub fn this_thread() -> Owner {
    match thread::current() {
        // (A vfork child has our memory.)
        Some(thread) if !thread.is_lent() => {
            Owner { process: process_id(), thread: thread.number() }
        }
        _ => Owner { process: sys::getpid(), thread: sys::gettid() },
    }
}

fn process_id() -> u32 {
    match PROCESS_ID.load(Relaxed) {
        0 => {
            let number = sys::getpid();
            PROCESS_ID.store(number, Relaxed);
            number
        }
        number => number,
    }
}

/// In a forked child, which has another number.
pub fn in_child() {
    PROCESS_ID.store(0, Relaxed);
}

/// Whether there is such a process. (One that has ended is there until somebody has waited for it.)
pub fn is_alive(owner: Owner) -> bool {
    // SAFETY: sends nothing.
    let result = unsafe { sys::raw(nr::KILL, [owner.process.into(), 0, 0, 0, 0, 0]) };
    result != sys::fail(sys::ESRCH)
}

/// Whether a process that is still there has ended: it is until its parent has waited for it, and that may be one that waits here.
/// It has no memory any more. (Nor has one whose first thread alone has ended; then a prediction fails that could have come true.
/// Where processes must not look at each other's memory, and that is what is answered, nobody is known to have ended.)
pub fn has_ended(process: u32) -> bool {
    let mut byte = 0u8;
    let (to, from) = ([&raw mut byte as u64, 1], [0u64, 1]);
    let (to, from) = (to.as_ptr() as u64, from.as_ptr() as u64);
    // SAFETY: writes one byte, ours.
    let result = unsafe { sys::raw(nr::PROCESS_VM_READV, [process.into(), to, 1, from, 1, 0]) };
    result == sys::fail(sys::ESRCH)
}
