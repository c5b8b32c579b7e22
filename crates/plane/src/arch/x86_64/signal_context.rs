//! The frame of a signal, as a handler reads and changes it.

use super::{SYSCALL, runahead_exit};
use crate::intercepted_call::Call;
use crate::sys;
use crate::thread::Thread;

/// The frame that the kernel hands to a signal handler (`struct ucontext`, asm/ucontext.h).
#[repr(C)]
pub struct Context {
    pub(super) flags: u64,
    pub(super) link: u64,
    /// Alternate stack that returning from the signal sets again.
    pub stack: [u64; 3],
    pub(super) r8_to_r15: [u64; 8],
    pub(super) rdi: u64,
    pub(super) rsi: u64,
    pub(super) rbp: u64,
    pub(super) rbx: u64,
    pub(super) rdx: u64,
    pub(super) rax: u64,
    pub(super) rcx: u64,
    pub(super) rsp: u64,
    pub(super) rip: u64,
    pub(super) eflags: u64,
    pub(super) segments: u64,
    pub(super) err_trapno_oldmask_cr2: [u64; 4],
    pub(super) fpstate: u64,
    pub(super) reserved: [u64; 8],
    /// Signal mask that returning from the signal sets again.
    pub mask: u64,
}

const _: () = assert!(core::mem::offset_of!(Context, mask) == 296);

impl Context {
    /// A flag that the kernel does not know (and ignores).
    const NOTED: u64 = 1 << 62;

    /// Notes in a handler's frame whether the program believed those signals blocked before.
    pub fn note_believed(&mut self, blocked: bool, signals: u64) {
        self.flags |= Self::NOTED;
        if blocked {
            self.mask |= signals;
        }
    }

    /// Removes the note. Returns true if there was one.
    pub fn forget_note(&mut self) -> bool {
        let noted = self.flags & Self::NOTED != 0;
        self.flags &= !Self::NOTED;
        noted
    }

    /// True if an instruction has tried to write; this is the frame of a fault.
    pub fn is_store(&self) -> bool {
        const WRITE: u64 = 1 << 1;
        self.err_trapno_oldmask_cr2[0] & WRITE != 0
    }

    /// The call that was dispatched; `rip` is behind its instruction.
    pub fn call(&self, thread: &'static Thread) -> Call {
        let [r8, r9, r10, ..] = self.r8_to_r15;
        let args = [self.rdi, self.rsi, self.rdx, r10, r8, r9];
        // Of the number the kernel looks at 32 bits.
        Call { nr: self.rax & 0xffff_ffff, args, stack: self.rsp, thread }
    }

    /// Mark in r11, where calls leave the flags: a bit that no processor sets.
    const ANSWERED: u64 = 1 << 63;
    /// Place of r11 in [`Context::r8_to_r15`].
    const R11: usize = 3;

    /// Sets the call's result.
    pub fn set_result(&mut self, value: i64) {
        self.rax = value as u64;
        self.r8_to_r15[Self::R11] |= Self::ANSWERED;
    }

    /// The call has been given a result.
    pub fn is_answered(&self) -> bool {
        self.r8_to_r15[Self::R11] & Self::ANSWERED != 0
    }

    /// Address of the call that the program has just come to, if it was neither made nor given a
    /// result: all is as the instruction itself leaves it.
    pub fn unanswered_call(&self) -> Option<u64> {
        let site = self.rip.wrapping_sub(SYSCALL.len() as u64);
        (self.rcx == self.rip
            && self.r8_to_r15[Self::R11] & Self::ANSWERED == 0
            && sys::copy_in(site) == Ok(SYSCALL))
        .then_some(site)
    }

    /// Address behind the call's instruction.
    pub fn after(&self) -> u64 {
        self.rip
    }

    /// Addresses of the siginfo_t and the context that a handler was passed, in front of its first
    /// instruction.
    pub fn passed(&self) -> (u64, u64) {
        (self.rsi, self.rdx)
    }

    /// Continue elsewhere.
    pub fn resume_at(&mut self, address: u64) {
        self.rip = address;
    }

    /// The thread that has left `place` ends.
    pub fn end_thread(&mut self, place: &Thread) {
        self.rip = runahead_exit as *const () as u64;
        self.r8_to_r15[Self::R11] = core::ptr::from_ref(place) as u64;
    }

    /// True if this lies on the program's own stack: the thread is in a handler that has
    /// interrupted the agent where it has no other.
    pub fn is_on_programs_stack(&self) -> bool {
        let [_, _, bytes] = self.stack;
        bytes == 0
    }

    /// A copy of this; its vector state is the same.
    pub fn copy(&self) -> Self {
        // SAFETY: plain data.
        unsafe { core::ptr::read(self) }
    }

    /// Continue on another stack.
    pub fn resume_on(&mut self, stack: u64) {
        self.rsp = stack;
    }
}
