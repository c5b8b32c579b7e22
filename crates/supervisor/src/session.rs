//! One command under runahead, from start to end.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use runahead_abi::config::FILTER_MAX;
use runahead_abi::{ABI_VERSION, AgentConfig, Shared};
use runahead_inject::{Command, Image, LaunchError, NotInjected, launch};
use runahead_prefetch::{PrefetchStats, Prefetcher};

use crate::dispatcher::{Dispatcher, Progress};
use crate::memory::SharedMemory;
use crate::shadows::{self, Collected, Waited};
use crate::stats::Stats;
use crate::{descriptors, sandbox, signals};

/// Accesses that a shadow may be ahead of the target.
const HORIZON: u64 = 1 << 16;
/// Part of the memory that is available which may hold what was prefetched and not used yet.
const MEMORY_SHARE: u64 = 8;

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
    /// The agent panics at this access of the target; 0 is never.
    pub panic_at: u64,
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
    /// There is nothing to share with an agent.
    #[error("memory to share with the command cannot be had: {0}")]
    Memory(nix::errno::Errno),
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
    let memory = SharedMemory::new().map_err(SessionError::Memory)?;
    let shared = memory.get();
    let started = Instant::now();
    let launched = launch(command, memory.as_fd(), options.require, || {
        prepare(shared, &clock, &options.faults)
    })?;
    signals::pass_to(launched.pid);
    let native = launched.native.map(|why| why.to_string());
    if let Some(why) = &native {
        warn(why);
    }
    // Closes the file, which is mapped, while its number is still its own.
    drop(memory);
    if options.keep != Keep::All {
        descriptors::give_up(options.keep == Keep::Stderr);
    }
    let engine = native.is_none().then(|| Engine::start(shared, launched.pid));

    let mut collected = Collected::default();
    let ended = match launched.ended {
        Some(status) => from_wait(status),
        None => wait_for(launched.pid, shared, &mut collected),
    };
    signals::stop_passing();
    let elapsed = started.elapsed();
    let prefetch = engine.map(|e| e.stop(launched.pid, &mut collected)).unwrap_or_default();
    let stats =
        Stats::collect(shared, &prefetch, &collected, elapsed, clock.ticks_per_us(), native);
    Ok((ended, stats))
}

/// What the agent is and is told; made while the command starts.
fn prepare(
    shared: &Shared,
    clock: &Clock,
    faults: &Faults,
) -> Result<(Image, AgentConfig), NotInjected> {
    let control = &shared.control;
    control.version.store(ABI_VERSION, Relaxed);
    control.horizon.store(HORIZON, Relaxed);
    let unavailable = |why: String| NotInjected::Unavailable(why);
    let mut config = AgentConfig {
        version: ABI_VERSION,
        shared_fd: -1,
        image: 0,
        image_len: 0,
        text: 0,
        text_len: 0,
        supervisor_pid: std::process::id(),
        has_fsgsbase: has_fsgsbase().into(),
        ticks_per_us: 0,
        plant: faults.plant_effects.into(),
        panic_at: faults.panic_at,
        landlock_fs: 0,
        landlock_net: 0,
        landlock_scoped: 0,
        landlock_size: 0,
        filter_len: 0,
        runner_filter_len: 0,
        filter: [0; FILTER_MAX],
        runner_filter: [0; 16],
    };
    sandbox::prepare(&mut config).map_err(|e| unavailable(e.to_string()))?;
    let image = Image::embedded().map_err(|e| unavailable(e.to_string()))?;
    config.ticks_per_us = clock.ticks_per_us();
    Ok((image, config))
}

/// The threads of a session.
struct Engine {
    shared: &'static Shared,
    prefetcher: Arc<Prefetcher>,
    stop: Arc<AtomicBool>,
}

impl Engine {
    fn start(shared: &'static Shared, command: Pid) -> Self {
        raise_descriptor_limit();
        let progress = Arc::new(Progress::new(shared));
        let prefetcher = Arc::new(Prefetcher::new(progress.clone(), Default::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let dispatcher =
            Dispatcher::new(shared, prefetcher.clone(), progress, stop.clone(), command);
        // Without this thread the rings fill up and the command runs as it would alone.
        let _ = std::thread::Builder::new().name("dispatcher".into()).spawn(move || {
            signals::block_all();
            let budget = available_memory() / MEMORY_SHARE;
            shared.control.bytes_budget.store(budget, Relaxed);
            dispatcher.run();
        });
        Engine { shared, prefetcher, stop }
    }

    fn stop(self, command: Pid, collected: &mut Collected) -> PrefetchStats {
        self.shared.control.sync.fetch_add(1, SeqCst);
        shadows::end_all(self.shared, command, collected);
        // The threads are not waited for: they hold nothing that outlives this process, which is
        // about to end, and some may be in reads that nobody needs any more.
        self.stop.store(true, Release);
        self.prefetcher.stats()
    }
}

fn wait_for(command: Pid, shared: &Shared, collected: &mut Collected) -> Ended {
    loop {
        match shadows::wait(command, shared, collected, 0) {
            Waited::Command(status) if libc::WIFSIGNALED(status) => {
                return Ended::Signaled(libc::WTERMSIG(status));
            }
            Waited::Command(status) => return Ended::Exited(libc::WEXITSTATUS(status)),
            // Somebody else collected it: nothing is known but that it is over.
            Waited::NoChildren => return Ended::Exited(0),
            Waited::Shadow | Waited::Nobody => {}
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

/// `MemAvailable` of proc_meminfo(5), in bytes; a gigabyte if it cannot be read.
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")).and_then(|n| n.trim().parse().ok());
    kib.map_or(1 << 30, |k: u64| k << 10)
}
