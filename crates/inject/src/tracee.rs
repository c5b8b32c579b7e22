//! A process under ptrace, as types: only a stopped one has registers.
//!
//! The tracer attaches with `PTRACE_SEIZE`: if it dies the kernel lets the tracee go on, stopped or
//! not. (After `PTRACE_TRACEME` a tracee whose parent is gone already has init for a tracer, which
//! never lets it go.) From exec on the tracee would go on in the middle of our code, so for that
//! time it dies with its tracer.

use std::io::IoSliceMut;

use nix::errno::Errno;
use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace::{self, Options};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use runahead_abi::control_protocol;

use crate::status::{self, Ended, Status};

/// ptrace(2): sets the signals that are blocked (linux/ptrace.h).
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;

/// Why a tracee could not be worked on.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It ended; its status has been collected and is in here.
    #[error("the process ended while it was being prepared")]
    Gone(Ended),
    /// The kernel refused.
    #[error("{what} failed: {errno}")]
    Refused {
        /// Action that failed.
        what: &'static str,
        /// The kernel's reason.
        errno: Errno,
    },
}

fn refused(what: &'static str) -> impl FnOnce(Errno) -> TraceError {
    move |errno| TraceError::Refused { what, errno }
}

/// A traced process that has not called exec yet.
#[derive(Debug)]
pub struct Running {
    pid: Pid,
    /// It dies with us already.
    dies_with_us: bool,
}

/// A traced process that stands still. Dropping it lets it go.
#[derive(Debug)]
pub struct Stopped {
    pid: Pid,
    /// Signals that arrived meanwhile, to be sent again in the end.
    pending: Vec<i32>,
    let_go: bool,
}

/// Way in which system calls enter the kernel.
#[derive(Debug, Clone, Copy)]
pub enum CallEntry {
    /// `syscall`, with the numbers of x86-64.
    Long,
    /// `int 0x80`, with the numbers of i386: for programs of 32 bits.
    Compat,
}

impl CallEntry {
    /// `mov eax, NR`, the call, `int3`. The number is in the code because execve(2), in which the
    /// tracee stops first, clears the register when it returns.
    fn code(self, nr: libc::c_long) -> i64 {
        let [a, b, c, d] = (nr as u32).to_le_bytes();
        let [x, y] = match self {
            CallEntry::Long => [0x0f, 0x05],
            CallEntry::Compat => [0xcd, 0x80],
        };
        i64::from_le_bytes([0xb8, a, b, c, d, x, y, 0xcc])
    }
}

impl Running {
    /// Traces a process that is about to call exec, without stopping it before that.
    /// `dies_with_us`: from here on, and not only from its exec on.
    pub fn seize(pid: Pid, dies_with_us: bool) -> Result<Self, Errno> {
        let dies = if dies_with_us { Options::PTRACE_O_EXITKILL } else { Options::empty() };
        ptrace::seize(pid, Options::PTRACE_O_TRACEEXEC | dies)?;
        Ok(Running { pid, dies_with_us })
    }

    /// It does not go on without us, from here on.
    pub fn dies_with_us(&self) -> bool {
        self.dies_with_us
    }

    /// Waits until it stops at exec. From there until it is let go it dies with us. `None`: it says
    /// that its exec has failed ([`runahead_abi::control_protocol::EXEC_FAILED`]), and has been let
    /// go.
    pub fn wait_for_exec(self) -> Result<Option<Stopped>, TraceError> {
        let stopped = Stopped { pid: self.pid, pending: Vec::new(), let_go: false };
        loop {
            match wait(self.pid) {
                Ok(Status::Event(libc::PTRACE_EVENT_EXEC)) if self.dies_with_us => {
                    return Ok(Some(stopped));
                }
                Ok(Status::Event(libc::PTRACE_EVENT_EXEC)) => {
                    return match ptrace::setoptions(self.pid, Options::PTRACE_O_EXITKILL) {
                        // Killed: what is tried next says so.
                        Ok(()) | Err(Errno::ESRCH) => Ok(Some(stopped)),
                        Err(errno) => Err(refused("setting options")(errno)),
                    };
                }
                Ok(Status::Event(_)) => cont(self.pid, 0)?,
                Ok(Status::Stopped(signal)) => {
                    if is_word_of_failure(self.pid, signal) {
                        return Ok(None);
                    }
                    cont(self.pid, signal)?;
                }
                other => stopped.is_alive(other)?,
            }
        }
    }

