//! Start of interception in a process, and again in a shadow.

use core::sync::atomic::Ordering::*;

use crate::interception_state::{PROCESS, TEXT};
use crate::thread::{self, Thread};
use crate::{address_space, arch, clone, sigsys, sys};

/// Starts interception: every call of this thread, the program's first, from outside the agent's
/// `text` becomes a signal. `pkru_at`: see [`arch::pkeys::begin`]. `believed`: the program believes that it has this mask, and all
/// signals stay blocked until somebody else gives it the mask to begin with; None: it has the mask that it believes to have.
pub fn start(
    text: (u64, u64),
    has_fsgsbase: bool,
    pkru_at: u32,
    believed: Option<u64>,
) -> sys::Result<()> {
    TEXT[0].store(text.0, Relaxed);
    TEXT[1].store(text.1, Relaxed);
    arch::RUNAHEAD_FSGSBASE.store(has_fsgsbase.into(), Relaxed);
    PROCESS.store(sys::getpid(), Relaxed);
    arch::pkeys::begin(pkru_at);
    wipe_on_fork()?;
    let thread = Thread::map_first()?;
    if !thread.move_in() {
        return Err(sys::Errno(sys::ENOMEM));
    }
    clone::note_that_memory_is_ours();
    thread.take_signals();
    sigsys::install(thread, believed)?;
    thread.arm()
}

/// Starts it again in a fork, for the policy of a shadow: the handler is still there.
pub fn start_in_shadow() -> sys::Result<&'static Thread> {
    let thread = clone::survivor().ok_or(sys::Errno(sys::ESRCH))?;
    thread::forget_others(thread);
    if !thread.move_in() {
        return Err(sys::Errno(sys::ENOMEM));
    }
    thread.arm()?;
    Ok(thread)
}

/// Has the number of this process remembered: where most calls have texts of the program's read, one call fewer for each counts.
pub fn remember_process() -> sys::Result<()> {
    const BYTES: u64 = 4096;
    let page = address_space::map_private(BYTES)?;
    // SAFETY: a page that is ours, and new.
    unsafe { sys::advise(page, BYTES, linux_raw_sys::general::MADV_WIPEONFORK) }?;
    // SAFETY: the same, and nobody gives it back.
    unsafe { sys::remember_process(page) };
    Ok(())
}

/// Has the kernel clear the table of threads in every forked child.
pub(crate) fn wipe_on_fork() -> sys::Result<()> {
    let page = arch::RUNAHEAD_THREADS.as_ptr() as u64;
    let len = arch::THREADS_BYTES as u64;
    // SAFETY: pages of private memory that hold the table and nothing else.
    unsafe { sys::advise(page, len, linux_raw_sys::general::MADV_WIPEONFORK) }.map(|_| ())
}
