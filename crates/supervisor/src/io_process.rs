//! I/O process: a second process does everything that may wait for storage.
//!
//! A file server that does not answer holds the thread that asked it in the kernel, where not even
//! SIGKILL reaches it. A process ends only when its last thread has. So the supervisor, for which
//! its parent waits, has no such threads. They belong to the I/O process, which shares its memory
//! and its descriptors (clone(2), `CLONE_VM` and `CLONE_FILES`). To the code both are threads of
//! one process: locks, channels and descriptors are common. The I/O process dies with the
//! supervisor. If it cannot die at once, it is not waited for.
//!
//! The supervisor keeps what depends on the PID: it is the parent of the command, traces it and
//! gets its signals. Shadows watch that both processes live, since the I/O process keeps them
//! within bounds.

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
use runahead_admission::mount_table::LocalFilesystems;

/// Longest wait for an answer, which usually takes some 20 µs. A signal may have stopped the
/// process.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for the process's end: longer than reads that do finish take.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 256 << 10;

/// PID of the I/O process: 0 not started, [`ENDED`] exited.
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
    local: LocalFilesystems,
}

impl IoProcess {
    /// Makes a handle without an I/O process: the calling process does its work.
    pub fn in_this_process() -> Arc<Self> {
        IoProcess::with_bell(None)
    }

    fn with_bell(bell: Option<OwnedFd>) -> Arc<Self> {
        Arc::new(IoProcess { bell, jobs: Mutex::default(), local: LocalFilesystems::default() })
    }

    /// Starts the I/O process; a program has at most one. The caller's signals must be blocked.
    pub(crate) fn start() -> Result<Arc<Self>, Errno> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let io_process = IoProcess::with_bell(Some(beyond_standard(bell)?));
        let (sender, receiver) = channel();
        OWNER_PID.store(std::process::id(), SeqCst);
        let first = FirstThread { io_process: io_process.clone(), sender };
        let owner_thread = Builder::new().name("runahead-beside".into()).stack_size(64 << 10);
        owner_thread.spawn(move || own_io_process(first)).map_err(|_| Errno::AGAIN)?;
        // The sender is dropped if the process ends at once.
        receiver.recv_timeout(ANSWER_TIMEOUT).unwrap_or(Err(Errno::SRCH))?;
        Ok(io_process)
    }

    /// Descriptor that becomes readable when there are jobs; the first thread then calls
    /// [`Self::run_jobs`].
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(AsFd::as_fd)
    }

    /// Has the first thread of the I/O process do `job`, which must not wait for storage.
    pub(crate) fn post(&self, job: impl FnOnce() + Send + 'static) {
        let Some(bell) = &self.bell else { return job() };
        self.jobs().push_back(Box::new(job));
        let _ = write(bell, &1u64.to_ne_bytes());
    }

    /// Has the first thread do `work`, which does not return, and must [run other
    /// jobs](Self::run_jobs) itself.
    pub(crate) fn run_forever(&self, stack_bytes: usize, work: impl FnOnce() + Send + 'static) {
        match &self.bell {
            Some(_) => self.post(work),
            // Without this thread the session continues; exits are noticed later.
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

    /// Starts a thread in the I/O process.
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

    /// Calls [`exec_file::examine`]: in the I/O process if the file lies on a file server.
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
        // Without a timeout: it takes as long as the server does.
        started.ok().and_then(|()| receiver.recv().ok()).unwrap_or(ExecFile::Other)
    }

    /// Runs all jobs that are queued. Called in the I/O process.
    pub(crate) fn run_jobs(&self) {
        if let Some(bell) = &self.bell {
            let _ = read(bell, &mut [0; size_of::<u64>()]);
        }
        loop {
            // Taken before the call, since the lock must not be held meanwhile: one job never
            // returns, and runs the others from here.
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

/// Thread that is the parent of the I/O process. From the clone on, the child's first thread uses
/// the thread-local memory of this one, since the C library has none for it. So this thread must
/// not touch that memory any more, nor return.
fn own_io_process(first: FirstThread) {
    signal_blocking::block_all();
    let sender = first.sender.clone();
    let mut stack = Vec::<u128>::with_capacity(STACK_BYTES / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    std::mem::forget(stack);
    let first = Box::into_raw(Box::new(first));
    let shared = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS;
    // SAFETY: the stack is the child's for good, and aligned. `io_process_main` takes the pointer
    // that it gets. This thread leaves to the child what it shares with no other thread.
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
    // All signals are blocked except SIGSTOP.
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

/// Makes a system call without touching errno, which is thread-local.
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
    // SAFETY: the pointer comes from `own_io_process`, once.
    let FirstThread { io_process, sender } = *unsafe { Box::from_raw(first.cast::<FirstThread>()) };
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if std::os::unix::process::parent_id() != OWNER_PID.load(SeqCst) {
        // SAFETY: ends the process without running exit handlers.
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

/// Names of the supervisor and the I/O process in proc(5).
pub(crate) fn proc_names() -> Vec<String> {
    match (pid(), OWNER_PID.load(SeqCst)) {
        (Some(process), owner) => vec![owner.to_string(), process.to_string()],
        _ => vec!["self".into()],
    }
}

/// PID of the I/O process, or [`ENDED`]; `None` if it was never started.
fn pid_or_ended() -> Option<i32> {
    Some(IO_PID.load(SeqCst)).filter(|&process| process != 0)
}

/// PID of the I/O process while it lives.
pub fn pid() -> Option<i32> {
    pid_or_ended().filter(|&process| process != ENDED)
}

/// Continues the process, in case a signal has stopped it together with this one.
pub(crate) fn resume() {
    // The PID is not reused meanwhile: the thread that collects the process sets it to [`ENDED`].
    if let Some(process) = pid().and_then(Pid::from_raw) {
        let _ = kill_process(process, Signal::CONT);
    }
}

/// Kills the I/O process, and waits at most [`EXIT_TIMEOUT`] for its end. Its threads may hold
/// locks, that of the memory allocator among them, so the caller must do nothing afterwards but
/// exit.
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
