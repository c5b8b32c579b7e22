//! One command under runahead, from start to end.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use runahead_abi::config::{FILTER_MAX, RUNNER_FILTER_MAX, plant};
use runahead_abi::{ABI_VERSION, AgentConfig};
use runahead_inject::{Command, Image, LaunchError, Layout, NotInjected, launch};
use runahead_prefetch::{Client, PrefetchStats, Prefetcher};

use crate::desk::{self, Desk};
use crate::losses::Losses;
use crate::members::{self, Members};
use crate::stats::{Stats, Totals};
use crate::{budget, descriptors, first, limits, memory, mounts, sandbox, signals};

/// How often orphans are collected, in milliseconds.
const ORPHANS_MS: u16 = 500;

/// How a session is to run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Do not run the command at all if the agent cannot be put into it.
    pub require: bool,
    /// What this process holds on to once the command runs.
    pub keep: Keep,
    /// Faults to plant, for tests.
    pub faults: Faults,
}

/// Descriptors that are kept while the command runs; see [`descriptors`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keep {
    /// All of them, for callers with a life of their own.
    #[default]
    All,
    /// Standard error.
    Stderr,
    /// None.
    Nothing,
}

/// Violations that tests plant to see them caught.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Runners really try the effects that they otherwise pretend.
    pub plant_effects: bool,
    /// Runners make the calls that the program marks as they stand (see the agent's
    /// `shadow/planted.rs`).
    pub plant_marked: bool,
    /// With `plant_marked`: in shadows without any sandbox, which keep all that the target has.
    pub no_sandbox: bool,
    /// The agent panics at this access of the target; 0 is never.
    pub panic_at: u64,
}

impl Faults {
    /// As the agent is told.
    fn plant(&self) -> u64 {
        match (self.plant_marked, self.no_sandbox) {
            (true, true) => plant::UNGUARDED,
            (true, false) => plant::MARKED,
            (false, _) if self.plant_effects => plant::EFFECTS,
            (false, _) => 0,
        }
    }
}

/// How a command ended, as wait(2) tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

/// Why there was no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The command did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// It had better be executed in the place of this process, for lack of others.
    #[error("not run beside this process: {0}")]
    Alone(String),
}

/// Runs `command` to its end.
///
/// `warn` is told, once and before the command starts to wait, why it runs natively if it does.
/// The calling process must have one thread.
pub fn run(
    command: &Command,
    options: &Options,
    warn: impl FnOnce(&str),
) -> Result<(Ended, Stats), SessionError> {
    let clock = Clock::start();
    if let Some(why) = limits::too_few_processes(None) {
        return Err(SessionError::Alone(why));
    }
    let losses = Arc::new(Losses::default());
    let file = agent_file();
    let started = Instant::now();
    let mut prepared = None;
    let launched = launch(command, file.as_ref(), options.require, |file| {
        signals::ignore_file_limit();
        let ready = Prepared::new(file, &clock, &options.faults)?;
        let layout = ready.layout;
        prepared = Some(ready);
        Ok(layout)
    })?;
    signals::pass_to(launched.pid);
    let native = launched.native.map(|why| why.to_string());
    if let Some(why) = &native {
        warn(why);
    }
    let engine = match (&native, prepared, file) {
        (None, Some(prepared), Ok(file)) => match Engine::new(prepared, file, &losses) {
            Ok(engine) => Some(engine),
            Err(errno) => {
                losses.count(format!("no process could join ({errno})"));
                None
            }
        },
        _ => None,
    };
    if options.keep != Keep::All {
        let ours = engine.as_ref().map(Engine::descriptors).unwrap_or_default();
        descriptors::give_up(options.keep == Keep::Stderr, &ours);
    }
    let first = (native.is_none() && first::is_cold(&launched.path, started.elapsed()))
        .then_some(launched.path.as_path());
    let engine = engine.map(|engine| engine.start(first));
    let ended = match launched.ended {
        Some(status) => from_wait(status),
        None => wait_for(launched.pid),
    };
    signals::stop_passing();
    let elapsed = started.elapsed();
    let (totals, prefetch, followed) = engine.map(|e| e.stop()).unwrap_or_default();
    let per_us = clock.ticks_per_us();
    let lost = losses.all();
    let stats = Stats::new(&totals, &prefetch, elapsed, per_us, 1 + followed, native, lost);
    Ok((ended, stats))
}

/// The file for the agent, or why there is to be none.
fn agent_file() -> Result<OwnedFd, NotInjected> {
    if let Some(why) = limits::too_narrow(None) {
        return Err(NotInjected::Unavailable(why));
    }
    memory::agent_file().map_err(|errno| {
        let what = format!("memory to share with programs cannot be had ({errno})");
        NotInjected::Unavailable(what)
    })
}

/// What is made while the command starts.
struct Prepared {
    layout: Layout,
    listener: OwnedFd,
}

