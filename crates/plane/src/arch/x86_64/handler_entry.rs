//! Entry of the program's handlers: the kernel starts ours, which first of all makes signals wait.
//!
//! Before that another signal may come, whose handler begins on top of this. The plane must know
//! that it has interrupted the first instructions of a handler, and not the agent's work for a
//! call.

use core::arch::global_asm;

use linux_raw_sys::general as k;

use crate::sys::nr;

global_asm!(
    ".pushsection .text.runahead, \"ax\", @progbits",
    // rdi, rsi and rdx are the kernel's: the signal, its siginfo and its context. A handler may use
    // all registers: it ends by a return to that context.
    ".globl runahead_enter_handler",
    "runahead_enter_handler:",
    "mov r12, rdi",
    "mov r13, rsi",
    "mov r14, rdx",
    "sub rsp, 24",
    "mov qword ptr [rsp], -1",
    "mov edi, {set}",
    "mov rsi, rsp",
    "lea rdx, [rsp + 8]",
    "mov r10d, 8",
    "mov eax, {set_mask}",
    "syscall",
    ".globl runahead_handler_entered",
    "runahead_handler_entered:",
    "mov rdi, r12",
    "mov rsi, r13",
    "mov rdx, r14",
    "mov rcx, qword ptr [rsp + 8]",
    "call {begin}",
    "ud2",
    ".popsection",
    set = const k::SIG_SETMASK,
    set_mask = const nr::RT_SIGPROCMASK,
    begin = sym crate::signal_handlers::runahead_begin_handler,
);

// SAFETY: defined above; only their addresses are taken.
unsafe extern "C" {
    fn runahead_enter_handler();
    fn runahead_handler_entered();
}

/// Address that the kernel gets in place of a handler. It goes on to
/// [`crate::signal_handlers::runahead_begin_handler`].
pub fn handler() -> u64 {
    runahead_enter_handler as *const () as u64
}

/// True if that code is about to make signals wait at `address`.
pub fn is_entering_handler(address: u64) -> bool {
    (handler()..runahead_handler_entered as *const () as u64).contains(&address)
}
