//! A command that is killed when it makes a certain call that changes files, or that finds all
//! file systems full from there on.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};

use libc::{c_long, pid_t, user_regs_struct};

/// Exit status of a command that was killed, as shells have it.
const KILLED: u8 = 128 + libc::SIGKILL as u8;

/// Interruption of a command at a call.
#[derive(Clone, Copy, PartialEq)]
pub enum Interruption {
    /// The command is killed before the call is made.
    Kill,
    /// The call fails for want of room, and so does every later one that needs room.
    Full,
}

/// Calls that change files and need room. Those that open files do so only with `O_CREAT`.
const GROWING: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_fallocate,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
];

/// Other calls that change files.
const CHANGING: &[c_long] = &[
    libc::SYS_ftruncate,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
];

/// Runs a command until its call number `at` of those that change files, counted from 1. Number
/// 0 is never reached. Prints the number of these calls last.
#[expect(clippy::zombie_processes, reason = "it is waited for by its number")]
pub fn run(at: u64, how: Interruption, words: &[&str]) -> ExitCode {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    // SAFETY: the call is one that may be made between fork and exec: it allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    };
    let child = command.spawn().expect("it starts");
    let traced = Traced(child.id() as pid_t);
    assert!(traced.wait().stopped_signal() == Some(libc::SIGTRAP), "it stops at exec");
    traced.ask(libc::PTRACE_SETOPTIONS, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL);
    let (mut calls, mut is_entered, mut is_refused, mut signal) = (0, false, false, 0);
    let end = loop {
        traced.ask(libc::PTRACE_SYSCALL, signal);
        let status = traced.wait();
        signal = match status.stopped_signal() {
            None => break status,
            Some(at_call) if at_call == libc::SIGTRAP | 0x80 => 0,
            Some(signal) => signal,
        };
        if signal != 0 {
            continue;
        }
        is_entered = !is_entered;
        let mut registers = traced.registers();
        if !is_entered {
            if std::mem::take(&mut is_refused) {
                registers.rax = i64::from(-libc::ENOSPC) as u64;
                traced.set_registers(&registers);
            }
            continue;
        }
        let grows = is_any_of(GROWING, &registers);
        calls += u64::from(grows || is_any_of(CHANGING, &registers));
        let is_met = at != 0 && calls >= at;
        if is_met && how == Interruption::Kill {
            // SAFETY: a signal to a child that has not been waited for.
            unsafe { libc::kill(traced.0, libc::SIGKILL) };
        } else if is_met && grows {
            // No call has this number: nothing is done.
            registers.orig_rax = u64::MAX;
            traced.set_registers(&registers);
            is_refused = true;
        }
    };
    println!("calls {calls}");
    end.code().map_or(ExitCode::from(KILLED), |code| ExitCode::from(code as u8))
}

/// True if the call that is entered is one of these, and about a file.
fn is_any_of(calls: &[c_long], registers: &user_regs_struct) -> bool {
    let call = registers.orig_rax as c_long;
    let is_about_file = match call {
        libc::SYS_openat => registers.rdx & libc::O_CREAT as u64 != 0,
        libc::SYS_write | libc::SYS_writev => registers.rdi > libc::STDERR_FILENO as u64,
        _ => true,
    };
    calls.contains(&call) && is_about_file
}

/// Child process that is traced, by its number.
struct Traced(pid_t);

impl Traced {
    fn wait(&self) -> ExitStatus {
        let mut status = 0;
        // SAFETY: the status is written to a variable that outlives the call.
        let waited = unsafe { libc::waitpid(self.0, &mut status, 0) };
        assert_eq!(waited, self.0, "it is a child");
        ExitStatus::from_raw(status)
    }

    /// Makes a request that takes a number. A child that was killed meanwhile is waited for next.
    fn ask(&self, request: libc::c_uint, number: i32) {
        // SAFETY: these requests take numbers; no memory is involved.
        unsafe { libc::ptrace(request, self.0, 0, i64::from(number)) };
    }

    fn registers(&self) -> user_regs_struct {
        // SAFETY: all of its fields are numbers.
        let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the registers are written to a variable that outlives the call.
        unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.0, 0, &raw mut registers) };
        registers
    }

    fn set_registers(&self, registers: &user_regs_struct) {
        // SAFETY: the registers are read from a variable that outlives the call.
        unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.0, 0, &raw const *registers) };
    }
}
