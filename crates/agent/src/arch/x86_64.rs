//! x86-64: the system call instruction, the two ways into the agent, and the code we write.
//!
//! A patched call site jumps to its stub, the stub calls `runahead_entry` with the program's
//! registers as they were at the call; a trapped one arrives through [`Context`]. Either way a
//! [`Call`] results.

use core::arch::{asm, global_asm};

use crate::owned::Owned;
use crate::plane::{Call, Verdict};

/// System call numbers from here on are passed to the kernel unseen.
pub const CALLS: usize = 512;

/// Bytes of the agent's own stack. A program's signal handler may run on it when a signal arrives
/// while the agent waits in the kernel, so it is as large as stacks usually are; only what is
/// touched takes memory.
const STACK_BYTES: usize = 8 << 20;

#[repr(C, align(4096))]
pub(crate) struct Page<const N: usize>([u8; N]);

/// 1 while patched call sites may enter the agent. It lies on a page that the kernel clears in a
/// forked child (`MADV_WIPEONFORK`), so that a child runs natively without anyone's help.
#[unsafe(no_mangle)]
pub(crate) static RUNAHEAD_ALIVE: Owned<Page<4096>> = Owned::new(Page([0; 4096]));
#[unsafe(no_mangle)]
static RUNAHEAD_STACK: Owned<Page<STACK_BYTES>> = Owned::new(Page([0; STACK_BYTES]));
/// 1 for each call that a policy wants to see.
#[unsafe(no_mangle)]
pub(crate) static RUNAHEAD_INTEREST: Owned<[u8; CALLS]> = Owned::new([0; CALLS]);
/// 1 while the agent runs or waits in the kernel on the program's behalf.
#[unsafe(no_mangle)]
pub(crate) static RUNAHEAD_DEPTH: Owned<u8> = Owned::new(0);
/// First address and end of the program's alternate signal stack; 1 and 0 while it has none.
#[unsafe(no_mangle)]
pub(crate) static RUNAHEAD_ALTSTACK: Owned<[u64; 2]> = Owned::new([1, 0]);
/// Stack pointer to which `abandon` returns.
#[unsafe(no_mangle)]
static RUNAHEAD_RESUME: Owned<u64> = Owned::new(0);
/// Thread pointer (fs base) of the armed thread: how a patched site tells threads apart.
#[unsafe(no_mangle)]
pub(crate) static RUNAHEAD_THREAD: Owned<u64> = Owned::new(0);
/// Where each clone trampoline goes on: the instruction after the program's own call.
#[unsafe(no_mangle)]
pub(crate) static RUNAHEAD_CLONE_RETURN: Owned<[u64; CLONE_SITES]> = Owned::new([0; CLONE_SITES]);

/// Distinct call sites of clone, fork and vfork that can be followed.
pub const CLONE_SITES: usize = 16;

