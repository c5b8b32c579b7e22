//! I/O process: all that may wait for storage is done in a second process.
//!
//! A server that does not answer holds the thread that asked it in the kernel, where not even
//! SIGKILL reaches it, and with the thread its process: it has ended only when its last thread has.
//! So the process that a caller waits for has no such threads. They belong to another one, which
//! shares its memory and its descriptors (clone(2), `CLONE_VM` and `CLONE_FILES`): to the code it
//! is as if they were threads of one process, and locks, channels and descriptors are common to
//! both. It dies with this one. Where it cannot at once, it is not waited for.
//!
//! What is a matter of the process stays here: the command is this one's child, is traced and told
//! signals by it, and its shadows watch over this one's life. They watch over the other's, too, as
//! it keeps them within bounds.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use nix::libc;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::exec_file::{self, ExecFile};
use crate::inherited_descriptors::beyond_standard;
use crate::signal_blocking;
use runahead_admission::mount_table::Local;

/// Longest wait for an answer, which usually takes some 20 µs. A signal may have stopped the
/// process.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the process's end: longer than reads that do finish take.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 256 << 10;

/// Its number; 0 before it is there, -1 when it has ended.
static IO_PID: AtomicI32 = AtomicI32::new(0);
const ENDED: i32 = -1;
/// PID of its parent.
static OWNER_PID: AtomicU32 = AtomicU32::new(0);

type Job = Box<dyn FnOnce() + Send>;

/// Handle of the I/O process.
pub struct IoProcess {
    /// Eventfd that is signalled when there are jobs. `None`: the caller does them itself.
    bell: Option<OwnedFd>,
    jobs: Mutex<VecDeque<Job>>,
    local: Local,
}

impl IoProcess {
    /// No other process: what should be in it is in this one.
    pub fn in_this_process() -> Arc<Self> {
        IoProcess::with_bell(None)
    }

    fn with_bell(bell: Option<OwnedFd>) -> Arc<Self> {
        Arc::new(IoProcess { bell, jobs: Mutex::default(), local: Local::default() })
    }

