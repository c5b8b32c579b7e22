//! x86-64: the system call instruction, the two ways into the agent, and the code we write.
//!
//! A patched call site jumps to its stub, the stub calls `runahead_entry` with the program's
//! registers as they were at the call; a trapped one arrives through [`Context`]. Either way a
//! [`Call`] results, which knows the [`Thread`] that makes it.

/// Instructions that put the vector registers onto the stack, where 256 aligned bytes are free for
/// them.
macro_rules! save_vectors {
    () => {
        concat!(
            "movaps [rsp], xmm0\n",
            "movaps [rsp + 16], xmm1\n",
            "movaps [rsp + 32], xmm2\n",
            "movaps [rsp + 48], xmm3\n",
            "movaps [rsp + 64], xmm4\n",
            "movaps [rsp + 80], xmm5\n",
            "movaps [rsp + 96], xmm6\n",
            "movaps [rsp + 112], xmm7\n",
            "movaps [rsp + 128], xmm8\n",
            "movaps [rsp + 144], xmm9\n",
            "movaps [rsp + 160], xmm10\n",
            "movaps [rsp + 176], xmm11\n",
            "movaps [rsp + 192], xmm12\n",
            "movaps [rsp + 208], xmm13\n",
            "movaps [rsp + 224], xmm14\n",
            "movaps [rsp + 240], xmm15\n",
        )
    };
}

/// Instructions that take the vector registers from where [`save_vectors`] has put them.
macro_rules! restore_vectors {
    () => {
        concat!(
            "movaps xmm0, [rsp]\n",
            "movaps xmm1, [rsp + 16]\n",
            "movaps xmm2, [rsp + 32]\n",
            "movaps xmm3, [rsp + 48]\n",
            "movaps xmm4, [rsp + 64]\n",
            "movaps xmm5, [rsp + 80]\n",
            "movaps xmm6, [rsp + 96]\n",
            "movaps xmm7, [rsp + 112]\n",
            "movaps xmm8, [rsp + 128]\n",
            "movaps xmm9, [rsp + 144]\n",
            "movaps xmm10, [rsp + 160]\n",
            "movaps xmm11, [rsp + 176]\n",
            "movaps xmm12, [rsp + 192]\n",
            "movaps xmm13, [rsp + 208]\n",
            "movaps xmm14, [rsp + 224]\n",
            "movaps xmm15, [rsp + 240]\n",
        )
    };
}

mod call_sites;
mod cancellable_call;
mod handler_entry;
mod instruction_decoder;
mod movable_code;
mod padding;
pub(crate) mod pkeys;
#[cfg(test)]
pub(crate) mod planted_mistakes;
mod reported_call;
mod return_addresses;
mod saved_frame;
mod signal_backout;
mod signal_context;
mod signal_frame;
mod thread_pointers;

use core::arch::{asm, global_asm};

use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64};

use crate::intercepted_call::Call;
use crate::policy::Verdict;
use crate::sample_counter;
use crate::thread::Thread;
use crate::thread_owned::Owned;

pub(crate) use call_sites::*;
pub(crate) use cancellable_call::attempt;
pub use handler_entry::{handler, is_entering_handler};
pub(crate) use padding::{ABSENT, Code, INT3, LONG_JUMP, PAGE_BYTES, RUN_UP, Window};
pub(crate) use reported_call::{CallStage, TRAP, set_trap, trap};
pub use return_addresses::{
    AfterReturn, CALL_BYTES, ask_after_returns, ends_in_call, return_watch,
};
pub use saved_frame::SavedFrame;
pub(crate) use signal_backout::{program_site, to_the_program};
pub use signal_context::Context;
pub use signal_frame::RED_ZONE;
pub(crate) use signal_frame::{FramePlace, REGISTERS};
pub(crate) use thread_pointers::tells_threads_apart;

/// The instruction that makes a system call.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// System call numbers from here on are passed to the kernel unseen.
pub const CALLS: usize = 512;

/// Bytes of the stacks on which the agent works for a program's first thread, and for each other;
/// only what is touched takes memory.
pub const STACK_BYTES: usize = 8 << 20;
/// Bytes of the stack of a thread that is not the first ([`STACK_BYTES`]).
pub const SMALL_STACK_BYTES: usize = 1 << 20;

