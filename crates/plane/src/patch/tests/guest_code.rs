//! Runs made code with chosen registers on a stack of its own, and performs the calls that it
//! makes: those that trap by way of a signal, those of patched sites by way of an entry like the
//! agent's.

use core::arch::global_asm;
use core::mem::offset_of;

use linux_raw_sys::general as k;

use super::super::super::kernel_signals;
use crate::arch;
use crate::sys;
use crate::thread_owned::Owned;

/// Registers of a guest.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct Registers {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub rsp: u64,
    /// r8 to r15.
    pub high: [u64; 8],
    pub flags: u64,
}

const R12: usize = 4;
const R15: usize = 7;

impl Registers {
    pub fn set_number(&mut self, number: u64) {
        self.high[R12] = number;
    }

    pub fn set_data(&mut self, at: u64) {
        self.high[R15] = at;
    }

    /// Clears what a call leaves undefined: rcx, r11; the auxiliary carry of logical operations.
    pub fn comparable(mut self) -> Self {
        const AUXILIARY_CARRY: u64 = 1 << 4;
        self.rcx = 0;
        self.high[3] = 0;
        self.flags &= !AUXILIARY_CARRY;
        self
    }
}

/// Record of what a guest did.
pub(super) struct Log {
    pub calls: [[u64; 7]; 64],
    pub made: usize,
    /// Addresses and numbers of the calls that trapped.
    pub traps: [(u64, u64); 64],
    pub trapped: usize,
}

static LOG: Owned<Log> =
    Owned::new(Log { calls: [[0; 7]; 64], made: 0, traps: [(0, 0); 64], trapped: 0 });

/// The log of this process, whose only thread is the caller.
pub(super) fn log() -> &'static mut Log {
    // SAFETY: callers are the one thread of a forked child, and keep no reference over a run.
    unsafe { LOG.get() }
}

fn perform(call: [u64; 7]) -> i64 {
    let log = log();
    log.calls[log.made % 64] = call;
    log.made += 1;
    // SAFETY: guests make only calls that read numbers of this process.
    unsafe { sys::raw(call[0], [call[1], call[2], call[3], call[4], call[5], call[6]]) }
}

extern "C" fn runahead_guest_call(call: *const [u64; 7]) -> i64 {
    // SAFETY: the entry passes what it has just pushed.
    perform(unsafe { *call })
}

extern "C" fn on_trap(_: i32, _: u64, context: *mut u64) {
    // Indices into ucontext_t (asm/ucontext.h).
    const R8: usize = 5;
    const RDI: usize = 13;
    const RSI: usize = 14;
    const RDX: usize = 17;
    const RAX: usize = 18;
    const RIP: usize = 21;
    // SAFETY: the kernel's frame, live until we return.
    unsafe {
        let at = |i: usize| *context.add(i);
        let call = [at(RAX), at(RDI), at(RSI), at(RDX), at(R8 + 2), at(R8), at(R8 + 1)];
        let log = log();
        log.traps[log.trapped % 64] = (at(RIP) - 2, call[0]);
        log.trapped += 1;
        *context.add(RAX) = perform(call) as u64;
    }
}

/// From here on, calls from addresses below `end` trap.
pub(super) fn trap_calls_below(end: u64) {
    let handler: extern "C" fn(i32, u64, *mut u64) = on_trap;
    let flags = k::SA_SIGINFO | k::SA_RESTORER | k::SA_NODEFER;
    let handler = handler as usize as u64;
    let action = kernel_signals::Action {
        handler,
        flags: flags.into(),
        restorer: arch::restorer(),
        mask: 0,
    };
    kernel_signals::set_action(k::SIGSYS as i32, Some(&action)).unwrap();
    const TOP: u64 = 0x7fff_ffff_f000;
    let args = [linux_raw_sys::prctl::PR_SYS_DISPATCH_ON.into(), end, TOP - end, 0];
    // SAFETY: calls from the rest of the address space are let through.
    unsafe { sys::prctl(linux_raw_sys::prctl::PR_SET_SYSCALL_USER_DISPATCH, args) }.unwrap();
}

/// Address that the stubs of tests call.
pub(super) fn entry() -> u64 {
    runahead_guest_entry as *const () as u64
}

