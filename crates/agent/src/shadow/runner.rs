//! A runner: the program's code, run ahead, each call answered here.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::{Identity, RunEnd, RunStatus};
use runahead_disclose::protocol::MAGIC;

use super::children::{self, Children};
use super::files::{self, Behind, Descriptor, Files};
use super::lookup::Texts;
use super::{planted, quiet, sandbox, template};
use crate::arch;
use crate::names::{NAMES, TRACKED};
use crate::owned::Owned;
use crate::plane::{self, Call, Interest, Verdict};
use crate::session::Session;
use crate::sys::{self, AT_FDCWD, Fd, nr};

/// Hints that may wait for a worker before runners pause.
const QUEUE_LIMIT: u32 = 1 << 14;
/// Pause between two looks at how far the target is, in microseconds.
const PAUSE_US: u64 = 300;
/// A horizon from here on is none.
const UNBOUNDED: u64 = 1 << 60;
/// Accesses that a runner makes at most without meeting anything new: led astray by a value, it may go in circles.
const DRY: u64 = 1024;
/// Accesses by which the target may pass a runner that has guessed nothing.
const BEHIND: u64 = 64;

/// The runner's memory of itself.
pub struct Runner {
    pub(super) session: &'static Session,
    pub(super) sync: u32,
    pub(super) run: u32,
    pub(super) files: &'static mut Files,
    pub(super) texts: Texts,
    /// The working directory: a real descriptor or `AT_FDCWD`, and its name.
    pub(super) cwd: (Fd, Identity),
    accesses: u64,
    /// How many of them there had been when something new was met last.
    pub(super) fruitful: u64,
    /// The program's stack pointer at the call at hand.
    pub(super) stack: u64,
    /// Something was missing in this run: what follows from it is not to be learned from.
    pub(super) stood_in: bool,
    /// The chunk of a file that was found in memory last, and whole.
    pub(super) resident: Identity,
    pub(super) children: Children,
}

static RUNNER: Owned<Option<Runner>> = Owned::new(None);

/// How a call is answered, or that it cannot be.
pub(super) type Answer = Result<i64, Stop>;

/// The run ends here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stop(pub RunEnd);

/// Makes this process, a fork of a template, a runner.
pub(super) fn begin(
    session: &'static Session,
    sync: u32,
    run: u32,
    template: u32,
) -> sys::Result<()> {
    let status = session.shared().run(run);
    status.end.store(RunEnd::Running as u32, Relaxed);
    status.call.store(0, Relaxed);
    status.accesses.store(0, Relaxed);
    status.steering.store(0, Relaxed);
    status.choices.iter().for_each(|choice| choice.store(0, Relaxed));
    status.pid.store(sys::getpid(), Relaxed);
    status.run.store(run, Relaxed);
    template::die_with(template)?;
    template::run_when_idle();
    if !planted::without_sandbox(session) {
        sandbox::restrict_runner(&session.config)?;
    }
    // SAFETY: a new process with one thread; nobody else holds these.
    let (files, slot) = unsafe { (files::table(), RUNNER.get()) };
    *slot = Some(Runner {
        session,
        sync,
        run,
        files,
        texts: Texts::new()?,
        cwd: (AT_FDCWD, NAMES.cwd()),
        accesses: 0,
        fruitful: 0,
        stack: 0,
        stood_in: false,
        resident: Identity::UNSET,
        children: Children::new(children::waited_for()),
    });
    arch::ask_after_returns(super::returns::after_return);
    plane::set_policy(policy, Interest::Every);
    plane::start_in_shadow().map(|_| ())
}

/// The policy of a runner.
pub fn policy(call: &Call) -> Verdict {
    // SAFETY: the armed thread of a runner, depth held by the plane: the only reference.
    let Some(runner) = (unsafe { RUNNER.get() }) else { sys::exit(1) };
    if runner.session.shared().control.sync.load(Relaxed) != runner.sync {
        runner.end(RunEnd::Superseded, call);
    }
    runner.stack = call.stack;
    match runner.answer(call) {
        Ok(ret) => Verdict::answer(ret),
        Err(Stop(why)) => runner.end(why, call),
    }
}