#[repr(C, align(4096))]
pub(crate) struct Page<const N: usize>([u8; N]);

/// Threads by their thread pointer: how a patched site finds its own. It lies on pages that the
/// kernel clears in a forked child (`MADV_WIPEONFORK`), so that no thread is known there, and a
/// child runs natively unless it comes in by itself.
// SAFETY: nothing else defines a name that begins with RUNAHEAD_: the image is linked with `core`
// alone, and the libraries of a test program have none.
#[unsafe(no_mangle)]
// SAFETY: zeroes, like all of it.
#[unsafe(link_section = ".bss.wiped")]
pub(crate) static RUNAHEAD_THREADS: Owned<Page<THREADS_BYTES>> =
    Owned::new(Page([0; THREADS_BYTES]));
static RUNAHEAD_THREADS_AT: &Owned<Page<THREADS_BYTES>> = &RUNAHEAD_THREADS;
/// Bytes of [`RUNAHEAD_THREADS`]: [`THREAD_HASHES`] places of sixteen bytes, and as many more, of
/// which the last places spill into a few.
pub(crate) const THREADS_BYTES: usize = 2 * THREAD_HASHES * 16;
/// First places that a thread can have.
pub(crate) const THREAD_HASHES: usize = 256;
/// Places looked at, from the first on. The entry code has each of them written out.
pub(crate) const THREAD_PROBES: usize = 4;
/// The multiplier of the hash; bits 32 to 39 of the product count.
pub(crate) const THREAD_HASH: u64 = 0x1e37_79b1;
/// Places for threads that are not known yet; null where there is none.
// SAFETY: a name of ours alone, as above.
#[unsafe(no_mangle)]
pub(crate) static RUNAHEAD_SPARE: [AtomicPtr<Thread>; SPARES] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; SPARES];
/// Most threads that can be on their way to a place at once.
pub(crate) const SPARES: usize = 16;
/// Places that threads have left at their end, from where they become spare ones.
// SAFETY: a name of ours alone, as above.
#[unsafe(no_mangle)]
// SAFETY: zeroes, like all of it. (At its end, so that the small ones share pages.)
#[unsafe(link_section = ".bss.large")]
pub(crate) static RUNAHEAD_RETURNED: [AtomicPtr<Thread>; RETURNED] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; RETURNED];
/// More than there can be places: a thread had one of those in the table.
pub(crate) const RETURNED: usize = 2 * THREAD_HASHES;
/// Route of each call by its number: 0, [`SEEN`], [`SAMPLED`], [`TRAPPED`], [`CHECKED`] or
/// [`COMMANDED`].
// SAFETY: a name of ours alone, as above.
#[unsafe(no_mangle)]
pub(crate) static RUNAHEAD_INTEREST: [AtomicU8; CALLS] = [const { AtomicU8::new(0) }; CALLS];
/// A policy sees each of these calls.
pub const SEEN: u8 = 1;
/// A policy sees those of these calls that it does not let go by ([`sample_counter`]).
pub const SAMPLED: u8 = 2;
/// The plane wants to see each of these with the frame of a signal: from patched sites they trap,
/// too.
pub const TRAPPED: u8 = 3;
/// The plane looks at each of these from a patched site, and has those trap in which it finds
/// something to do.
pub const CHECKED: u8 = 4;
/// A policy sees those of these calls whose second argument, a command, is none of
/// [`COMMON_COMMANDS`].
pub const COMMANDED: u8 = 5;
/// Commands of fcntl(2) from 1 up to this one are about the flags of one descriptor, or locks
/// (asm-generic/fcntl.h).
const COMMON_COMMANDS: u32 = 1023;
/// Nonzero if `rdfsbase` may be used, without which threads cannot be told apart.
// SAFETY: a name of ours alone, as above.
#[unsafe(no_mangle)]
pub(crate) static RUNAHEAD_FSGSBASE: AtomicU8 = AtomicU8::new(0);
/// Return address of each clone trampoline: the instruction after the program's own call.
// SAFETY: a name of ours alone, as above.
#[unsafe(no_mangle)]
pub(crate) static RUNAHEAD_CLONE_RETURN: [AtomicU64; CLONE_SITES] =
    [const { AtomicU64::new(0) }; CLONE_SITES];

