//! System call of the program, and ways to make it.

use crate::arch;
use crate::sys;
use crate::thread::Thread;

/// System call as the program makes it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Call {
    /// Number of the call.
    pub nr: u64,
    /// Arguments of the call, in the kernel's order.
    pub args: [u64; 6],
    /// The program's stack pointer.
    pub stack: u64,
    /// The thread that makes the call.
    pub thread: &'static Thread,
}

impl Call {
    /// Makes the call as it stands, here and now. Returns [`sys::RESTART`] if a signal is held,
    /// which must be the answer then: the program makes the call once the signal has been handled.
    pub fn perform(&self) -> i64 {
        // SAFETY: the program asked for exactly this call.
        match unsafe { self.attempt(self.nr, &self.args) } {
            sys::RESTART => sys::RESTART,
            ret => self.performed(ret),
        }
    }

    /// Makes another call in place of this one, which may wait as this may. Returns
    /// [`sys::RESTART`] as [`Call::perform`] does.
    ///
    /// # Safety
    /// As unsafe as the call it makes.
    pub unsafe fn attempt(&self, nr: u64, args: &[u64; 6]) -> i64 {
        // SAFETY: passed on to the caller.
        unsafe { arch::attempt(&self.thread.has_held_signals, nr, args) }
    }

    /// Notes that the call has been made and had this result, so that a failure of ours afterwards
    /// does not make it twice.
    pub fn performed(&self, ret: i64) -> i64 {
        self.thread.result.set(Some(ret));
        ret
    }

    /// Argument that is a descriptor.
    pub fn fd(&self, index: usize) -> sys::Fd {
        self.args[index] as u32 as sys::Fd
    }
}
