//! A process under ptrace, as types: only a stopped one has registers.

use nix::errno::Errno;
use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::IoSlice;

/// Why a tracee could not be worked on.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It ended; its status has been collected and is in here.
    #[error("the process ended while it was being prepared")]
    Gone(WaitStatus),
    /// The kernel refused.
    #[error("{what} failed: {errno}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// The kernel's reason.
        errno: Errno,
    },
}

fn refused(what: &'static str) -> impl FnOnce(Errno) -> TraceError {
    move |errno| TraceError::Refused { what, errno }
}

/// A traced process that has just been started.
#[derive(Debug)]
pub struct Running {
    pid: Pid,
}

/// A traced process that stands still. Dropping it lets it go.
#[derive(Debug)]
pub struct Stopped {
    pid: Pid,
    /// Signals that arrived meanwhile, to be sent again in the end.
    pending: Vec<Signal>,
    let_go: bool,
}

impl Running {
    /// A child that asked to be traced and is about to call exec.
    pub fn child(pid: Pid) -> Self {
        Running { pid }
    }

    /// Waits until it stops at exec.
    pub fn wait_for_exec(self) -> Result<Stopped, TraceError> {
        let mut stopped = Stopped { pid: self.pid, pending: Vec::new(), let_go: false };
        stopped.wait_for_trap()?;
        Ok(stopped)
    }
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

    /// Writes `bytes` to writable memory at `address`.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), TraceError> {
        let remote = [RemoteIoVec { base: address as usize, len: bytes.len() }];
        match process_vm_writev(self.pid, &[IoSlice::new(bytes)], &remote) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(_) => Err(refused("copying the agent")(Errno::EFAULT)),
            Err(errno) => Err(refused("copying the agent")(errno)),
        }
    }

    /// Runs from `regs` to the next breakpoint; the registers there.
    pub fn run(&mut self, regs: user_regs_struct) -> Result<user_regs_struct, TraceError> {
        self.set_registers(regs)?;
        ptrace::cont(self.pid, None).map_err(refused("continuing"))?;
        self.wait_for_trap()?;
        self.registers()
    }

    /// Makes a system call from the instruction pair `syscall; int3` at `site`.
    pub fn syscall(
        &mut self,
        site: u64,
        nr: libc::c_long,
        args: [u64; 6],
    ) -> Result<u64, TraceError> {
        let mut regs = self.registers()?;
        regs.rip = site;
        regs.rax = nr as u64;
        // No call is under way that the kernel could restart.
        regs.orig_rax = u64::MAX;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
        let ret = self.run(regs)?.rax as i64;
        match ret {
            -4095..0 => Err(refused("preparing its memory")(Errno::from_raw(-ret as i32))),
            ok => Ok(ok as u64),
        }
    }

    /// Ends it before it executes anything.
    pub fn kill(self) {
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    /// Lets it go on, with the signals that came meanwhile.
    fn release(&mut self) {
        if std::mem::replace(&mut self.let_go, true) {
            return;
        }
        // A process that is gone needs neither.
        let _ = ptrace::detach(self.pid, None);
        for signal in self.pending.drain(..) {
            let _ = kill(self.pid, signal);
        }
    }

    fn wait_for_trap(&mut self) -> Result<(), TraceError> {
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => return Ok(()),
                Ok(WaitStatus::Stopped(_, signal)) => {
                    self.pending.push(signal);
                    ptrace::cont(self.pid, None).map_err(refused("continuing"))?;
                }
                Ok(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) => {
                    self.let_go = true;
                    return Err(TraceError::Gone(status));
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(refused("waiting")(errno)),
            }
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.release();
    }
}
