//! Copies of frames, from which threads can go on later.

use super::Context;
use crate::sys;

/// Most bytes of vector state: AMX's tiles take 8 KiB, all the rest less than 3 (Intel's manual,
/// volume 1, 13.4).
const STATE_MAX: usize = 12 << 10;

/// Registers of a thread, all of them, and its signal mask.
pub struct SavedFrame {
    context: Context,
    state_bytes: u64,
    state: [u8; STATE_MAX],
}

impl SavedFrame {
    /// The mask in it.
    pub fn mask(&self) -> u64 {
        self.context.mask
    }
}

impl Context {
    /// Copies this frame and its vector state. E2BIG: there is no room for that.
    ///
    /// # Safety
    /// A frame of the kernel's. No other code uses `saved`, which may have any contents.
    pub unsafe fn save(&self, saved: *mut SavedFrame) -> sys::Result<()> {
        // SAFETY: passed on to the caller.
        let bytes = unsafe { self.state_bytes() };
        if bytes > STATE_MAX as u64 {
            return Err(sys::Errno(sys::E2BIG));
        }
        // SAFETY: the frame says that there are so many bytes; room for them is checked.
        unsafe {
            (&raw mut (*saved).context).write(self.copy());
            (*saved).state_bytes = bytes;
            let to = (&raw mut (*saved).state).cast();
            core::ptr::copy_nonoverlapping(self.fpstate as *const u8, to, bytes as usize);
        }
        Ok(())
    }

    /// Becomes what was saved of this thread. E2BIG: its vector state has another size by now.
    ///
    /// # Safety
    /// A frame of the kernel's.
    pub unsafe fn restore(&mut self, saved: &SavedFrame) -> sys::Result<()> {
        // SAFETY: passed on to the caller.
        if unsafe { self.state_bytes() } != saved.state_bytes {
            return Err(sys::Errno(sys::E2BIG));
        }
        let own = self.fpstate;
        *self = saved.context.copy();
        self.fpstate = own;
        self.take_bases_back();
        // SAFETY: it has that many bytes.
        unsafe {
            let from = saved.state.as_ptr();
            core::ptr::copy_nonoverlapping(from, own as *mut u8, saved.state_bytes as usize);
        }
        Ok(())
    }
}
