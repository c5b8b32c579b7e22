//! Puts the agent into a program that stands at its first instruction.
//!
//! The program maps the agent's file itself: a few instructions in place of its first ones make
//! room, map, close the descriptor, and call the agent's start, which ends at a breakpoint. So
//! there are two stops, at exec and there, each of which costs the better part of the time that
//! this takes.

use nix::errno::Errno;
use nix::libc;

use crate::image::Layout;
use crate::not_injected::NotInjected;
use crate::status::Ended;
use crate::tracee::{CallEntry, Stopped, TraceError};

/// Why a program goes on without the agent, or does not go on.
pub enum Failure {
    /// Natively.
    Native(NotInjected),
    /// It has ended.
    Ended(Ended),
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        match error {
            TraceError::Gone(status) => Failure::Ended(status),
            TraceError::Refused { what, errno } => {
                Failure::Native(NotInjected::Trace { what, errno })
            }
        }
    }
}

/// close(2) of i386 (asm/unistd_32.h).
const CLOSE_32: libc::c_long = 6;
/// User code segment of 64-bit programs (asm/segment.h).
const USER_CS: u64 = 0x33;

/// Inserts the agent, whose file the program has open as `file` and which finds `told` there, and
/// lets the program go, with `mask` for its blocked signals, if it has another until then.
pub fn insert(
    mut program: Stopped,
    (file, told): (i32, &[u8]),
    layout: Result<Layout, NotInjected>,
    require: bool,
    mask: Option<u64>,
) -> Result<(), Failure> {
    let mut inserted = try_insert(&mut program, (file, told), layout);
    if let (Ok(()), Some(mask)) = (&inserted, mask) {
        inserted = program.set_mask(mask).map_err(Failure::from);
    }
    let is_refused = require && inserted.is_err();
    if is_refused {
        program.kill();
    }
    match program.release() {
        Some(ended) if !is_refused => Err(Failure::Ended(ended)),
        _ => inserted,
    }
}

fn try_insert(
    program: &mut Stopped,
    (file, told): (i32, &[u8]),
    layout: Result<Layout, NotInjected>,
) -> Result<(), Failure> {
    let mut saved = program.registers()?;
    // What execve(2), in which it stands, is about to return.
    (saved.rax, saved.orig_rax) = (0, u64::MAX);
    let site = saved.rip;
    let mut code = [0; BOOTSTRAP_BYTES];
    program.read_code(site, &mut code)?;
    let (entry, close) = match saved.cs {
        USER_CS => (CallEntry::Long, libc::SYS_close),
        _ => (CallEntry::Compat, CLOSE_32),
    };
    let placed = match (entry, layout) {
        (CallEntry::Compat, _) => Err(Failure::Native(NotInjected::Architecture)),
        (CallEntry::Long, Ok(layout)) => place(program, site, (file, told), layout),
        (CallEntry::Long, Err(why)) => Err(Failure::Native(why)),
    };
    if !matches!(placed, Ok(0) | Err(Failure::Ended(_))) {
        // It may be closed already.
        let _ = program.syscall(site, entry, close, [file as u64, 0, 0, 0, 0, 0]);
    }
    if !matches!(placed, Err(Failure::Ended(_))) {
        program.write_words(site, &code)?;
        program.set_registers(saved)?;
    }
    match placed? {
        0 => Ok(()),
        errno => Err(Failure::Native(NotInjected::Agent(Errno::from_raw(-errno as i32)))),
    }
}

/// The result of the agent's start: 0, or a negative errno, in which case its memory is given back.
fn place(
    program: &mut Stopped,
    site: u64,
    (file, told): (i32, &[u8]),
    layout: Layout,
) -> Result<i64, Failure> {
    program.write_words(site, &BOOTSTRAP)?;
    let mut regs = program.registers()?;
    // Below what the kernel has put on the stack for the program.
    let mut words = told.to_vec();
    words.resize(told.len().next_multiple_of(8), 0);
    regs.rsp = (regs.rsp - 1024 - words.len() as u64) & !15;
    program.write_words(regs.rsp, &words)?;
    regs.rip = site;
    regs.orig_rax = u64::MAX;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let data = libc::PROT_READ | libc::PROT_WRITE;
    // The first call's arguments;
    (regs.rdi, regs.rsi, regs.rdx) = (0, layout.total_len, data as u64);
    (regs.r10, regs.r8, regs.r9) = (private as u64, u64::MAX, 0);
    // and what the code takes from registers later. Until there is a mapping rbx stays 0.
    (regs.rbx, regs.r15) = (0, layout.entry);
    // As a descriptor only its lower half is looked at.
    regs.rbp = u64::from(file as u32) | (told.len() as u64) << 32;
    (regs.r12, regs.r13) = (layout.file_len, (data | libc::PROT_EXEC) as u64);
    regs.r14 = (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64;
    let after = program.run(regs)?;
    let result = after.rax as i64;
    if result != 0 && after.rbx != 0 {
        let mapped = [after.rbx, layout.total_len, 0, 0, 0, 0];
        let _ = program.syscall(site, CallEntry::Long, libc::SYS_munmap, mapped);
    }
    Ok(result)
}

const BOOTSTRAP_BYTES: usize = 56;

/// Code that runs in the program to map the agent. Every eight bytes cost two calls of ptrace(2),
/// so what can be is in registers. The number of a call cannot: execve(2), in which the program
/// stands, clears rax as it returns. A failure ends at a breakpoint, too, with the kernel's errno
/// in rax.
#[rustfmt::skip]
const BOOTSTRAP: [u8; BOOTSTRAP_BYTES] = [
    0x6a, libc::SYS_mmap as u8, 0x58,   // push …; pop rax
    0x0f, 0x05,                         // rbx = mmap(0, total, data, private, -1, 0)
    0x48, 0x85, 0xc0, 0x78, 0x2c,       // test rax, rax; js out
    0x48, 0x89, 0xc3, 0x48, 0x89, 0xc7, // mov rbx, rax; mov rdi, rax
    0x44, 0x89, 0xe6, 0x44, 0x89, 0xea, // mov esi, r12d; mov edx, r13d
    0x45, 0x89, 0xf2, 0x41, 0x89, 0xe8, // mov r10d, r14d; mov r8d, ebp
    0x6a, libc::SYS_mmap as u8, 0x58,
    0x0f, 0x05,                         // mmap(rbx, length, data | exec, private | fixed, file, 0)
    0x48, 0x85, 0xc0, 0x78, 0x10,       // test rax, rax; js out
    0x89, 0xef,                         // mov edi, ebp
    0x6a, libc::SYS_close as u8, 0x58,
    0x0f, 0x05,                         // close(file)
    0x48, 0x89, 0xdf,                   // mov rdi, rbx
    0x49, 0x01, 0xdf, 0x41, 0xff, 0xe7, // add r15, rbx; jmp r15
    0xcc, 0xcc,                         // out:
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bootstrap_makes_three_calls_and_ends_at_a_breakpoint() {
        let calls = BOOTSTRAP.windows(2).filter(|pair| *pair == [0x0f, 0x05]).count();
        assert_eq!((calls, BOOTSTRAP_BYTES % 8), (3, 0));
        let out = BOOTSTRAP.iter().position(|byte| *byte == 0xcc);
        let jumps = (0..BOOTSTRAP_BYTES).filter(|&n| BOOTSTRAP[n] == 0x78);
        let targets = jumps.map(|n| Some(n + 2 + usize::from(BOOTSTRAP[n + 1])));
        assert_eq!(targets.collect::<Vec<_>>(), [out, out]);
    }
}