    /// Lets it go, wherever it is.
    pub fn release(self) {
        let mut stopped = Stopped { pid: self.pid, pending: Vec::new(), let_go: false };
        if ptrace::interrupt(self.pid).is_ok() {
            // Whatever stop comes first, perhaps that for a signal.
            match wait(self.pid) {
                Ok(Status::Ended(_)) => stopped.let_go = true,
                Ok(Status::Stopped(signal)) => stopped.pending.push(signal),
                _ => {}
            }
        }
        stopped.release();
    }
}

/// waitpid(2) for one tracee of this thread.
fn wait(pid: Pid) -> nix::Result<Status> {
    status::wait(pid, libc::__WALL | libc::__WNOTHREAD)
}

/// Lets a stopped tracee go on, with this signal, or 0 for none. Waiting tells if it has been
/// killed.
fn cont(pid: Pid, signal: i32) -> Result<(), TraceError> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: this request takes numbers; no memory is involved.
    let done = unsafe { libc::ptrace(libc::PTRACE_CONT, pid.as_raw(), none, i64::from(signal)) };
    match Errno::result(done) {
        Ok(_) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(refused("continuing")(errno)),
    }
}

fn is_word_of_failure(pid: Pid, signal: i32) -> bool {
    if signal as u32 != control_protocol::EXEC_FAILED {
        return false;
    }
    let Ok(info) = ptrace::getsiginfo(pid) else { return false };
    if info.si_code != libc::SI_QUEUE {
        return false;
    }
    // SAFETY: of a queued signal, the value is the member that is set.
    let value = unsafe { info.si_value() };
    value.sival_ptr as u64 == control_protocol::EXEC_FAILED_VALUE
}

impl Stopped {
    /// Its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its registers.
    pub fn registers(&self) -> Result<user_regs_struct, TraceError> {
        ptrace::getregs(self.pid).map_err(refused("reading registers"))
    }

    /// Sets its registers.
    pub fn set_registers(&mut self, regs: user_regs_struct) -> Result<(), TraceError> {
        ptrace::setregs(self.pid, regs).map_err(refused("setting registers"))
    }

    /// Reads the word at `address`.
    pub fn peek(&self, address: u64) -> Result<i64, TraceError> {
        ptrace::read(self.pid, address as ptrace::AddressType).map_err(refused("reading memory"))
    }

    /// Writes the word at `address`, whatever the protection of its page.
    pub fn poke(&mut self, address: u64, word: i64) -> Result<(), TraceError> {
        ptrace::write(self.pid, address as ptrace::AddressType, word)
            .map_err(refused("writing code"))
    }