global_asm!(
    ".pushsection .text.runahead, \"ax\", @progbits",
    // Called by stubs. rax is the call's number, the arguments are in the kernel's registers, the
    // return address is on the program's stack below its red zone; rcx, r11 and the flags are ours
    // (the kernel clobbers the first two, compilers count the third as clobbered).
    ".globl runahead_entry",
    "runahead_entry:",
    "cmp byte ptr [rip + RUNAHEAD_ALIVE], 0",
    "je 9f",
    "cmp rax, {calls}",
    "jae 9f",
    "lea rcx, [rip + RUNAHEAD_INTEREST]",
    "cmp byte ptr [rcx + rax], 0",
    "je 9f",
    "rdfsbase rcx",
    "cmp rcx, [rip + RUNAHEAD_THREAD]",
    "jne 9f",
    // Busy: a signal handler interrupted the agent, or jumped out of it and left the mark behind.
    // The two look alike, so either way calls go straight to the kernel from here on.
    "cmp byte ptr [rip + RUNAHEAD_DEPTH], 0",
    "jne 9f",
    // On its alternate stack the program is handling a signal: from ours the kernel would take that
    // stack to be free, and put the next signal on top of it.
    "cmp rsp, [rip + RUNAHEAD_ALTSTACK]",
    "jb 2f",
    "cmp rsp, [rip + RUNAHEAD_ALTSTACK + 8]",
    "jbe 9f",
    "2: mov r11, rsp",
    "mov byte ptr [rip + RUNAHEAD_DEPTH], 1",
    "lea rsp, [rip + RUNAHEAD_STACK + {stack}]",
    // A `Call`, last field first.
    "push r11",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "mov rdi, rsp",
    "sub rsp, 256",
    "movaps [rsp], xmm0",
    "movaps [rsp + 16], xmm1",
    "movaps [rsp + 32], xmm2",
    "movaps [rsp + 48], xmm3",
    "movaps [rsp + 64], xmm4",
    "movaps [rsp + 80], xmm5",
    "movaps [rsp + 96], xmm6",
    "movaps [rsp + 112], xmm7",
    "movaps [rsp + 128], xmm8",
    "movaps [rsp + 144], xmm9",
    "movaps [rsp + 160], xmm10",
    "movaps [rsp + 176], xmm11",
    "movaps [rsp + 192], xmm12",
    "movaps [rsp + 208], xmm13",
    "movaps [rsp + 224], xmm14",
    "movaps [rsp + 240], xmm15",
    "cld",
    "call runahead_guarded",
    // A verdict: rax is the result, or rdx is not 0 and the call is to be made as it stands.
    "mov rcx, rdx",
    "movaps xmm0, [rsp]",
    "movaps xmm1, [rsp + 16]",
    "movaps xmm2, [rsp + 32]",
    "movaps xmm3, [rsp + 48]",
    "movaps xmm4, [rsp + 64]",
    "movaps xmm5, [rsp + 80]",
    "movaps xmm6, [rsp + 96]",
    "movaps xmm7, [rsp + 112]",
    "movaps xmm8, [rsp + 128]",
    "movaps xmm9, [rsp + 144]",
    "movaps xmm10, [rsp + 160]",
    "movaps xmm11, [rsp + 176]",
    "movaps xmm12, [rsp + 192]",
    "movaps xmm13, [rsp + 208]",
    "movaps xmm14, [rsp + 224]",
    "movaps xmm15, [rsp + 240]",
    "add rsp, 256",
    "pop r11",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "mov rsp, [rsp]",
    "mov byte ptr [rip + RUNAHEAD_DEPTH], 0",
    "jrcxz 3f",
    "mov rax, r11",
    "9: syscall",
    "3: ret",
    // Clone trampolines: the program's own registers and stack, the call, and back. The parent
    // comes alive again (a vfork child runs with the mark cleared). No stack, because a vfork
    // child and its parent share it; no flags, because nothing may be lost.
    ".altmacro",
    ".macro clone_site i",
    "syscall",
    "mov ecx, eax",
    "jrcxz 5f",
    "mov byte ptr [rip + RUNAHEAD_ALIVE], 1",
    "5: jmp [rip + RUNAHEAD_CLONE_RETURN + 8 * \\i]",
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
    ".noaltmacro",
    ".purgem clone_site",
    // fn(frame: u64) -> !: returns from a signal as the program asked to.
    ".globl runahead_sigreturn",
    "runahead_sigreturn:",
    "mov rsp, rdi",
    ".globl runahead_restorer",
    "runahead_restorer:",
    "mov eax, 15",
    "syscall",
    "ud2",
    // fn(call: *mut Call) -> Verdict: dispatches on the agent's stack.
    ".globl runahead_on_stack",
    "runahead_on_stack:",
    "push rbp",
    "mov rbp, rsp",
    "lea rsp, [rip + RUNAHEAD_STACK + {stack}]",
    "call runahead_guarded",
    "mov rsp, rbp",
    "pop rbp",
    "ret",
    // fn(call: *mut Call) -> Verdict, from which `abandon` can return at any depth.
    "runahead_guarded:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + RUNAHEAD_RESUME], rsp",
    "sub rsp, 8",
    "and rsp, -16",
    "call {dispatch}",
    "6: mov rsp, [rip + RUNAHEAD_RESUME]",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    // fn(ret: i64, native: u64) -> !: the dispatch under way returns this verdict.
    ".globl runahead_abandon",
    "runahead_abandon:",
    "mov rax, rdi",
    "mov rdx, rsi",
    "jmp 6b",
    ".popsection",
    calls = const CALLS,
    stack = const STACK_BYTES,
    dispatch = sym crate::plane::runahead_dispatch,
);

unsafe extern "C" {
    fn runahead_entry();
    fn runahead_clone_sites();
    fn runahead_sigreturn(frame: u64) -> !;
    fn runahead_restorer();
    fn runahead_on_stack(call: *mut Call) -> Verdict;
    fn runahead_abandon(ret: i64, native: u64) -> !;
}

