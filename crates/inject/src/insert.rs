//! Puts the agent into a program that stands at its first instruction.
//!
//! The program maps the agent's file itself: a few instructions in place of its first ones make room,
//! map, close the descriptor, and call the agent's start, which ends at a breakpoint. So there are
//! two stops, at exec and there, each of which costs the better part of the time that this takes.

use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::WaitStatus;

use crate::image::Layout;
use crate::launch::NotInjected;
use crate::tracee::{Entry, Stopped, TraceError};

/// Why a program goes on without the agent, or does not go on.
pub enum Failure {
    /// Natively.
    Native(NotInjected),
    /// It has ended.
    Ended(WaitStatus),
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        match error {
            TraceError::Gone(status) => Failure::Ended(status),
            other => Failure::Native(NotInjected::Trace(other.to_string())),
        }
    }
}

/// close(2) of i386 (asm/unistd_32.h).
const CLOSE_32: libc::c_long = 6;
/// User code segment of 64-bit programs (asm/segment.h).
const USER_CS: u64 = 0x33;

/// Inserts the agent, whose file the program has open as `file`, and lets the program go.
pub fn insert(
    mut program: Stopped,
    file: i32,
    layout: Result<Layout, NotInjected>,
    require: bool,
) -> Result<(), Failure> {
    let inserted = try_insert(&mut program, file, layout);
    if require && inserted.is_err() {
        program.kill();
    }
    inserted
}

fn try_insert(
    program: &mut Stopped,
    file: i32,
    layout: Result<Layout, NotInjected>,
) -> Result<(), Failure> {
    let mut saved = program.registers()?;
    // What execve(2), in which it stands, is about to return.
    (saved.rax, saved.orig_rax) = (0, u64::MAX);
    let site = saved.rip;
    let mut code = [0; BOOTSTRAP_BYTES];
    program.read_code(site, &mut code)?;
    let (entry, close) = match saved.cs {
        USER_CS => (Entry::Long, libc::SYS_close),
        _ => (Entry::Compat, CLOSE_32),
    };
    let placed = match (entry, layout) {
        (Entry::Compat, _) => Err(Failure::Native(NotInjected::Architecture)),
        (Entry::Long, Ok(layout)) => place(program, site, file, layout),
        (Entry::Long, Err(why)) => Err(Failure::Native(why)),
    };
    if !matches!(placed, Ok(0) | Err(Failure::Ended(_))) {
        // It may be closed already.
        let _ = program.syscall(site, entry, close, [file as u64, 0, 0, 0, 0, 0]);
    }
    if !matches!(placed, Err(Failure::Ended(_))) {
        program.write_code(site, &code)?;
        program.set_registers(saved)?;
    }
    match placed? {
        0 => Ok(()),
        errno => Err(Failure::Native(NotInjected::Agent(Errno::from_raw(-errno as i32)))),
    }
}

/// The result of the agent's start: 0, or a negative errno, in which case its memory is given back.
fn place(program: &mut Stopped, site: u64, file: i32, layout: Layout) -> Result<i64, Failure> {
    program.write_code(site, &bootstrap(file, layout))?;
    let mut regs = program.registers()?;
    // Below what the kernel has put on the stack for the program.
    regs.rsp = (regs.rsp - 1024) & !15;
    regs.rip = site;
    regs.orig_rax = u64::MAX;
    // exec(2) has cleared it: until there is a mapping it stays so.
    regs.rbx = 0;
    let after = program.run(regs)?;
    let result = after.rax as i64;
    if result != 0 && after.rbx != 0 {
        let mapped = [after.rbx, layout.total_len, 0, 0, 0, 0];
        let _ = program.syscall(site, Entry::Long, libc::SYS_munmap, mapped);
    }
    Ok(result)
}

const BOOTSTRAP_BYTES: usize = 112;

/// See the module's text. A failure ends at a breakpoint, too, with the kernel's errno in `rax`.
fn bootstrap(file: i32, layout: Layout) -> [u8; BOOTSTRAP_BYTES] {
    let word = |value: i64| (value as u32).to_le_bytes();
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let fixed = libc::MAP_PRIVATE | libc::MAP_FIXED;
    let data = libc::PROT_READ | libc::PROT_WRITE;
    let mut code = [0xcc; BOOTSTRAP_BYTES];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        code[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    // rbx = mmap(0, total, data, private, -1, 0)
    put(&[0x31, 0xff, 0xbe]); // xor edi, edi; mov esi, …
    put(&word(layout.total_len as i64));
    put(&[0xba]); // mov edx, …
    put(&word(data.into()));
    put(&[0x41, 0xba]); // mov r10d, …
    put(&word(private.into()));
    put(&[0x49, 0x83, 0xc8, 0xff, 0x45, 0x31, 0xc9, 0xb8]); // or r8, -1; xor r9d, r9d; mov eax, …
    put(&word(libc::SYS_mmap));
    put(&[0x0f, 0x05, 0x48, 0x85, 0xc0, 0x78, 0]); // syscall; test rax, rax; js out
    let failure = at - 1;
    let mut put = |bytes: &[u8]| {
        code[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&[0x48, 0x89, 0xc3, 0x48, 0x89, 0xc7, 0xbe]); // mov rbx, rax; mov rdi, rax; mov esi, …
    put(&word(layout.file_len as i64));
    put(&[0xba]);
    put(&word((data | libc::PROT_EXEC).into()));
    put(&[0x41, 0xba]);
    put(&word(fixed.into()));
    put(&[0x41, 0xb8]); // mov r8d, …
    put(&word(file.into()));
    put(&[0xb8]);
    put(&word(libc::SYS_mmap));
    put(&[0x0f, 0x05, 0x48, 0x85, 0xc0, 0x78, 0]);
    let other_failure = at - 1;
    let mut put = |bytes: &[u8]| {
        code[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&[0xbf]); // mov edi, …
    put(&word(file.into()));
    put(&[0xb8]);
    put(&word(libc::SYS_close));
    put(&[0x0f, 0x05, 0x48, 0x89, 0xdf, 0x48, 0x8d, 0x83]); // syscall; mov rdi, rbx; lea rax, [rbx + …]
    put(&word(layout.entry as i64));
    put(&[0xff, 0xe0]); // jmp rax
    // Behind it lie breakpoints.
    let out = at;
    for jump in [failure, other_failure] {
        code[jump] = (out - jump - 1) as u8;
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bootstrap_fits_and_ends_at_a_breakpoint() {
        let layout = Layout { file_len: 1 << 17, total_len: 1 << 24, entry: 0x15130 };
        let code = bootstrap(63, layout);
        assert_eq!(code[BOOTSTRAP_BYTES - 1], 0xcc);
        assert_eq!(BOOTSTRAP_BYTES % 8, 0);
        let calls = code.windows(2).filter(|pair| *pair == [0x0f, 0x05]).count();
        assert_eq!(calls, 3);
    }
}
