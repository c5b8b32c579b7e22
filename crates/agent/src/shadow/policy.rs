//! The policy of a runner: answers each call itself, and makes none as it stands.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::RunEnd;
use runahead_client::disclosure::protocol::MAGIC;
use runahead_client::prediction::protocol::MAGIC as PREDICTS;
use runahead_estimators::Identity;

use super::path_pool::PathPool;
use super::runner::{CallAnswer, RUNNER, Runner, Stop};
use super::runner_children::{self, Children};
use super::shadow_descriptors::{self, Backing, Descriptor};
use super::{
    mapped_pages, planted_violations, return_hooks, sandbox, shadow_lifetime, suppressed_calls,
    target_mirror,
};
use crate::arch;
use crate::descriptor_names::{NAMES, TRACKED_DESCRIPTORS};
use crate::plane::policy::ProcessEvents;
use crate::plane::{self, AnyPolicy, Call, Interest, Policy, Verdict};
use crate::session::Session;
use crate::sys::{self, AT_FDCWD, Fd, nr};

/// Makes this process, a fork of a template, a runner.
pub(super) fn begin_run(
    session: &'static Session,
    sync: u32,
    run: u32,
    template: u32,
) -> sys::Result<()> {
    let status = session.shared().run(run);
    status.end.store(RunEnd::Running as u32, Relaxed);
    status.accesses.store(0, Relaxed);
    status.steering.store(0, Relaxed);
    status.choices.iter().for_each(|choice| choice.store(0, Relaxed));
    status.run.store(run, Relaxed);
    shadow_lifetime::die_with_parent(template)?;
    shadow_lifetime::run_when_idle();
    if !planted_violations::without_sandbox(session) {
        sandbox::restrict_runner(&session.config)?;
    }
    // SAFETY: a new process with one thread; no other reference exists.
    let (files, slot) = unsafe { (shadow_descriptors::table(), RUNNER.get()) };
    *slot = Some(Runner {
        session,
        sync,
        run,
        descriptors: files,
        paths: PathPool::new()?,
        cwd: (AT_FDCWD, NAMES.cwd()),
        accesses: 0,
        accesses_at_progress: 0,
        stack: 0,
        has_used_stale: false,
        resident_chunk: Identity::UNSET,
        copied_bytes: 0,
        children: Children::new(runner_children::target_children()),
    });
    arch::ask_after_returns(return_hooks::after_return);
    plane::set_policy(&RUNNER_POLICY)?;
    plane::start_in_shadow().map(|_| ())
}

/// The policy of a runner. It sees every call, and a call that it cannot answer ends the run.
struct RunnerPolicy;

impl ProcessEvents for RunnerPolicy {}

impl Policy for RunnerPolicy {
    fn interest(&self) -> Interest {
        Interest::Every
    }

    fn before(&self, call: &Call) -> Verdict {
        answer_call(call)
    }
}

static RUNNER_POLICY: AnyPolicy = AnyPolicy::Plain(&RunnerPolicy);

/// Answers a call of a runner, or ends the run.
pub fn answer_call(call: &Call) -> Verdict {
    // SAFETY: the armed thread of a runner, depth held by the plane: the only reference.
    let Some(runner) = (unsafe { RUNNER.get() }) else { sys::exit(1) };
    mapped_pages::IS_ANSWERING.store(true, Relaxed);
    if runner.session.shared().control.sync.load(Relaxed) != runner.sync {
        runner.end_run(RunEnd::Superseded);
    }
    runner.stack = call.stack;
    match runner.answer(call) {
        Ok(ret) => {
            mapped_pages::IS_ANSWERING.store(false, Relaxed);
            Verdict::answer(ret)
        }
        Err(Stop(why)) => runner.end_run(why),
    }
}

impl Runner {
    fn answer(&mut self, call: &Call) -> CallAnswer {
        if let Some(ret) = planted_violations::attempt(self.session, call) {
            return Ok(ret);
        }
        self.plant_rubbish()?;
        let a = &call.args;
        target_mirror::touch_arguments(a);
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
            nr::CREAT => Ok(self.open_sink()),
            nr::CLOSE => {
                Ok(if self.descriptors.close(call.fd(0)) { 0 } else { sys::fail(sys::EBADF) })
            }
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
            nr::GETDENTS64 => self.list_directory(call.fd(0), a[1], a[2]),
            nr::CHDIR => self.change_directory(a[0]),
            nr::FCHDIR => self.change_directory_fd(call.fd(0)),
            nr::MMAP => self.map(call),
            nr::FADVISE64 if call.fd(0) == MAGIC => self.disclose(call),
            nr::FADVISE64 if call.fd(0) == PREDICTS => self.answer_prediction(call),
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
            _ => suppressed_calls::answer(call, self.session.target_pid()),
        }
    }

    fn duplicate(&mut self, fd: Fd, from: usize) -> CallAnswer {
        let Some(&mut descriptor) = self.descriptors.get(fd) else {
            return Ok(sys::fail(sys::EBADF));
        };
        Ok(self.descriptors.open(from, descriptor).map_or(sys::fail(sys::EMFILE), i64::from))
    }

    fn duplicate_to(&mut self, fd: Fd, to: Fd) -> CallAnswer {
        let Some(&mut descriptor) = self.descriptors.get(fd) else {
            return Ok(sys::fail(sys::EBADF));
        };
        if fd != to {
            self.descriptors.close(to);
            if self.descriptors.replace(to, descriptor).is_none() {
                return Ok(sys::fail(sys::EBADF));
            }
        }
        Ok(to.into())
    }

    fn close_range(&mut self, first: u64, last: u64) -> CallAnswer {
        for fd in first..=last.min(TRACKED_DESCRIPTORS as u64 - 1) {
            self.descriptors.close(fd as Fd);
        }
        Ok(0)
    }

    fn fcntl(&mut self, fd: Fd, command: u32, arg: u64) -> CallAnswer {
        let Some(&mut Descriptor { backing: behind, .. }) = self.descriptors.get(fd) else {
            return Ok(sys::fail(sys::EBADF));
        };
        match command {
            k::F_DUPFD | k::F_DUPFD_CLOEXEC => self.duplicate(fd, arg as usize),
            k::F_GETFD => Ok(k::FD_CLOEXEC.into()),
            k::F_GETFL => {
                Ok(if behind == Backing::Sink { k::O_WRONLY } else { k::O_RDONLY }.into())
            }
            // Locks are answered as granted, and nothing is locked.
            _ => Ok(0),
        }
    }
}