    /// Reads `bytes.len()` bytes, a multiple of eight, of code.
    pub fn read_code(&self, address: u64, bytes: &mut [u8]) -> Result<(), TraceError> {
        let (base, len) = (address as usize, bytes.len());
        let mut local = [IoSliceMut::new(bytes)];
        let read = process_vm_readv(self.pid, &mut local, &[RemoteIoVec { base, len }]);
        if read == Ok(len) {
            return Ok(());
        }
        // A system that forbids it still lets a tracer read words.
        for (n, word) in bytes.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.peek(address + 8 * n as u64)?.to_le_bytes());
        }
        Ok(())
    }

    /// Overwrites memory, also code, with `bytes`, whose number is a multiple of eight.
    pub fn write_words(&mut self, address: u64, bytes: &[u8]) -> Result<(), TraceError> {
        for (n, word) in bytes.chunks_exact(8).enumerate() {
            let word: [u8; 8] = word.try_into().unwrap_or_default();
            self.poke(address + 8 * n as u64, i64::from_le_bytes(word))?;
        }
        Ok(())
    }

    /// Runs from `regs` to the next breakpoint; the registers there.
    pub fn run(&mut self, regs: user_regs_struct) -> Result<user_regs_struct, TraceError> {
        self.set_registers(regs)?;
        cont(self.pid, 0)?;
        self.wait_for_breakpoint()?;
        self.registers()
    }

    /// Makes a system call from `site`, where it overwrites eight bytes of code.
    pub fn syscall(
        &mut self,
        site: u64,
        entry: CallEntry,
        nr: libc::c_long,
        args: [u64; 6],
    ) -> Result<u64, TraceError> {
        self.poke(site, entry.code(nr))?;
        let mut regs = self.registers()?;
        regs.rip = site;
        // No call is under way that the kernel could restart.
        regs.orig_rax = u64::MAX;
        match entry {
            CallEntry::Long => {
                [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
            }
            CallEntry::Compat => {
                [regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.rbp] = args;
            }
        }
        let ret = self.run(regs)?.rax as i64;
        match ret {
            -4095..0 => Err(refused("preparing its memory")(Errno::from_raw(-ret as i32))),
            ok => Ok(ok as u64),
        }
    }

    /// Blocks these signals, and no others.
    pub fn set_mask(&mut self, mask: u64) -> Result<(), TraceError> {
        let bytes = size_of_val(&mask);
        let (request, pid) = (PTRACE_SETSIGMASK, self.pid.as_raw());
        // The request's type differs between C libraries. SAFETY: the kernel reads a mask of the
        // size that is given.
        let done = unsafe { libc::ptrace(request as _, pid, bytes, &raw const mask) };
        Errno::result(done).map(drop).map_err(refused("setting the mask"))
    }

    /// Ends it before it executes anything.
    pub fn kill(&self) {
        send(self.pid, libc::SIGKILL);
    }

    /// Lets it go on, with the signals that came meanwhile. If it has been killed: how it ended.
    pub fn release(&mut self) -> Option<Ended> {
        if std::mem::replace(&mut self.let_go, true) {
            return None;
        }
        if ptrace::detach(self.pid, None) == Err(Errno::ESRCH) {
            return self.collect();
        }
        for signal in self.pending.drain(..) {
            send(self.pid, signal);
        }
        None
    }

    /// Collects a tracee that was killed while it stood still: it cannot be let go, and its parent
    /// does not hear of its end before the tracer has.
    fn collect(&self) -> Option<Ended> {
        loop {
            match wait(self.pid) {
                Ok(Status::Ended(ended)) => return Some(ended),
                Ok(_) => _ = ptrace::detach(self.pid, None),
                Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
    }

    fn wait_for_breakpoint(&mut self) -> Result<(), TraceError> {
        loop {
            match wait(self.pid) {
                Ok(Status::Stopped(libc::SIGTRAP)) => return Ok(()),
                // Told of SIGCONT, for instance.
                Ok(Status::Event(_)) => cont(self.pid, 0)?,
                Ok(Status::Stopped(signal)) => {
                    self.pending.push(signal);
                    cont(self.pid, 0)?;
                }
                other => {
                    let alive = self.is_alive(other);
                    self.let_go |= matches!(alive, Err(TraceError::Gone(_)));
                    alive?;
                }
            }
        }
    }

    /// Checks a wait status that is none of the expected ones: an error if the tracee has ended or
    /// waiting has failed.
    fn is_alive(&self, status: nix::Result<Status>) -> Result<(), TraceError> {
        match status {
            Ok(Status::Ended(ended)) => Err(TraceError::Gone(ended)),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(refused("waiting")(errno)),
        }
    }
}

fn send(pid: Pid, signal: i32) {
    // SAFETY: kill(2) takes numbers. One that is gone needs no signal.
    unsafe { libc::kill(pid.as_raw(), signal) };
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_is_let_go_gets_the_signal_that_it_stood_for() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep is there");
        let pid = Pid::from_raw(child.id() as i32);
        let come_to = |state| {
            let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
            while !stat().contains(state) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        come_to("(sleep) S ");
        let running = Running::seize(pid, false).expect("a child can be traced");
        send(pid, libc::SIGTERM);
        come_to(") t ");
        running.release();
        assert_eq!(child.wait().expect("it is ours").signal(), Some(libc::SIGTERM));
    }
}
