//! Has a process give interception up, before another process traces it.
//!
//! The agent in the process does that when it gets a signal of ours. A program without the agent,
//! or one that runs natively already, would be ended by that signal. So the process is stopped
//! first. While it stands still, the kernel tells whether the agent gets its calls (Linux 6.4).
//! Then its first thread takes the signal before it executes another instruction, and above all
//! before it becomes another program.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use runahead_abi::control_protocol::GIVE_UP_VALUE;

use crate::status::{Status, wait_briefly};

/// Interval between two looks.
const LOOK: Duration = Duration::from_micros(200);
/// ptrace(2): reads the settings of Syscall User Dispatch (linux/ptrace.h).
const PTRACE_GET_DISPATCH: libc::c_uint = 0x4211;
/// ptrace(2): reads the signals that are blocked (linux/ptrace.h).
const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
/// Results of an interrupted call that the kernel makes again if no handler runs
/// (linux/errno.h): `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`.
const RESTARTED: [i64; 4] = [-512, -513, -514, -516];
/// Length of the instruction `syscall`, and of `int 0x80`.
const CALL_BYTES: u64 = 2;

/// Asks `process` to give interception up, until then at the latest. `is_agent` tells whether code
/// of the agent is at an address of the process, which stands still meanwhile.
///
/// The calling thread must end soon: the kernel then lets a process go that never stopped. Fails if
/// the process is not intercepted, stands still already, or may not be traced.
pub fn ask_to_end(
    process: Pid,
    until: Instant,
    is_agent: impl Fn(u64) -> bool,
) -> Result<(), Errno> {
    loop {
        match ptrace::seize(process, Options::empty()) {
            Ok(()) => {
                if ask_once(process, until, &is_agent)? {
                    return Ok(());
                }
            }
            // Another thread of ours follows its exec.
            Err(Errno::EPERM) => {}
            Err(errno) => return Err(errno),
        }
        if Instant::now() >= until {
            return Err(Errno::ETIMEDOUT);
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits until the first thread of `process` has left the agent's code, until then at the latest.
/// The calling thread must end soon, as for [`ask_to_end`].
pub fn wait_until_outside(
    process: Pid,
    until: Instant,
    is_agent: impl Fn(u64) -> bool,
) -> Result<(), Errno> {
    while Instant::now() < until {
        ptrace::seize(process, Options::empty())?;
        ptrace::interrupt(process)?;
        let (signal, is_outside) = match wait_for_stop(process, until)? {
            Status::Ended(_) => return Err(Errno::ESRCH),
            Status::Stopped(signal) => (signal, false),
            Status::Event(_) | Status::Other => (0, !is_agent(ptrace::getregs(process)?.rip)),
        };
        detach(process, signal)?;
        if is_outside {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    Err(Errno::ETIMEDOUT)
}

/// Stops a traced process once, asks it, and lets it go. False: it could not be asked just then.
fn ask_once(process: Pid, until: Instant, is_agent: impl Fn(u64) -> bool) -> Result<bool, Errno> {
    ptrace::interrupt(process)?;
    match wait_for_stop(process, until)? {
        Status::Ended(_) => Err(Errno::ESRCH),
        // A signal has come, which comes first.
        Status::Stopped(signal) => detach(process, signal).map(|()| false),
        Status::Event(_) | Status::Other => {
            let asked = ask_stopped(process, is_agent);
            detach(process, 0)?;
            asked
        }
    }
}

/// Asks a process that stands still.
fn ask_stopped(process: Pid, is_agent: impl Fn(u64) -> bool) -> Result<bool, Errno> {
    // Otherwise a signal has stopped it, and will until SIGCONT comes.
    if ptrace::getsiginfo(process)?.si_signo != libc::SIGTRAP {
        return Err(Errno::EINVAL);
    }
    if !dispatch_range(process)?.is_some_and(is_agent) {
        return Err(Errno::ENOENT);
    }
    if mask(process)? & 1 << (libc::SIGSYS - 1) != 0 {
        // The agent is at work. It might be about to execute another program.
        return Ok(false);
    }
    make_call_again(process)?;
    queue(process)?;
    Ok(true)
}

/// Has an interrupted call made again behind the handler of our signal. The kernel does that with
/// some calls, and would let others fail with EINTR, as no tracer does.
fn make_call_again(process: Pid) -> Result<(), Errno> {
    let mut registers = ptrace::getregs(process)?;
    if (registers.orig_rax as i64) < 0 || !RESTARTED.contains(&(registers.rax as i64)) {
        return Ok(());
    }
    registers.rip -= CALL_BYTES;
    registers.rax = registers.orig_rax;
    registers.orig_rax = u64::MAX;
    ptrace::setregs(process, registers)
}

fn wait_for_stop(process: Pid, until: Instant) -> Result<Status, Errno> {
    loop {
        match wait_briefly(process, libc::__WALL | libc::__WNOTHREAD) {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() >= until => return Err(Errno::ETIMEDOUT),
            Ok(None) => std::thread::sleep(LOOK),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Start of the code whose calls Syscall User Dispatch lets through. None: it is off.
fn dispatch_range(process: Pid) -> Result<Option<u64>, Errno> {
    // `struct ptrace_sud_config`: mode, address of a selector, start and length of the code.
    let mut settings = [0u64; 4];
    let (bytes, at) = (size_of_val(&settings), settings.as_mut_ptr());
    // The request's type differs between C libraries. SAFETY: the kernel writes settings of the
    // size that is given.
    let done = unsafe { libc::ptrace(PTRACE_GET_DISPATCH as _, process.as_raw(), bytes, at) };
    Errno::result(done)?;
    let [mode, _, start, _] = settings;
    Ok((mode != 0).then_some(start))
}

fn mask(process: Pid) -> Result<u64, Errno> {
    let mut mask = 0u64;
    let (bytes, at) = (size_of_val(&mask), &raw mut mask);
    // The request's type differs between C libraries. SAFETY: the kernel writes a mask of the size
    // that is given.
    let done = unsafe { libc::ptrace(PTRACE_GETSIGMASK as _, process.as_raw(), bytes, at) };
    Errno::result(done).map(|_| mask)
}

/// Sends the first thread of the process our signal.
fn queue(process: Pid) -> Result<(), Errno> {
    /// Words of a siginfo_t, and the one with the value.
    const WORDS: usize = 16;
    const VALUE: usize = 3;
    let mut info = [0u64; WORDS];
    info[0] = libc::SIGSYS as u64;
    info[1] = u64::from(libc::SI_QUEUE as u32);
    info[VALUE] = GIVE_UP_VALUE;
    let (pid, call) = (process.as_raw(), libc::SYS_rt_tgsigqueueinfo);
    // SAFETY: reads a siginfo_t of 128 bytes; signals at most one thread.
    let sent = unsafe { libc::syscall(call, pid, pid, libc::SIGSYS, info.as_ptr()) };
    Errno::result(sent).map(drop)
}

/// Lets the process go, with this signal, or 0 for none.
fn detach(process: Pid, signal: i32) -> Result<(), Errno> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: this request takes numbers; no memory is involved.
    let done =
        unsafe { libc::ptrace(libc::PTRACE_DETACH, process.as_raw(), none, i64::from(signal)) };
    Errno::result(done).map(drop)
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::{ForkResult, fork};

    use super::*;
    use crate::status::{Ended, wait};

    const PATIENCE: Duration = Duration::from_secs(20);
    /// Start of the code whose calls are let through: all of a child's.
    const START: u64 = 1 << 12;

    /// Setting of prctl(2), and its value (linux/prctl.h).
    const SET_DISPATCH: i32 = 59;
    const ON: u64 = 1;

    /// A child that waits, with dispatch on or off.
    fn waiting_child(is_dispatched: bool) -> Pid {
        // SAFETY: the child makes system calls and nothing else.
        match unsafe { fork() }.expect("there is room for a process") {
            ForkResult::Parent { child } => {
                while !waits(child) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                child
            }
            ForkResult::Child => {
                let all = i64::MAX as u64 - START;
                // SAFETY: a setting of this process; the call, and the end.
                unsafe {
                    if is_dispatched {
                        libc::prctl(SET_DISPATCH, ON, START, all, 0u64);
                    }
                    loop {
                        libc::pause();
                    }
                }
            }
        }
    }

    /// The process has arrived in its wait.
    fn waits(process: Pid) -> bool {
        let call = std::fs::read_to_string(format!("/proc/{process}/syscall"));
        call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_pause)))
    }

    fn ask(process: Pid) -> Result<(), Errno> {
        ask_to_end(process, Instant::now() + PATIENCE, |at| at == START)
    }

    /// End of the process by SIGTERM.
    fn end(process: Pid) -> Ended {
        kill(process, Signal::SIGTERM).expect("it has not been collected");
        let _ = kill(process, Signal::SIGCONT);
        match wait(process, 0).expect("it is ours") {
            Status::Ended(ended) => ended,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_process_that_is_not_intercepted_gets_no_signal() {
        let process = waiting_child(false);
        assert_eq!(ask(process), Err(Errno::ENOENT));
        assert_eq!(end(process), Ended::Signaled(libc::SIGTERM));
    }

    #[test]
    fn a_process_that_is_intercepted_gets_the_signal() {
        let process = waiting_child(true);
        assert_eq!(ask(process), Ok(()));
        // This one has no handler.
        assert_eq!(wait(process, 0), Ok(Status::Ended(Ended::Signaled(libc::SIGSYS))));
    }

    #[test]
    fn a_process_that_waits_in_the_agents_code_is_left_there() {
        let process = waiting_child(true);
        assert_eq!(wait_until_outside(process, Instant::now() + PATIENCE, |_| false), Ok(()));
        let soon = Instant::now() + 10 * LOOK;
        assert_eq!(wait_until_outside(process, soon, |_| true), Err(Errno::ETIMEDOUT));
        assert_eq!(end(process), Ended::Signaled(libc::SIGTERM));
    }

    #[test]
    fn a_process_that_stands_still_is_not_asked() {
        let process = waiting_child(true);
        kill(process, Signal::SIGSTOP).expect("it lives");
        let stopped = wait(process, libc::WUNTRACED);
        assert_eq!(stopped, Ok(Status::Stopped(libc::SIGSTOP)));
        assert_eq!(ask(process), Err(Errno::EINVAL));
        assert_eq!(end(process), Ended::Signaled(libc::SIGTERM));
    }
}