    /// Makes the process, of which a program has one. The caller's signals must be blocked.
    pub(crate) fn start() -> Result<Arc<Self>, Errno> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let io_process = IoProcess::with_bell(Some(beyond_standard(bell)?));
        let (sender, receiver) = channel();
        OWNER_PID.store(std::process::id(), SeqCst);
        let first = FirstThread { io_process: io_process.clone(), sender };
        let owner_thread = Builder::new().name("runahead-beside".into()).stack_size(64 << 10);
        owner_thread.spawn(move || own_io_process(first)).map_err(|_| Errno::AGAIN)?;
        // It goes away without a word if it ends at once.
        receiver.recv_timeout(ANSWER_TIMEOUT).unwrap_or(Err(Errno::SRCH))?;
        Ok(io_process)
    }

    /// Descriptor that becomes readable when there are jobs; the first thread then calls
    /// [`Beside::work_off`].
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(AsFd::as_fd)
    }

    /// Has its first thread do `job`, which must not wait for storage.
    pub(crate) fn post(&self, job: impl FnOnce() + Send + 'static) {
        let Some(bell) = &self.bell else { return job() };
        self.jobs().push_back(Box::new(job));
        let _ = write(bell, &1u64.to_ne_bytes());
    }

    /// Has its first thread do `work`, which does not end, and [works off](Self::work_off) what
    /// else there is.
    pub(crate) fn run_forever(&self, stack_bytes: usize, work: impl FnOnce() + Send + 'static) {
        match &self.bell {
            Some(_) => self.post(work),
            // Without it sessions go on, and what is gone is noticed later.
            None => _ = self.spawn("watch", stack_bytes, work),
        }
    }

    /// Has the I/O process do `job`, and waits for its result. `None`: the process has ended, or
    /// does not answer.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.bell.is_none() {
            return Some(job());
        }
        if pid_or_ended() == Some(ENDED) {
            return None;
        }
        let (sender, receiver) = channel();
        self.post(move || _ = sender.send(job()));
        receiver.recv_timeout(ANSWER_TIMEOUT).ok()
    }

    /// Starts a thread of that process.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        stack_bytes: usize,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), Errno> {
        let thread = Builder::new().name(name.into()).stack_size(stack_bytes);
        let started = self.call(move || {
            let work = || {
                signal_blocking::block_all();
                work();
            };
            thread.spawn(work).is_ok()
        });
        if started == Some(true) { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// Has [`exec_file::look`] done there, if the file lies where a server has to be asked.
    pub(crate) fn examine_exec_file(
        &self,
        place: &Arc<OwnedFd>,
        process: Pid,
        patient: bool,
    ) -> ExecFile {
        if self.bell.is_none() || self.local.has(place) {
            return exec_file::examine(place, process, patient);
        }
        let place = place.clone();
        let (sender, receiver) = channel();
        let started = self.spawn("look", STACK_BYTES, move || {
            _ = sender.send(exec_file::examine(&place, process, patient));
        });
        // It takes as long as the server does.
        started.ok().and_then(|()| receiver.recv().ok()).unwrap_or(ExecFile::Other)
    }

    /// Does what there is to do, in that process.
    pub(crate) fn run_jobs(&self) {
        if let Some(bell) = &self.bell {
            let _ = read(bell, &mut [0; size_of::<u64>()]);
        }
        loop {
            // Not in the condition of the loop: the lock would be held meanwhile. One job never
            // returns, and comes here for the others.
            let job = self.jobs().pop_front();
            match job {
                Some(job) => job(),
                None => return,
            }
        }
    }

    fn jobs(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Arguments of the process's first thread.
struct FirstThread {
    io_process: Arc<IoProcess>,
    sender: Sender<Result<(), Errno>>,
}

/// The thread that has the process for a child. From the call on its thread-local memory is that of
/// the other's first thread, for which the C library has none: it must not touch it any more, nor
/// return.
fn own_io_process(first: FirstThread) {
    signal_blocking::block_all();
    let sender = first.sender.clone();
    let mut stack = Vec::<u128>::with_capacity(STACK_BYTES / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    std::mem::forget(stack);
    let first = Box::into_raw(Box::new(first));
    let shared = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS;
    // SAFETY: the stack is the child's for good, aligned as it has to be; `lead` takes what it is
    // given; and this thread leaves to it what it shares with no other thread.
    let child = unsafe { libc::clone(io_process_main, top.cast(), shared, first.cast()) };
    if child < 0 {
        // SAFETY: no thread was started that would take it.
        drop(unsafe { Box::from_raw(first) });
        let why = Errno::from_io_error(&std::io::Error::last_os_error());
        let _ = sender.send(Err(why.unwrap_or(Errno::AGAIN)));
        return;
    }
    // The child has a sender of its own.
    std::mem::forget(sender);
    // There are no signals, but for those that stop.
    while raw_syscall(libc::SYS_wait4, [child as usize, 0, libc::__WALL as usize, 0])
        == interrupted()
    {}
    IO_PID.store(ENDED, SeqCst);
    let word = IO_PID.as_ptr() as usize;
    raw_syscall(libc::SYS_futex, [word, libc::FUTEX_WAKE as usize, i32::MAX as usize, 0]);
    loop {
        raw_syscall(libc::SYS_pause, [0; 4]);
    }
}

const fn interrupted() -> isize {
    -(libc::EINTR as isize)
}

/// A system call without errno.
fn raw_syscall(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the calls above read and write no memory but a word that stays.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b,
            in("rdx") c, in("r10") d, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Entry point of the process's first thread.
extern "C" fn io_process_main(first: *mut libc::c_void) -> libc::c_int {
    // SAFETY: as `keep` passes it, once.
    let FirstThread { io_process, sender } = *unsafe { Box::from_raw(first.cast::<FirstThread>()) };
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if std::os::unix::process::parent_id() != OWNER_PID.load(SeqCst) {
        // SAFETY: ends it without a trace.
        unsafe { libc::_exit(0) }
    }
    IO_PID.store(std::process::id() as i32, SeqCst);
    let _ = sender.send(Ok(()));
    drop(sender);
    loop {
        if let Some(bell) = io_process.bell() {
            let _ = poll(&mut [PollFd::new(&bell, PollFlags::IN)], None);
        }
        io_process.run_jobs();
    }
}

/// This process and that one, as names in proc(5).
pub(crate) fn proc_names() -> Vec<String> {
    match (pid(), OWNER_PID.load(SeqCst)) {
        (Some(process), owner) => vec![owner.to_string(), process.to_string()],
        _ => vec!["self".into()],
    }
}

/// Its number, if there is or was one.
fn pid_or_ended() -> Option<i32> {
    Some(IO_PID.load(SeqCst)).filter(|&process| process != 0)
}

/// The process beside this one, while it lives.
pub fn pid() -> Option<i32> {
    pid_or_ended().filter(|&process| process != ENDED)
}

/// Continues the process, in case a signal has stopped it together with this one.
pub(crate) fn resume() {
    // It is collected by a thread that says so.
    if let Some(process) = pid().and_then(Pid::from_raw) {
        let _ = kill_process(process, Signal::CONT);
    }
}

/// Ends it, and waits a moment for that. Its threads may hold locks, that of the memory allocator
/// among them: the caller must have nothing left to do but to end.
pub fn kill() {
    let Some(process) = pid() else { return };
    if let Some(process) = Pid::from_raw(process) {
        let _ = kill_process(process, Signal::KILL);
    }
    let until = Instant::now() + EXIT_TIMEOUT;
    while IO_PID.load(SeqCst) == process {
        let Some(rest) = until.checked_duration_since(Instant::now()) else { return };
        let rest =
            libc::timespec { tv_sec: rest.as_secs() as i64, tv_nsec: rest.subsec_nanos().into() };
        let word = IO_PID.as_ptr();
        // SAFETY: a word that stays, and a time that lives through the call.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, process, &rest) };
    }
}
