//! A call that the program makes itself and whose result is reported: from here, with its own
//! registers, and with its stack pointer below its red zone. Behind the call comes another, which
//! traps.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Context, SYSCALL};
use crate::sys::nr;

/// Address of a call instruction that dispatch does not let through.
// SAFETY: nothing else defines a name that begins with RUNAHEAD_.
#[unsafe(no_mangle)]
static RUNAHEAD_REPORTED_CALL_TRAP: AtomicU64 = AtomicU64::new(0);

global_asm!(
    ".pushsection .text.runahead, \"ax\", @progbits",
    ".globl runahead_reported_call",
    "runahead_reported_call:",
    "syscall",
    ".globl runahead_reported_call_made",
    "runahead_reported_call_made:",
    "jmp [rip + RUNAHEAD_REPORTED_CALL_TRAP]",
    ".popsection",
);

// SAFETY: defined above; only the addresses are taken.
unsafe extern "C" {
    fn runahead_reported_call();
    fn runahead_reported_call_made();
}

/// Code for the page at which the call traps.
pub const TRAP: [u8; 4] = [SYSCALL[0], SYSCALL[1], 0x0f, 0x0b];

/// From now on [`TRAP`] is at `address`, outside of what dispatch lets through.
pub fn set_trap(address: u64) {
    RUNAHEAD_REPORTED_CALL_TRAP.store(address, Relaxed);
}

/// Address of [`TRAP`]; 0: nowhere yet.
pub fn trap() -> u64 {
    RUNAHEAD_REPORTED_CALL_TRAP.load(Relaxed)
}

/// Stage of a reported call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallStage {
    /// The call has not been made, or is to be made again.
    Before,
    /// The call has been made.
    Made,
}

impl Context {
    /// The program goes on to make its call from here, with these arguments and the stack pointer
    /// `stack`.
    pub fn make_reported_call(&mut self, stack: u64, arguments: [u64; 6]) {
        self.rip = runahead_reported_call as *const () as u64;
        self.rsp = stack;
        self.set_arguments(arguments);
    }

    /// The program goes on to wait from here until the futex at `word` is not 0 (futex(2)), with
    /// the stack pointer `stack`.
    pub fn make_wait(&mut self, stack: u64, word: u64) {
        use linux_raw_sys::general::FUTEX_WAIT;
        self.make_reported_call(stack, [word, FUTEX_WAIT.into(), 0, 0, 0, 0]);
        self.rax = nr::FUTEX;
    }

    /// Stage of the reported call that was interrupted; None: no such call was.
    pub fn reported_call_stage(&self) -> Option<CallStage> {
        let [before, made] =
            [runahead_reported_call, runahead_reported_call_made].map(|at| at as *const () as u64);
        match self.rip {
            at if at == before => Some(CallStage::Before),
            at if at == made || at == trap() && at != 0 => Some(CallStage::Made),
            _ => None,
        }
    }

    /// The program is to make the call in front of `back`, of that number, with these arguments and
    /// the stack pointer `stack`.
    pub fn make_again(&mut self, number: u64, arguments: [u64; 6], back: u64, stack: u64) {
        self.rip = back - SYSCALL.len() as u64;
        (self.rsp, self.rax) = (stack, number);
        self.set_arguments(arguments);
    }

    fn set_arguments(&mut self, arguments: [u64; 6]) {
        let [r8, r9, r10, ..] = &mut self.r8_to_r15;
        [self.rdi, self.rsi, self.rdx, *r10, *r8, *r9] = arguments;
    }

    /// The program goes on behind its call, at `back`, with the stack pointer `stack`, as the
    /// kernel has it go on.
    pub fn go_on_behind(&mut self, back: u64, stack: u64, result: i64) {
        (self.rip, self.rcx, self.rsp) = (back, back, stack);
        self.set_result(result);
    }

    /// The program, which stands in front of a call, goes on behind it, as if that had had this
    /// result.
    pub fn go_on_answered(&mut self, result: i64) {
        self.go_on_behind(self.rip + SYSCALL.len() as u64, self.rsp, result);
    }

    /// Value of rax.
    pub fn result(&self) -> i64 {
        self.rax as i64
    }
}
