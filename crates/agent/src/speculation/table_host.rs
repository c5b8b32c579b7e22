//! Host of the session's speculation table: the calling process, and its mapping of the shared
//! memory.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};

use runahead_abi::control_protocol::SPECULATES;
use runahead_speculation::{self as speculation, Host, Owner, Table};

use crate::plane::{sent_signals, thread};
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
            sent_signals::poke(whom.process, whom.thread);
        }
    }
}

/// The session's shared memory, once this process has mapped it.
static SHARED: AtomicPtr<speculation::Session> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the session's shared memory, if this process has mapped it.
pub fn shared() -> Option<&'static speculation::Session> {
    // SAFETY: null, or a mapping of its full size that stays; it holds atomics, and bytes under
    // locks.
    unsafe { SHARED.load(Acquire).as_ref() }
}

/// Returns the session's table, if this process has mapped it.
pub fn table() -> Option<&'static Table> {
    shared().map(|shared| &shared.table)
}

/// Returns the session's shared memory; maps it on first use. Signals must be blocked.
pub fn map_shared(session: &Session) -> sys::Result<&'static speculation::Session> {
    if let Some(shared) = shared() {
        return Ok(shared);
    }
    let file = control_client::ask(session, SPECULATES).ok_or(Errno(sys::ENOTCONN))?;
    // Mapped far away: this is early, and the near address range must stay free until the process
    // joins, when the program may already have read its free addresses.
    let at = address_space::map_shared_far(file, size_of::<speculation::Session>() as u64);
    let _ = sys::close(file);
    let at = at? as *mut speculation::Session;
    // Two threads may come here at once. Either mapping serves.
    SHARED.store(at, Release);
    shared().ok_or(Errno(sys::ENOMEM))
}

/// True until the process has asked for the shared memory.
static NOT_ASKED: AtomicBool = AtomicBool::new(true);

/// True if [`ask_once`] would ask.
pub fn has_not_asked() -> bool {
    NOT_ASKED.load(Relaxed)
}

/// Maps the shared memory at one of the first calls of a program. A monitor of /proc would
/// otherwise attribute the wait for the supervisor to a later call. Returns true if it asked now.
/// Signals must be blocked.
pub fn ask_once() -> bool {
    let asks = NOT_ASKED.load(Relaxed) && NOT_ASKED.swap(false, Relaxed);
    if asks && let Some(session) = session::get() {
        let _ = map_shared(session);
    }
    asks
}

/// Returns the session's table; maps it on first use. Signals must be blocked.
pub fn map_table(session: &Session) -> sys::Result<&'static Table> {
    map_shared(session).map(|shared| &shared.table)
}

/// Id of this process; 0 if not cached.
static PROCESS_ID: AtomicU32 = AtomicU32::new(0);

/// Returns this thread, as other processes can poke it.
pub fn this_thread() -> Owner {
    match thread::current() {
        // A vfork child shares our memory.
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

/// Clears the cached id in a forked child.
pub fn in_child() {
    PROCESS_ID.store(0, Relaxed);
}

/// True if the process exists. It exists until its parent has waited for it.
pub fn is_alive(owner: Owner) -> bool {
    // SAFETY: sends no signal.
    let result = unsafe { sys::raw(nr::KILL, [owner.process.into(), 0, 0, 0, 0, 0]) };
    result != sys::fail(sys::ESRCH)
}

/// True if a process has ended but its parent has not waited for it, which may itself wait here.
///
/// Such a process has no memory. Neither has one whose first thread alone has ended; its
/// predictions then fail although they could have come true. Where processes may not read each
/// other's memory, the answer is EPERM, and no process counts as ended.
pub fn has_ended(process: u32) -> bool {
    let mut byte = 0u8;
    let (to, from) = ([&raw mut byte as u64, 1], [0u64, 1]);
    let (to, from) = (to.as_ptr() as u64, from.as_ptr() as u64);
    // SAFETY: writes one byte of ours.
    let result = unsafe { sys::raw(nr::PROCESS_VM_READV, [process.into(), to, 1, from, 1, 0]) };
    result == sys::fail(sys::ESRCH)
}