/// Bytes between two clone trampolines (`.balign 32` above).
const CLONE_SITE_BYTES: u64 = 32;

/// Address of the clone trampoline `index`.
pub fn clone_site(index: usize) -> u64 {
    runahead_clone_sites as *const () as u64 + index as u64 * CLONE_SITE_BYTES
}

/// Address that signal handlers of ours return to.
pub fn restorer() -> u64 {
    runahead_restorer as *const () as u64
}

/// Returns from the signal whose frame lies at `frame`, as `rt_sigreturn` at that stack pointer.
///
/// # Safety
/// `frame` is the stack pointer with which the program itself asked for `rt_sigreturn`.
pub unsafe fn sigreturn(frame: u64) -> ! {
    // SAFETY: the program was about to do exactly this; nothing of the current stack is needed.
    unsafe { runahead_sigreturn(frame) }
}

/// Dispatches `call` on the agent's stack.
///
/// # Safety
/// The depth is held: nothing else is on that stack.
pub unsafe fn dispatch_on_agent_stack(call: *mut Call) -> Verdict {
    // SAFETY: passed on to the caller.
    unsafe { runahead_on_stack(call) }
}

/// Leaves the dispatch under way at once: the call has this result, or is made as it stands.
///
/// # Safety
/// Inside a dispatch. What the abandoned frames borrowed is not used again.
pub unsafe fn abandon(result: Option<i64>) -> ! {
    // SAFETY: passed on to the caller.
    unsafe { runahead_abandon(result.unwrap_or(0), u64::from(result.is_none())) }
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

/// The frame that the kernel hands to a signal handler (`struct ucontext`, asm/ucontext.h).
#[repr(C)]
pub struct Context {
    flags: u64,
    link: u64,
    /// Alternate stack that returning from the signal sets again.
    pub stack: [u64; 3],
    r8_to_r15: [u64; 8],
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    eflags: u64,
    segments: u64,
    err_trapno_oldmask_cr2: [u64; 4],
    fpstate: u64,
    reserved: [u64; 8],
    /// Signal mask that returning from the signal sets again.
    pub mask: u64,
}

const _: () = assert!(core::mem::offset_of!(Context, mask) == 296);

impl Context {
    /// The call that was dispatched; `rip` is behind its instruction.
    pub fn call(&self) -> Call {
        let [r8, r9, r10, ..] = self.r8_to_r15;
        Call { nr: self.rax, args: [self.rdi, self.rsi, self.rdx, r10, r8, r9], stack: self.rsp }
    }

    /// Sets the call's result.
    pub fn set_result(&mut self, value: i64) {
        self.rax = value as u64;
    }

    /// Address behind the call's instruction.
    pub fn after(&self) -> u64 {
        self.rip
    }

    /// Continue elsewhere.
    pub fn resume_at(&mut self, address: u64) {
        self.rip = address;
    }
}

/// How a call site can be rewritten; see `plane::patch` for which is safe when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SiteShape {
    /// `mov eax, nr` (or `mov rax, nr`) before the call: the five bytes of a jump replace the
    /// front of it, `len` bytes ahead of the call, which itself stays.
    NumberBefore {
        /// Bytes from the start of the move to the call instruction.
        len: u8,
    },
    /// `cmp rax, -4095` (or -4096) behind the call: the jump replaces the call and the front of
    /// the comparison, which the stub makes instead.
    CompareAfter,
}

/// Bytes looked at before and behind a call instruction.
pub const SITE_BEFORE: usize = 8;
/// See [`SITE_BEFORE`]; the instruction's own two included.
pub const SITE_AFTER: usize = 8;

/// What surrounds the call instruction at `bytes[SITE_BEFORE]`, given the number it was made with.
pub fn site_shape(bytes: &[u8; SITE_BEFORE + SITE_AFTER], nr: u64) -> Option<SiteShape> {
    let (before, at) = bytes.split_at(SITE_BEFORE);
    if at[..2] != [0x0f, 0x05] {
        return None;
    }
    let number = (nr as u32).to_le_bytes();
    let rex = |b: u8| (0x40..=0x4f).contains(&b);
    if before[3] == 0xb8 && before[4..] == number && !rex(before[2]) {
        return Some(SiteShape::NumberBefore { len: 5 });
    }
    if before[1..4] == [0x48, 0xc7, 0xc0] && before[4..] == number {
        return Some(SiteShape::NumberBefore { len: 7 });
    }
    let cmp_errno = at[2..4] == [0x48, 0x3d] && matches!(at[4], 0x00 | 0x01);
    (cmp_errno && at[5..8] == [0xf0, 0xff, 0xff]).then_some(SiteShape::CompareAfter)
}