/// Return address of each plain trampoline: the instruction after the program's own call.
// SAFETY: a name of ours alone, as above.
#[unsafe(no_mangle)]
pub(crate) static RUNAHEAD_PLAIN_RETURN: [AtomicU64; PLAIN_SITES] =
    [const { AtomicU64::new(0) }; PLAIN_SITES];
/// Distinct call sites that can have a plain trampoline.
pub const PLAIN_SITES: usize = 128;

/// Distinct call sites of clone, fork and vfork that can be followed.
pub const CLONE_SITES: usize = 16;

global_asm!(
    ".pushsection .text.runahead, \"ax\", @progbits",
    ".altmacro",
    // Key of this thread in rcx, and where it may be in r11; both registers are ours. Falls through
    // to `known` with its Thread in r11, or jumps to `unknown`.
    ".macro find_thread known, unknown",
    "rdfsbase rcx",
    "lea rcx, [rcx + 1]",
    "imul r11, rcx, {hash}",
    "shr r11, 28",
    "and r11d, 0xff0",
    "add r11, [rip + {threads_at}]",
    "cmp rcx, [r11]",
    "je \\known",
    "cmp rcx, [r11 + 16]",
    "lea r11, [r11 + 16]",
    "je \\known",
    "cmp rcx, [r11 + 16]",
    "lea r11, [r11 + 16]",
    "je \\known",
    "cmp rcx, [r11 + 16]",
    "lea r11, [r11 + 16]",
    "jne \\unknown",
    ".endm",
    // A spare place in r11, or on to `none`; changes rcx and the flags. (An exchange is atomic.)
    ".macro take_spare none",
    "lea r11, [rip + RUNAHEAD_SPARE]",
    "21: xor ecx, ecx",
    "cmp [r11], rcx",
    "je 22f",
    "xchg rcx, [r11]",
    "test rcx, rcx",
    "jnz 23f",
    "22: lea r11, [r11 + 8]",
    "lea rcx, [rip + RUNAHEAD_SPARE + 8 * {spares}]",
    "cmp r11, rcx",
    "jb 21b",
    "jmp \\none",
    "23: mov r11, rcx",
    ".endm",
    // Whether the thread whose place is found in r11 may work on its stack; else on to `busy`.
    //
    // Busy: a signal handler interrupted the agent, or jumped out of it and left the mark behind.
    // The two look alike, so either way calls go straight to the kernel from here on. So do those
    // of a vfork child, which has its parent's thread.
    ".macro check_free busy",
    "mov r11, [r11 + 8]",
    "cmp byte ptr [r11 + {depth}], 0",
    "jne \\busy",
    ".endm",
    // Called by stubs. rax is the call's number, the arguments are in the kernel's registers, the
    // return address is on the program's stack below its red zone; rcx, r11 and the flags are ours
    // (the kernel clobbers the first two, compilers count the third as clobbered). rcx is left as 0
    // if the call has not been made, and else is not.
    ".globl runahead_entry",
    "runahead_entry:",
    // The kernel takes the lower half for the number.
    "mov eax, eax",
    "cmp rax, {calls}",
    "jae 9f",
    "lea rcx, [rip + RUNAHEAD_INTEREST]",
    "cmp byte ptr [rcx + rax], {seen}",
    "jb 9f",
    "je 5f",
    "cmp byte ptr [rcx + rax], {trapped}",
    "je 7f",
    "ja 12f",
    // Samples are enough: see `sample_counter`. Nothing but rcx and r11 is changed.
    "mov rcx, rsp",
    "shr rcx, 17",
    "mov r11, rcx",
    "shr r11, 6",
    "xor ecx, r11d",
    "and ecx, {places} - 1",
    "shl ecx, 6",
    "lea r11, [rip + {unseen}]",
    "add r11, rcx",
    "mov rcx, [r11]",
    "sub rcx, 1",
    "jb 5f",
    "mov [r11], rcx",
    ".globl runahead_entry_sampled",
    "runahead_entry_sampled:",
    "syscall",
    "ret",
    ".globl runahead_entry_look",
    "runahead_entry_look:",
    "5:",
    "find_thread 4f, 8f",
    "4: check_free 9f",
    "6: mov rcx, rsp",
    "mov byte ptr [r11 + {depth}], 1",
    ".globl runahead_entry_taken",
    "runahead_entry_taken:",
    "mov [r11 + {program_stack}], rcx",
    "mov rsp, [r11 + {stack_top}]",
    ".globl runahead_entry_switched",
    "runahead_entry_switched:",
    // A `Call`, last field first.
    "push r11",
    "push rcx",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "mov rdi, rsp",
    "sub rsp, 264",
    save_vectors!(),
    "cld",
    "call runahead_guarded",
    // A verdict: rdx is 0 and rax the result, or 1 and the call is to be made as it stands, or 2
    // and it is to trap.
    "mov rcx, rdx",
    restore_vectors!(),
    "add rsp, 264",
    "pop r11",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "jrcxz 3f",
    "mov rax, r11",
    "mov r11, [rsp + 8]",
    "mov rsp, [rsp]",
    ".globl runahead_entry_native",
    "runahead_entry_native:",
    "mov byte ptr [r11 + {depth}], 0",
    "cmp byte ptr [r11 + {has_held_signals}], 0",
    "jne 15f",
    "dec ecx",
    "jnz 7f",
    "9:",
    ".globl runahead_entry_call",
    "runahead_entry_call:",
    "syscall",
    "ret",
    "3: mov r11, [rsp + 8]",
    "mov rsp, [rsp]",
    ".globl runahead_entry_made",
    "runahead_entry_made:",
    "mov byte ptr [r11 + {depth}], 0",
    "cmp byte ptr [r11 + {has_held_signals}], 0",
    "jne 14f",
    "inc ecx",
    "ret",
    ".globl runahead_entry_made_end",
    "runahead_entry_made_end:",
    // The stub makes the call itself, from where the program's calls trap.
    "7: xor ecx, ecx",
    "ret",
    // A thread that is not known takes a spare place, if there is one. Where all are to be known it
    // may be that a program has changed the thread pointer: then the call traps, by which it is
    // found.
    "8: cmp byte ptr [rip + {skips_reports}], 0",
    "jne 7b",
    "take_spare 9b",
    "jmp 6b",
    // Where a checked call cannot be looked at, it traps.
    "12: cmp byte ptr [rcx + rax], {checked}",
    "jne 16f",
    "find_thread 13f, 7b",
    "13: check_free 7b",
    "jmp 6b",
    "16: lea r11d, [rsi - 1]",
    "cmp r11d, {common_commands}",
    "jb 9b",
    "jmp 5b",
    ".globl runahead_entry_end",
    "runahead_entry_end:",
    // Signals have been held. They arrive where they are let come, and are then taken to have
    // arrived where the program goes on, behind the call or in front of it (`back`).
    ".macro release after",
    "mov byte ptr [r11 + {has_held_signals}], 0",
    "push rcx",
    "push rax",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "mov eax, {rt_sigprocmask}",
    "mov edi, {sig_setmask}",
    "lea rsi, [r11 + {mask_after_call}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    ".globl \\after",
    "\\after:",
    "pop r10",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rax",
    "pop rcx",
    ".endm",
    "14: release runahead_released_behind",
    "inc ecx",
    "ret",
    // What was decided may be out of date by then.
    "15: release runahead_released_before",
    "jmp runahead_entry",
    // Clone trampolines: the program's own registers and stack, the call, and back.
    ".macro clone_site i",
    "syscall",
    "lea rsp, [rsp - 128]",
    "call runahead_cloned",
    "lea rsp, [rsp + 128]",
    "jmp [rip + RUNAHEAD_CLONE_RETURN + 8 * \\i]",
    ".balign 32",
    ".endm",
    ".balign 32",
    ".globl runahead_clone_sites",
    "runahead_clone_sites:",
    "clone_site 0",
    "clone_site 1",
    "clone_site 2",
    "clone_site 3",
    "clone_site 4",
    "clone_site 5",
    "clone_site 6",
    "clone_site 7",
    "clone_site 8",
    "clone_site 9",
    "clone_site 10",
    "clone_site 11",
    "clone_site 12",
    "clone_site 13",
    "clone_site 14",
    "clone_site 15",
    // Plain trampolines: the same without more ado.
    ".macro plain_site i",
    "syscall",
    "jmp [rip + RUNAHEAD_PLAIN_RETURN + 8 * \\i]",
    ".balign 32",
    ".endm",
    ".globl runahead_plain_sites",
    "runahead_plain_sites:",
    ".set runahead_plain_index, 0",
    ".rept {plain_sites}",
    "plain_site %runahead_plain_index",
    ".set runahead_plain_index, runahead_plain_index + 1",
    ".endr",
    // After a clone, in parent and child, on the program's stack below its red zone; rax is what
    // the kernel returned. Everything but rcx and r11 stays as it is. A vfork child uses the stack
    // of its parent, which has nothing there that it will want again.
    "runahead_cloned:",
    "cmp byte ptr [rip + RUNAHEAD_FSGSBASE], 0",
    "je 5f",
    "pushfq",
    "find_thread 2f, 3f",
    "2: mov r11, [r11 + 8]",
    "jmp 4f",
    "3: take_spare 6f",
    "4: push rbp",
    "mov rbp, rsp",
    "mov byte ptr [r11 + {depth}], 1",
    "mov [r11 + {program_stack}], rbp",
    "mov rsp, [r11 + {stack_top}]",
    "push rax",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "push r8",
    "push r9",
    "sub rsp, 264",
    save_vectors!(),
    "cld",
    "mov rdi, r11",
    "mov rsi, rax",
    "call {cloned}",
    restore_vectors!(),
    "add rsp, 264",
    "pop r9",
    "pop r8",
    "pop r10",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rax",
    "mov rsp, rbp",
    "pop rbp",
    "6: popfq",
    "5: ret",
    // fn(frame: u64) -> !: returns from a signal as the program asked to.
    ".globl runahead_sigreturn",
    "runahead_sigreturn:",
    "mov rsp, rdi",
    ".globl runahead_restorer",
    "runahead_restorer:",
    "mov eax, 15",
    "syscall",
    "ud2",
    // The end of a thread, with the program's registers but for r11, the place that it leaves; no
    // stack is used. Places that are met on the way move on. (An exchange is atomic.)
    ".globl runahead_exit",
    "runahead_exit:",
    "lea rcx, [rip + RUNAHEAD_RETURNED]",
    "lea rax, [rip + RUNAHEAD_RETURNED + 8 * {returned}]",
    "1: xchg [rcx], r11",
    "test r11, r11",
    "jz 2f",
    "lea rcx, [rcx + 8]",
    "cmp rcx, rax",
    "jb 1b",
    "2: mov eax, {exit}",
    "syscall",
    "ud2",
    // fn(argument: u64, work: extern fn(u64), stack: u64): works on that stack.
    ".globl runahead_on_stack",
    "runahead_on_stack:",
    "push rbp",
    "mov rbp, rsp",
    "mov rsp, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    "ret",
    // fn(call: *mut Call) -> Verdict, from which `abandon` can return at any depth.
    ".globl runahead_guarded",
    "runahead_guarded:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov rbx, [rdi + {call_thread}]",
    "mov [rbx + {resume}], rsp",
    "sub rsp, 8",
    "and rsp, -16",
    "call {dispatch}",
    "mov rsp, [rbx + {resume}]",
    "6: pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    // fn(thread: *const Thread, ret: i64, native: u64) -> !: the dispatch under way in that thread
    // returns this verdict.
    ".globl runahead_abandon",
    "runahead_abandon:",
    "mov rsp, [rdi + {resume}]",
    "mov rax, rsi",
    "jmp 6b",
    // fn(flags: u64, wait: u64) -> i64: forks a process that is no child of this one: a helper,
    // which shares our memory and stack while we wait for it, forks and ends.
    ".globl runahead_orphan",
    "runahead_orphan:",
    "sub rsp, 24",
    "mov [rsp + 8], rsi",
    "mov qword ptr [rsp], -11",
    "xor esi, esi",
    "xor edx, edx",
    "xor r10d, r10d",
    "xor r8d, r8d",
    "mov eax, {clone}",
    "syscall",
    "test rax, rax",
    "jz 1f",
    "js 3f",
    // We: the helper has ended, or is about to. It is collected.
    "mov [rsp + 16], rax",
    "2: mov rdi, [rsp + 16]",
    "xor esi, esi",
    "mov rdx, [rsp + 8]",
    "xor r10d, r10d",
    "mov eax, {wait4}",
    "syscall",
    "cmp rax, -4",
    "je 2b",
    "mov rax, [rsp]",
    "3: add rsp, 24",
    "ret",
    // The helper.
    "1: xor edi, edi",
    "mov eax, {clone}",
    "syscall",
    "test rax, rax",
    "jz 3b",
    "mov [rsp], rax",
    "xor edi, edi",
    "mov eax, {exit}",
    "syscall",
    "ud2",
    ".noaltmacro",
    ".purgem clone_site",
    ".purgem plain_site",
    ".purgem find_thread",
    ".purgem take_spare",
    ".purgem check_free",
    ".purgem release",
    ".popsection",
    calls = const CALLS,
    spares = const SPARES,
    hash = const THREAD_HASH,
    threads_at = sym RUNAHEAD_THREADS_AT,
    seen = const SEEN,
    trapped = const TRAPPED,
    skips_reports = sym crate::interception_state::SKIPS_REPORTS,
    checked = const CHECKED,
    common_commands = const COMMON_COMMANDS,
    places = const sample_counter::PLACES,
    unseen = sym sample_counter::RUNAHEAD_UNSEEN,
    depth = const offset_of!(Thread, depth),
    program_stack = const offset_of!(Thread, program_stack),
    returned = const RETURNED,
    stack_top = const offset_of!(Thread, stack_top),
    resume = const offset_of!(Thread, resume),
    has_held_signals = const offset_of!(Thread, has_held_signals),
    mask_after_call = const offset_of!(Thread, mask_after_call),
    rt_sigprocmask = const linux_raw_sys::general::__NR_rt_sigprocmask,
    sig_setmask = const linux_raw_sys::general::SIG_SETMASK,
    call_thread = const offset_of!(Call, thread),
    clone = const linux_raw_sys::general::__NR_clone,
    wait4 = const linux_raw_sys::general::__NR_wait4,
    exit = const linux_raw_sys::general::__NR_exit,
    cloned = sym crate::clone::runahead_after_clone,
    dispatch = sym crate::call_dispatch::runahead_dispatch,
    plain_sites = const PLAIN_SITES,
);