/// This runner cannot go on, wherever it is.
pub(super) fn end_at_fault(session: &'static Session, why: RunEnd) -> ! {
    // SAFETY: whatever was interrupted does not go on.
    match unsafe { RUNNER.get() } {
        Some(runner) if !runner.children.is_child() => {
            template::end(session.shared(), runner.run, why)
        }
        _ => sys::exit(0),
    }
}

impl Runner {
    fn end(&self, why: RunEnd, call: &Call) -> ! {
        if self.children.is_child() {
            // Its parent goes on.
            sys::exit(0);
        }
        self.status().call.store(call.nr as u32, Relaxed);
        template::end(self.session.shared(), self.run, why)
    }

    pub(super) fn status(&self) -> &'static RunStatus {
        self.session.shared().run(self.run)
    }

    /// One access that the target counts, too, unless it is a child's. Waits while the shadow is far enough ahead.
    pub(super) fn access(&mut self) -> Result<(), Stop> {
        if !self.children.is_child() {
            self.accesses += 1;
            self.status().accesses.store(self.accesses, Relaxed);
        } else if !self.children.may_access() {
            return Err(Stop(RunEnd::Call));
        }
        let control = &self.session.shared().control;
        // Who lifts the horizon lifts this with it.
        let bounded = control.horizon.load(Relaxed) < UNBOUNDED;
        if bounded && self.accesses > self.fruitful + DRY {
            return Err(Stop(RunEnd::Dry));
        }
        let steering = self.status().steering.load(Relaxed);
        loop {
            let since = control.accesses.load(Relaxed) - control.accesses_at_sync.load(Relaxed);
            if control.sync.load(Acquire) != self.sync {
                return Err(Stop(RunEnd::Superseded));
            }
            if steering == 0 && since > self.accesses + BEHIND {
                return Err(Stop(RunEnd::Overtaken));
            }
            let far = self.accesses > since + control.horizon.load(Relaxed)
                || control.queued.load(Relaxed) > QUEUE_LIMIT
                || control.bytes_ahead.load(Relaxed) > control.bytes_budget.load(Relaxed);
            let end = if far { RunEnd::Paused } else { RunEnd::Running };
            if self.status().end.load(Relaxed) != end as u32 {
                self.status().end.store(end as u32, Relaxed);
            }
            if !far {
                return Ok(());
            }
            let _ = sys::futex_wait(&self.status().run, self.run, Some(PAUSE_US));
        }
    }

    /// The access at hand leads to something new.
    pub(super) fn note_progress(&mut self) {
        self.fruitful = self.accesses;
    }

    /// It found what `key` names in memory.
    pub(super) fn meets(&mut self, key: Identity) {
        if self.session.shared().log.is_ahead(key) {
            self.note_progress();
        }
    }

    /// Where in the target's life the access at hand will come.
    pub(super) fn position(&self) -> u64 {
        self.session.shared().control.accesses_at_sync.load(Relaxed) + self.accesses
    }

    fn answer(&mut self, call: &Call) -> Answer {
        if let Some(ret) = planted::attempt(self.session, call) {
            return Ok(ret);
        }
        self.plant_rubbish()?;
        let a = &call.args;
        let here = AT_FDCWD;
        match call.nr {
            nr::READ => self.read(call.fd(0), a[1], a[2], None),
            nr::PREAD64 => self.read(call.fd(0), a[1], a[2], Some(a[3])),
            nr::READV => self.read_vector(call.fd(0), a[1], a[2], None),
            nr::PREADV => self.read_vector(call.fd(0), a[1], a[2], Some(a[3])),
            nr::PREADV2 if a[5] == 0 => {
                self.read_vector(call.fd(0), a[1], a[2], (a[3] != u64::MAX).then_some(a[3]))
            }
            nr::LSEEK => self.seek(call.fd(0), a[1] as i64, a[2] as u32),
            nr::OPEN => self.open(here, a[0], a[1] as u32),
            nr::OPENAT => self.open(call.fd(0), a[1], a[2] as u32),
            // SAFETY: struct open_how begins with the flags; a bad address ends the runner.
            nr::OPENAT2 => self.open(call.fd(0), a[1], unsafe { *(a[2] as *const u64) } as u32),
            nr::CREAT => Ok(self.sink()),
            nr::CLOSE => Ok(if self.files.close(call.fd(0)) { 0 } else { sys::fail(sys::EBADF) }),
            nr::CLOSE_RANGE => self.close_range(a[0], a[1]),
            nr::DUP => self.duplicate(call.fd(0), 0),
            nr::DUP2 | nr::DUP3 => self.duplicate_to(call.fd(0), call.fd(1)),
            nr::FCNTL => self.fcntl(call.fd(0), a[1] as u32, a[2]),
            nr::STAT => self.stat(here, a[0], a[1], 0),
            nr::LSTAT => self.stat(here, a[0], a[1], k::AT_SYMLINK_NOFOLLOW),
            nr::FSTAT => self.stat_fd(call.fd(0), a[1]),
            nr::NEWFSTATAT => self.stat(call.fd(0), a[1], a[2], a[3] as u32),
            nr::STATX => self.statx(call),
            nr::ACCESS => self.exists(here, a[0]),
            nr::FACCESSAT | nr::FACCESSAT2 => self.exists(call.fd(0), a[1]),
            nr::READLINK => self.read_link(here, a[0], a[1], a[2]),
            nr::READLINKAT => self.read_link(call.fd(0), a[1], a[2], a[3]),
            nr::GETDENTS64 => self.list(call.fd(0), a[1], a[2]),
            nr::CHDIR => self.change_directory(a[0]),
            nr::FCHDIR => self.change_directory_fd(call.fd(0)),
            nr::MMAP => self.map(call),
            nr::FADVISE64 if call.fd(0) == MAGIC => self.disclose(call),
            nr::FADVISE64 => self.advise(call.fd(0), a[1], a[2], a[3] as u32),
            nr::READAHEAD => self.advise(call.fd(0), a[1], a[2], k::POSIX_FADV_WILLNEED),
            nr::SENDFILE => self.transfer(call.fd(1), a[2], a[3]),
            nr::COPY_FILE_RANGE | nr::SPLICE => self.transfer(call.fd(0), a[1], a[4]),
            nr::FORK | nr::VFORK | nr::CLONE | nr::CLONE3 => self.fork(call),
            nr::EXECVE | nr::EXECVEAT => self.exec(call),
            nr::WAIT4 => self.wait4(a[0] as i32, a[1], a[3]),
            nr::WAITID => self.waitid(call),
            nr::PIPE | nr::PIPE2 => self.pipe(a[0]),
            nr::EXIT | nr::EXIT_GROUP => Err(Stop(RunEnd::Exit)),
            _ => quiet::answer(call, self.session.target_pid()),
        }
    }

    /// A new descriptor that takes output.
    pub(super) fn sink(&mut self) -> i64 {
        let sink = Descriptor::new(Behind::Sink, Identity::ROOT);
        self.files.open(0, sink).map_or(sys::fail(sys::EMFILE), i64::from)
    }

    fn duplicate(&mut self, fd: Fd, from: usize) -> Answer {
        let Some(&mut descriptor) = self.files.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        Ok(self.files.open(from, descriptor).map_or(sys::fail(sys::EMFILE), i64::from))
    }

    fn duplicate_to(&mut self, fd: Fd, to: Fd) -> Answer {
        let Some(&mut descriptor) = self.files.get(fd) else { return Ok(sys::fail(sys::EBADF)) };
        if fd != to {
            self.files.close(to);
            if self.files.replace(to, descriptor).is_none() {
                return Ok(sys::fail(sys::EBADF));
            }
        }
        Ok(to.into())
    }

    fn close_range(&mut self, first: u64, last: u64) -> Answer {
        for fd in first..=last.min(TRACKED as u64 - 1) {
            self.files.close(fd as Fd);
        }
        Ok(0)
    }

    fn fcntl(&mut self, fd: Fd, command: u32, arg: u64) -> Answer {
        let Some(&mut Descriptor { behind, .. }) = self.files.get(fd) else {
            return Ok(sys::fail(sys::EBADF));
        };
        match command {
            k::F_DUPFD | k::F_DUPFD_CLOEXEC => self.duplicate(fd, arg as usize),
            k::F_GETFD => Ok(k::FD_CLOEXEC.into()),
            k::F_GETFL => Ok(if behind == Behind::Sink { k::O_WRONLY } else { k::O_RDONLY }.into()),
            // Locks are answered as granted, and nothing is locked.
            _ => Ok(0),
        }
    }
}
