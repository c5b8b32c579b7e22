//! Thread pointers (the bases of fs and gs), which programs may set by an instruction: the kernel
//! does not put them into a signal's frame, so a thread that may be rolled back notes them there.

use core::arch::asm;
use core::sync::atomic::Ordering::Relaxed;

use super::{Context, RUNAHEAD_FSGSBASE};

impl Context {
    /// Places in [`Context::reserved`], which the kernel leaves alone.
    const TAKEN_BACK: usize = 4;
    const FS: usize = 5;
    const GS: usize = 6;
    const TAKEN: u64 = 0x7261_6864_6261_7365;

    /// Notes those of the calling thread, whose frame this is.
    pub fn note_bases(&mut self) {
        self.reserved[Self::TAKEN_BACK] = 0;
        if RUNAHEAD_FSGSBASE.load(Relaxed) == 0 {
            return;
        }
        let (fs, gs): (u64, u64);
        // SAFETY: reads two registers; the supervisor found the instructions allowed (AT_HWCAP2).
        unsafe {
            asm!("rdfsbase {}", "rdgsbase {}", out(reg) fs, out(reg) gs, options(nomem, nostack, preserves_flags));
        }
        (self.reserved[Self::FS], self.reserved[Self::GS]) = (fs, gs);
    }

    /// Marks the frame as one that a rollback has restored, with its noted bases.
    pub(super) fn take_bases_back(&mut self) {
        self.reserved[Self::TAKEN_BACK] = Self::TAKEN;
    }

    /// Sets the calling thread's bases to those of its frame, if a rollback has restored the frame.
    pub fn set_bases(&mut self) {
        let taken_back = core::mem::replace(&mut self.reserved[Self::TAKEN_BACK], 0);
        if taken_back != Self::TAKEN || RUNAHEAD_FSGSBASE.load(Relaxed) == 0 {
            return;
        }
        let [fs, gs] = [Self::FS, Self::GS].map(|at| self.reserved[at]);
        // SAFETY: both are what the program had in them; nothing of ours is found by them.
        unsafe {
            asm!("wrfsbase {}", "wrgsbase {}", in(reg) fs, in(reg) gs, options(nomem, nostack, preserves_flags));
        }
    }
}

/// True if patched sites can tell threads apart: the processor and the kernel have `rdfsbase`.
pub(crate) fn tells_threads_apart() -> bool {
    RUNAHEAD_FSGSBASE.load(Relaxed) != 0
}