const _: () =
    assert!(size_of::<sample_counter::Unseen>() == 64 && SEEN < SAMPLED && SAMPLED < TRAPPED);
const _: () = assert!(TRAPPED < CHECKED && CHECKED < COMMANDED);
const _: () = assert!(THREAD_PROBES == 4 && THREAD_HASHES == 256);

#[allow(
    improper_ctypes,
    reason = "what is behind the pointers is the agent's own; assembly uses asserted offsets"
)]
// SAFETY: all of them are defined above. Those that Rust calls (sigreturn, on_stack, guarded,
// abandon, orphan) take and return what C's convention says; of the others only the addresses are
// taken.
unsafe extern "C" {
    fn runahead_entry();
    fn runahead_entry_call();
    fn runahead_entry_sampled();
    fn runahead_entry_look();
    fn runahead_entry_taken();
    fn runahead_entry_switched();
    fn runahead_entry_native();
    fn runahead_entry_made();
    fn runahead_entry_made_end();
    fn runahead_entry_end();
    fn runahead_released_behind();
    fn runahead_released_before();
    fn runahead_clone_sites();
    fn runahead_plain_sites();
    fn runahead_sigreturn(frame: u64) -> !;
    fn runahead_restorer();
    fn runahead_exit();
    fn runahead_on_stack(argument: u64, work: extern "C" fn(u64), stack: u64);
    fn runahead_guarded(call: *mut Call) -> Verdict;
    fn runahead_abandon(thread: *const Thread, ret: i64, native: u64) -> !;
    fn runahead_orphan(flags: u64, wait: u64) -> i64;
}

