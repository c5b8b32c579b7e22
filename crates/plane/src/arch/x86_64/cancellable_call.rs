//! A call that we make for the program, unless a signal is held for it by then.

use core::arch::global_asm;
use core::cell::Cell;

use super::Context;
use crate::sys::RESTART;

global_asm!(
    ".pushsection .text.runahead, \"ax\", @progbits",
    ".globl runahead_attempt",
    "runahead_attempt:",
    "mov rax, rsi",
    "mov r11, rdi",
    "mov rdi, [rdx]",
    "mov rsi, [rdx + 8]",
    "mov r10, [rdx + 24]",
    "mov r8, [rdx + 32]",
    "mov r9, [rdx + 40]",
    "mov rdx, [rdx + 16]",
    ".globl runahead_attempt_look",
    "runahead_attempt_look:",
    "cmp qword ptr [r11], 0",
    "jne runahead_attempt_given_up",
    ".globl runahead_attempt_call",
    "runahead_attempt_call:",
    "syscall",
    "ret",
    ".globl runahead_attempt_given_up",
    "runahead_attempt_given_up:",
    "mov rax, {restart}",
    "ret",
    ".popsection",
    restart = const RESTART,
);

// SAFETY: defined above, with C's convention; of the labels only the addresses are taken.
unsafe extern "C" {
    fn runahead_attempt(has_held_signals: *const u64, nr: u64, args: *const [u64; 6]) -> i64;
    fn runahead_attempt_look();
    fn runahead_attempt_call();
    fn runahead_attempt_given_up();
}

/// Makes a call as [`super::syscall`] does, unless `has_held_signals` is not 0 or becomes so before
/// the kernel has begun with it: then [`RESTART`].
///
/// # Safety
/// As unsafe as the call it makes.
pub unsafe fn attempt(has_held_signals: &Cell<u64>, nr: u64, args: &[u64; 6]) -> i64 {
    // SAFETY: passed on to the caller.
    unsafe { runahead_attempt(has_held_signals.as_ptr(), nr, args) }
}

impl Context {
    /// Gives up an interrupted [`attempt`] whose call has not begun, or is to begin again.
    pub fn give_up_attempt(&mut self) {
        let [look, call, given_up] =
            [runahead_attempt_look, runahead_attempt_call, runahead_attempt_given_up]
                .map(|label| label as *const () as u64);
        if (look..=call).contains(&self.rip) {
            self.rip = given_up;
        }
    }
}
