//! The SIGSYS that the plane queues for a thread. Its value says what the thread is to do.

use linux_raw_sys::general as k;

use crate::kernel_signals::SI_QUEUE;
use crate::sys::{self, nr};

/// Value of a queued SIGSYS (sigqueue(3)) that makes the plane call
/// [`ProcessEvents::poked`](crate::policy::ProcessEvents::poked).
pub const POKE: u64 = 0x7261_6864_706f_6b65;

/// Value of the signal that stops a thread ([`crate::thread_stop`]).
pub(crate) const STOP: u64 = 0x7261_6864_7374_6f70;

/// Value of a queued SIGSYS by which another process asks for
/// [`ProcessEvents::asked_to_end`](crate::policy::ProcessEvents::asked_to_end).
pub const END: u64 = 0x7261_6864_6c65_6176;

/// Value of the signal that makes a thread turn its dispatch off.
pub(crate) const CALL_OFF: u64 = 0x7261_6864_6973_6172;

/// Makes a thread of this or another process call
/// [`ProcessEvents::poked`](crate::policy::ProcessEvents::poked). Does nothing if the thread has
/// ended or belongs to another user.
pub fn poke(process: u32, thread: u32) {
    send(process, thread, POKE);
}

/// Has another thread of this process stop ([`crate::thread_stop`]).
pub(crate) fn stop(tid: u32) {
    send(sys::getpid(), tid, STOP);
}

/// Has another thread of this process take its dispatch off at once, wherever it is.
pub(crate) fn call_off(tid: u32) {
    send(sys::getpid(), tid, CALL_OFF);
}

/// Sends a thread of that process our signal, which is to carry `value`.
fn send(process: u32, tid: u32, value: u64) {
    let mut info = [0u64; 16];
    info[0] = k::SIGSYS.into();
    info[1] = SI_QUEUE as u32 as u64;
    info[3] = value;
    let args = [process.into(), tid.into(), k::SIGSYS.into(), info.as_ptr() as u64, 0, 0];
    // SAFETY: reads a siginfo_t of 128 bytes; signals at most one thread.
    let _ = unsafe { sys::raw(nr::RT_TGSIGQUEUEINFO, args) };
}