/// Bytes between two trampolines (`.balign 32` above).
const CLONE_SITE_BYTES: u64 = 32;

/// Address of the clone trampoline `index`.
pub fn clone_site(index: usize) -> u64 {
    runahead_clone_sites as *const () as u64 + index as u64 * CLONE_SITE_BYTES
}

/// Address of the plain trampoline `index`.
pub fn plain_site(index: usize) -> u64 {
    runahead_plain_sites as *const () as u64 + index as u64 * CLONE_SITE_BYTES
}

/// Address that stubs call.
pub fn entry() -> u64 {
    runahead_entry as *const () as u64
}

/// Address that signal handlers of ours return to.
pub fn restorer() -> u64 {
    runahead_restorer as *const () as u64
}

/// Words at the top of the agent's stack among which are all registers of a program that came by a
/// patched site: the call, the vectors, and what is pushed by `runahead_guarded`.
pub const SAVED_WORDS: usize = 9 + 264 / 8 + 1 + 6;

/// Returns from the signal whose frame lies at `frame`, as `rt_sigreturn` at that stack pointer.
///
/// # Safety
/// `frame` is the stack pointer with which the program itself asked for `rt_sigreturn`.
pub unsafe fn sigreturn(frame: u64) -> ! {
    // SAFETY: the program was about to do exactly this; nothing of the current stack is needed.
    unsafe { runahead_sigreturn(frame) }
}