/// Runs the guest at `code` until it returns.
///
/// # Safety
/// It is code that returns, and touches only its own data and stack.
pub(super) unsafe fn run(registers: &mut Registers, code: u64) {
    // SAFETY: passed on to the caller.
    unsafe { runahead_guest_run(registers, code) }
}

// SAFETY: both are defined below. Only `run` is called from here, which takes its arguments and
// keeps what it has to keep as in C; of the entry the address is taken.
unsafe extern "C" {
    fn runahead_guest_entry();
    fn runahead_guest_run(registers: *mut Registers, code: u64);
}

// SAFETY: nothing else defines a name that begins with RUNAHEAD_.
#[unsafe(no_mangle)]
static RUNAHEAD_GUEST_HOST: Owned<[u64; 3]> = Owned::new([0; 3]);

global_asm!(
    ".pushsection .text.runahead_guest, \"ax\", @progbits",
    // As `runahead_entry`, but it spoils what that may spoil.
    ".globl runahead_guest_entry",
    ".globl runahead_guest_run",
    "runahead_guest_entry:",
    "push rbp",
    "mov rbp, rsp",
    "push rdi",
    "push rsi",
    "push rdx",
    "push r10",
    "push r8",
    "push r9",
    "sub rsp, 56",
    "mov [rsp], rax",
    "mov [rsp + 8], rdi",
    "mov [rsp + 16], rsi",
    "mov [rsp + 24], rdx",
    "mov [rsp + 32], r10",
    "mov [rsp + 40], r8",
    "mov [rsp + 48], r9",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {call}",
    "lea rsp, [rbp - 48]",
    "pop r9",
    "pop r8",
    "pop r10",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rbp",
    "mov rcx, 0x1badbad1",
    "mov r11, 0x2badbad2",
    // Overflow, zero, sign, carry, parity: another pattern each time.
    "add dword ptr [rip + RUNAHEAD_GUEST_HOST + 20], 0x3456789b",
    "ret",
    "runahead_guest_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + RUNAHEAD_GUEST_HOST], rsp",
    "mov [rip + RUNAHEAD_GUEST_HOST + 8], rdi",
    "mov rsp, [rdi + {rsp}]",
    "lea rax, [rip + 2f]",
    "push rax",
    "push rsi",
    "push qword ptr [rdi + {flags}]",
    "popfq",
    "mov rax, [rdi]",
    "mov rbx, [rdi + 8]",
    "mov rcx, [rdi + 16]",
    "mov rdx, [rdi + 24]",
    "mov rsi, [rdi + 32]",
    "mov rbp, [rdi + 48]",
    "mov r8, [rdi + {high}]",
    "mov r9, [rdi + {high} + 8]",
    "mov r10, [rdi + {high} + 16]",
    "mov r11, [rdi + {high} + 24]",
    "mov r12, [rdi + {high} + 32]",
    "mov r13, [rdi + {high} + 40]",
    "mov r14, [rdi + {high} + 48]",
    "mov r15, [rdi + {high} + 56]",
    "mov rdi, [rdi + 40]",
    "ret",
    "2: push rdi",
    "mov rdi, [rip + RUNAHEAD_GUEST_HOST + 8]",
    "mov [rdi], rax",
    "mov [rdi + 8], rbx",
    "mov [rdi + 16], rcx",
    "mov [rdi + 24], rdx",
    "mov [rdi + 32], rsi",
    "pop rax",
    "mov [rdi + 40], rax",
    "mov [rdi + 48], rbp",
    "mov [rdi + {rsp}], rsp",
    "mov [rdi + {high}], r8",
    "mov [rdi + {high} + 8], r9",
    "mov [rdi + {high} + 16], r10",
    "mov [rdi + {high} + 24], r11",
    "mov [rdi + {high} + 32], r12",
    "mov [rdi + {high} + 40], r13",
    "mov [rdi + {high} + 48], r14",
    "mov [rdi + {high} + 56], r15",
    "pushfq",
    "pop qword ptr [rdi + {flags}]",
    "mov rsp, [rip + RUNAHEAD_GUEST_HOST]",
    "cld",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".popsection",
    call = sym runahead_guest_call,
    rsp = const offset_of!(Registers, rsp),
    high = const offset_of!(Registers, high),
    flags = const offset_of!(Registers, flags),
);