/// Bytes of one stub.
pub const STUB_BYTES: usize = 64;

/// The stub for a site: make room below the red zone, enter the agent, do what the jump displaced,
/// and go on behind the site. `site` is the address of the call instruction.
pub fn stub(
    shape: SiteShape,
    nr: u64,
    site: u64,
    around: &[u8; SITE_BEFORE + SITE_AFTER],
) -> [u8; STUB_BYTES] {
    let mut code = [0xcc; STUB_BYTES];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        code[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]
    if let SiteShape::NumberBefore { .. } = shape {
        put(&[0xb8]); // mov eax, nr
        put(&(nr as u32).to_le_bytes());
    }
    // call [rip + to the pointer in the stub's last 16 bytes]
    put(&[0xff, 0x15]);
    let call_end = if let SiteShape::NumberBefore { .. } = shape { 16 } else { 11 };
    put(&((STUB_BYTES - 16 - call_end) as u32).to_le_bytes());
    put(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea rsp, [rsp + 128]
    let mut jump_end = call_end + 8 + 6;
    if shape == SiteShape::CompareAfter {
        put(&around[SITE_BEFORE + 2..]); // the comparison, which is position-independent
        jump_end += 6;
    }
    put(&[0xff, 0x25]); // jmp [rip + to the last 8 bytes]
    put(&((STUB_BYTES - 8 - jump_end) as u32).to_le_bytes());
    let back = match shape {
        SiteShape::NumberBefore { .. } => site + 2,
        SiteShape::CompareAfter => site + 8,
    };
    code[STUB_BYTES - 16..STUB_BYTES - 8]
        .copy_from_slice(&(runahead_entry as *const () as u64).to_le_bytes());
    code[STUB_BYTES - 8..].copy_from_slice(&back.to_le_bytes());
    code
}

/// `jmp` to `stub` for the place `from`; `None` when it is further than a jump can reach.
pub fn jump(from: u64, stub: u64) -> Option<[u8; 5]> {
    let distance = (stub as i64).wrapping_sub(from as i64 + 5);
    let distance = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, distance[0], distance[1], distance[2], distance[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(before: &[u8], after: &[u8]) -> [u8; 16] {
        let mut bytes = [0x90; 16];
        bytes[SITE_BEFORE - before.len()..SITE_BEFORE].copy_from_slice(before);
        bytes[SITE_BEFORE..SITE_BEFORE + after.len()].copy_from_slice(after);
        bytes
    }

    #[test]
    fn shapes_that_libraries_have_are_recognised() {
        let glibc_openat = around(&[0xb8, 1, 1, 0, 0], &[0x0f, 5, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff]);
        assert_eq!(site_shape(&glibc_openat, 257), Some(SiteShape::NumberBefore { len: 5 }));
        let glibc_read = around(&[0x31, 0xc0], &[0x0f, 5, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff]);
        assert_eq!(site_shape(&glibc_read, 0), Some(SiteShape::CompareAfter));
        let wide = around(&[0x48, 0xc7, 0xc0, 39, 0, 0, 0], &[0x0f, 5, 0xc3]);
        assert_eq!(site_shape(&wide, 39), Some(SiteShape::NumberBefore { len: 7 }));
    }

    #[test]
    fn lookalikes_are_left_alone() {
        let into_r8 = around(&[0x41, 0xb8, 39, 0, 0, 0], &[0x0f, 5, 0xc3]);
        assert_eq!(site_shape(&into_r8, 39), None);
        let other_number = around(&[0xb8, 40, 0, 0, 0], &[0x0f, 5, 0xc3]);
        assert_eq!(site_shape(&other_number, 39), None);
        let no_call = around(&[0xb8, 39, 0, 0, 0], &[0x0f, 0x0b, 0xc3]);
        assert_eq!(site_shape(&no_call, 39), None);
    }

    #[test]
    fn a_jump_reaches_two_gigabytes_and_no_further() {
        assert_eq!(jump(0x1000, 0x1005), Some([0xe9, 0, 0, 0, 0]));
        assert_eq!(jump(0x1000, 0x0ffb), Some([0xe9, 0xf6, 0xff, 0xff, 0xff]));
        assert_eq!(jump(0, 1 << 32), None);
    }
}