/// Runs `work(argument)` on the stack that ends at `top`.
///
/// # Safety
/// Nothing else is on that stack, and as much as the work needs is there.
pub unsafe fn on_stack(top: u64, argument: u64, work: extern "C" fn(u64)) {
    // SAFETY: passed on to the caller.
    unsafe { runahead_on_stack(argument, work, top) }
}

/// Dispatches `call`, whose thread is set, in a way that [`abandon`] can leave.
///
/// # Safety
/// The thread's depth is held.
pub unsafe fn dispatch(call: &mut Call) -> Verdict {
    // SAFETY: passed on to the caller.
    unsafe { runahead_guarded(call) }
}

/// Leaves the dispatch under way at once: the call has this result, or is made as it stands.
///
/// # Safety
/// Inside a dispatch of `thread`, on it. What the abandoned frames borrowed is not used again.
pub unsafe fn abandon(thread: &Thread, result: Option<i64>) -> ! {
    // SAFETY: passed on to the caller.
    unsafe { runahead_abandon(thread, result.unwrap_or(0), u64::from(result.is_none())) }
}

/// Forks a process whose parent is the process that adopts orphans here: no process of the program
/// collects it, or learns of its end. Returns 0 in the new process; its number or -errno in this
/// one, which waits for the helper that makes it (some 50 µs beyond a fork).
///
/// # Safety
/// As fork(2) in a process with threads. No signal is delivered to this thread meanwhile.
pub unsafe fn orphan() -> i64 {
    use linux_raw_sys::general as k;
    const HELPER: u32 =
        k::CLONE_VM | k::CLONE_VFORK | k::CLONE_FILES | k::CLONE_FS | k::CLONE_UNTRACED;
    // With no signal for its end, only who asks for such children by name finds the helper.
    // SAFETY: passed on to the caller.
    unsafe { runahead_orphan(HELPER.into(), k::__WCLONE.into()) }
}

/// A system call, from the agent's own text. Returns what the kernel does: -errno on failure.
///
/// # Safety
/// As unsafe as the call it makes.
#[inline]
pub unsafe fn syscall(nr: u64, args: [u64; 6]) -> i64 {
    let ret: i64;
    // SAFETY: the kernel clobbers rax, rcx and r11 only; memory effects are the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr as i64 => ret,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    ret
}

/// The time-stamp counter.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: rdtsc has no effect; a process that forbids it (PR_SET_TSC) retires first.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Thread pointer of this thread: by `rdfsbase` where the kernel allows it (`fast`), otherwise by a
/// system call, which works on every processor.
pub fn thread_pointer(fast: bool) -> u64 {
    if fast {
        let base: u64;
        // SAFETY: reads a register; the supervisor found the instruction allowed (AT_HWCAP2).
        unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
        return base;
    }
    const ARCH_GET_FS: u64 = 0x1003;
    let mut base = 0u64;
    let at = &raw mut base as u64;
    // SAFETY: arch_prctl(2) writes one u64 to `base`.
    unsafe {
        syscall(linux_raw_sys::general::__NR_arch_prctl as u64, [ARCH_GET_FS, at, 0, 0, 0, 0])
    };
    base
}
