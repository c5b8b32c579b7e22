//! Start of interception in a process, and again in a shadow.

use core::sync::atomic::Ordering::*;

use crate::address_range::AddressRange;
use crate::interception_state::{PROCESS, TEXT};
use crate::thread::{self, Thread};
use crate::{address_space, arch, clone, dispatch_signal, signal_masks, sys};

/// Starts interception: every call of this thread, the program's first, from outside of the agent's
/// `text` becomes a signal. `pkru_at` is as in [`arch::pkeys::begin`]. `believed` is the signal
/// mask that the program believes to have, while all signals stay blocked until its parent or the
/// kernel sets the mask; None: the thread has the mask that it believes to have.
pub fn start(
    text: AddressRange,
    has_fsgsbase: bool,
    pkru_at: u32,
    believed: Option<u64>,
) -> sys::Result<()> {
    TEXT[0].store(text.start, Relaxed);
    TEXT[1].store(text.end, Relaxed);
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
    let programs = dispatch_signal::install_action()?;
    signal_masks::keep_sigsys(thread, programs, believed);
    thread.arm()
}

/// Starts interception again in a fork, for the policy of a shadow: the handler is installed
/// already.
pub fn start_in_shadow() -> sys::Result<&'static Thread> {
    let thread = clone::survivor().ok_or(sys::Errno(sys::ESRCH))?;
    thread::forget_others(thread);
    if !thread.move_in() {
        return Err(sys::Errno(sys::ENOMEM));
    }
    thread.arm()?;
    Ok(thread)
}

/// Keeps the PID of this process in memory. It saves a getpid(2) for each read of the program's
/// strings, which counts where most calls have some.
pub fn remember_process() -> sys::Result<()> {
    const BYTES: u64 = 4096;
    let page = address_space::map_private(BYTES)?;
    // SAFETY: a page that is ours, and new.
    unsafe { sys::advise(page, BYTES, linux_raw_sys::general::MADV_WIPEONFORK) }?;
    // SAFETY: a page of zeroes that is never unmapped.
    unsafe { sys::remember_process(page) };
    Ok(())
}

/// Makes the kernel clear the table of threads in every forked child.
pub(crate) fn wipe_on_fork() -> sys::Result<()> {
    let page = arch::RUNAHEAD_THREADS.as_ptr() as u64;
    let len = arch::THREADS_BYTES as u64;
    // SAFETY: pages of private memory that hold the table and nothing else.
    unsafe { sys::advise(page, len, linux_raw_sys::general::MADV_WIPEONFORK) }.map(|_| ())
}