impl Prepared {
    /// Fills the agent's file, and opens the desk where it will ask.
    fn new(file: &OwnedFd, clock: &Clock, faults: &Faults) -> Result<Self, NotInjected> {
        let unavailable = |why: &dyn std::fmt::Display| NotInjected::Unavailable(why.to_string());
        let address = desk::address();
        let listener = desk::open(&address).map_err(|e| {
            unavailable(&format!("a socket for the programs to ask at cannot be had ({e})"))
        })?;
        let mut config = AgentConfig {
            version: ABI_VERSION,
            has_fsgsbase: has_fsgsbase().into(),
            relocations_at: 0,
            relocations: 0,
            image_at: 0,
            text_at: 0,
            text_len: 0,
            total_len: 0,
            supervisor_pid: std::process::id(),
            desk_len: desk::address_len(&address) as u32,
            desk: address,
            ticks_per_us: 0,
            memory_devices: mounts::in_memory(),
            plant: faults.plant(),
            panic_at: faults.panic_at,
            landlock_fs: 0,
            landlock_net: 0,
            landlock_scoped: 0,
            landlock_size: 0,
            filter_len: 0,
            runner_filter_len: 0,
            filter: [0; FILTER_MAX],
            runner_filter: [0; RUNNER_FILTER_MAX],
        };
        sandbox::prepare(&mut config).map_err(|e| unavailable(&e))?;
        let image = Image::embedded().map_err(|e| unavailable(&e))?;
        config.ticks_per_us = clock.ticks_per_us();
        let (layout, contents) = image.file(config);
        memory::fill(file, &contents).map_err(|e| {
            unavailable(&format!("memory to share with programs cannot be filled ({e})"))
        })?;
        Ok(Prepared { layout, listener })
    }
}

/// The threads of a session.
struct Engine {
    prepared: Prepared,
    file: OwnedFd,
    prefetcher: Arc<Prefetcher>,
    members: Arc<Members>,
    losses: Arc<Losses>,
}

/// An engine that runs.
struct Started {
    prefetcher: Arc<Prefetcher>,
    members: Arc<Members>,
    desk: Arc<Desk>,
    /// While it is there, what the first program needs is brought in.
    _first: Option<Client>,
}

impl Engine {
    fn new(prepared: Prepared, file: OwnedFd, losses: &Arc<Losses>) -> Result<Self, Errno> {
        raise_descriptor_limit();
        let prefetcher = Arc::new(Prefetcher::new(Default::default()));
        let members = Members::new(prefetcher.clone(), losses.clone())?;
        let (members, losses) = (Arc::new(members), losses.clone());
        Ok(Engine { prepared, file, prefetcher, members, losses })
    }

    /// Those that it needs.
    fn descriptors(&self) -> Vec<i32> {
        let members = self.members.descriptor();
        vec![self.prepared.listener.as_raw_fd(), self.file.as_raw_fd(), members]
    }

    /// `first` is the command's file, if it is to be brought in.
    fn start(self, first: Option<&Path>) -> Started {
        let Engine { prepared, file, prefetcher, members, losses } = self;
        let watcher = members.clone();
        // Without this thread shadows outlive their targets by a tenth of a second.
        let started = std::thread::Builder::new().name("watcher".into()).spawn(move || {
            signals::block_all();
            watcher.set_budget(budget::bytes());
            watcher.watch();
        });
        if started.is_err() {
            losses.count("no thread could be started to watch over processes");
        }
        let desk = Desk::new(prepared.listener, members.clone(), file, prepared.layout, losses);
        let _first = first.and_then(|path| first::bring_in(&prefetcher, path));
        Started { prefetcher, members, desk, _first }
    }
}

impl Started {
    /// The threads are not waited for: they hold nothing that outlives this process, which is about
    /// to end, and some may be in reads that nobody needs any more.
    fn stop(self) -> (Totals, PrefetchStats, u64) {
        let followed = self.desk.followed.load(Relaxed) as u64;
        (self.members.end(), self.prefetcher.stats(), followed)
    }
}

/// Waits for the command, and for it alone: a wait for any child would take away what clerks, who
/// trace the command when it execs, are waiting for.
fn wait_for(command: Pid) -> Ended {
    let orphans = std::process::id() == 1;
    if let Ok(ends) = members::pidfd_open(command) {
        let mut ends = [PollFd::new(ends.as_fd(), PollFlags::POLLIN)];
        loop {
            let patience = if orphans { ORPHANS_MS.into() } else { PollTimeout::NONE };
            match poll(&mut ends, patience) {
                Ok(0) => collect_orphans(command),
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
    }
    loop {
        match waitpid(command, None) {
            Ok(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) => {
                return from_wait(status);
            }
            // Somebody else collected it: nothing is known but that it is over.
            Err(Errno::ECHILD) => return Ended::Exited(0),
            _ => {}
        }
    }
}

/// As the first process of a container we have to collect those whose parents have ended.
fn collect_orphans(command: Pid) {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) =
        waitid(Id::All, look | WaitPidFlag::__WALL)
    {
        if pid == command || waitpid(pid, Some(WaitPidFlag::__WALL)).is_err() {
            return;
        }
    }
}

fn from_wait(status: WaitStatus) -> Ended {
    match status {
        WaitStatus::Signaled(_, signal, _) => Ended::Signaled(signal as i32),
        WaitStatus::Exited(_, code) => Ended::Exited(code),
        _ => Ended::Exited(0),
    }
}

/// Relates the time-stamp counter to time.
struct Clock {
    ticks: u64,
    at: Instant,
}

impl Clock {
    fn start() -> Self {
        Clock { ticks: ticks(), at: Instant::now() }
    }

    /// Good to a percent, which is more than its use for thresholds needs; better at the end of a
    /// session.
    fn ticks_per_us(&self) -> u64 {
        const ENOUGH: Duration = Duration::from_micros(20);
        while self.at.elapsed() < ENOUGH {
            std::hint::spin_loop();
        }
        let (ticks, elapsed) = (ticks() - self.ticks, self.at.elapsed());
        (u128::from(ticks) * 1000 / elapsed.as_nanos().max(1)).max(1) as u64
    }
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether user code may read its thread pointer with `rdfsbase` (AT_HWCAP2, asm/hwcap2.h).
#[cfg(target_arch = "x86_64")]
fn has_fsgsbase() -> bool {
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    // SAFETY: reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}

/// Prefetches hold descriptors; the command has been started with the limit that it was given.
fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
