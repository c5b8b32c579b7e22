//! What a session has beside its command: the agent's file, the control socket, the threads.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use nix::libc;
use runahead_abi::agent_config::{FILTER_MAX, RUNNER_FILTER_MAX, TOKEN_BYTES};
use runahead_abi::overlay::Overlay;
use runahead_abi::{ABI_VERSION, AgentConfig};
use runahead_admission::degradations::Reasons;
use runahead_admission::process::shared_memory;
use runahead_admission::process::tsc_clock::Clock;
use runahead_admission::session_admission::Listener;
use runahead_admission::session_totals::Ledger;
use runahead_admission::single_spindle::SingleSpindle;
use runahead_admission::slow_devices::Waits;
use runahead_admission::{Common as Admission, Without, memory_budget};
use runahead_inject::{AgentFile, Layout, NotInjected};
use runahead_prefetch::{PrefetchStats, Prefetcher};
use runahead_speculation::Counts;
use rustix::io::Errno;

use crate::control_socket::{self, ControlSocket};
use crate::follow_policy::Unwatched;
use crate::inherited_descriptors::beyond_standard;
use crate::io_process::{self, Beside};
use crate::joined_processes::Members;
use crate::program_prefetch::Programs;
use crate::session_context::Common;
use crate::session_options::{Faults, Options};
use crate::session_stats::Totals;
use crate::shadow_sandbox;
use crate::swap_devices;
use crate::task_limits::Tasks;
use runahead_admission::mount_table::Mounts;
use runahead_history::session::History;

const STACK_BYTES: usize = 128 << 10;

/// Services that are made while the command starts.
pub(crate) struct Prepared {
    pub(crate) layout: Layout,
    listener: OwnedFd,
    token: [u8; TOKEN_BYTES],
    pub(crate) waits: Arc<Waits>,
    prefetcher: Option<Arc<Prefetcher>>,
    without: Without,
    has_servers: bool,
    beside: Option<Arc<Beside>>,
}

impl Prepared {
    /// Fills the agent's file, and opens the control socket where it will ask. Agents `tell` as
    /// much, `speculates` says whether their programs may, and they are of that try.
    pub(crate) fn new(
        file: &OwnedFd,
        clock: &Clock,
        faults: &Faults,
        (tell, speculates, overlay): (u64, bool, Overlay),
    ) -> Result<Self, NotInjected> {
        let unavailable = |why: &dyn std::fmt::Display| NotInjected::Unavailable(why.to_string());
        let address = control_socket::address();
        let opened = control_socket::open(&address).and_then(beyond_standard);
        let listener = opened.map_err(|e| {
            unavailable(&format!("a socket for the programs to ask at cannot be had ({e})"))
        })?;
        let token = control_socket::token()
            .map_err(|e| unavailable(&format!("there are no random numbers here ({e})")))?;
        raise_descriptor_limit();
        let mounts = Mounts::now();
        let has_servers = mounts.have_servers();
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
            socket_len: control_socket::address_len(&address) as u32,
            socket: address,
            token,
            ticks_per_us: 0,
            pkru_at: pkru_at().into(),
            beside_pid: 0,
            memory_devices: mounts.in_memory(),
            remote_devices: mounts.remote(),
            turning_devices: mounts.turning(),
            slow_devices: [0; _],
            unwatched: [0; _],
            plant: faults.plant(),
            panic_at: faults.panic_at,
            seed: faults.speculated.unwrap_or(0),
            landlock_fs: 0,
            landlock_net: 0,
            landlock_scoped: 0,
            landlock_size: 0,
            openings: 0,
            filter_len: 0,
            runner_filter_len: 0,
            filter: [0; FILTER_MAX],
            runner_filter: [0; RUNNER_FILTER_MAX],
            tell,
            without: faults.without.bits(),
            speculates: speculates.into(),
            swaps: swap_devices::are_worth_it().into(),
            overlay,
        };
        shadow_sandbox::prepare(&mut config, faults.landlock).map_err(|e| unavailable(&e))?;
        config.ticks_per_us = clock.ticks_per_us();
        let contents = AgentFile::new(config);
        let layout = contents.layout;
        let front = shared_memory::fill(file, &contents.front, contents.image).map_err(|e| {
            unavailable(&format!("memory to share with programs cannot be filled ({e})"))
        })?;
        let waits = Waits::new(front, config.ticks_per_us);
        if faults.keep_shadows {
            waits.expect();
        }
        let (waits, without) = (Arc::new(waits), faults.without);
        let (prefetcher, beside) = (None, None);
        Ok(Prepared { layout, listener, token, waits, prefetcher, without, has_servers, beside })
    }

    /// Handle of the I/O process. Making that process takes some 0.4 ms, so it is made on first
    /// use.
    pub(crate) fn beside(&mut self) -> Result<Arc<Beside>, Errno> {
        if let Some(beside) = &self.beside {
            return Ok(beside.clone());
        }
        let beside = if self.has_servers { Beside::start()? } else { Beside::nobody() };
        if let Some(process) = io_process::number() {
            self.waits.have_beside(process as u32);
        }
        Ok(self.beside.insert(beside).clone())
    }

    /// The prefetcher, without threads yet. When it is first asked for it takes some hundred
    /// microseconds to see how large it may be, which a command that starts need not wait for.
    pub(crate) fn prefetcher(&mut self) -> Arc<Prefetcher> {
        let prefetcher = self.prefetcher.get_or_insert_with(|| {
            let heard = self.waits.clone();
            let waited = move |device, time| heard.waited(device, time);
            let all = runahead_prefetch::Options::default();
            let max_in_flight = memory_budget::workers(all.max_in_flight);
            let bounds = runahead_prefetch::Options {
                max_in_flight,
                guesses: !self.without.guesses,
                sibling_directories: !self.without.siblings,
                lookup_patterns: !self.without.patterns,
                programs: !self.without.programs,
                ..all
            };
            let prefetcher = Arc::new(Prefetcher::new(bounds, waited));
            Tasks::default().look(&prefetcher);
            prefetcher
        });
        prefetcher.clone()
    }
}

/// The threads of a session.
pub(crate) struct Engine {
    layout: Layout,
    listener: OwnedFd,
    token: [u8; TOKEN_BYTES],
    file: OwnedFd,
    common: Arc<Common>,
    members: Arc<Members>,
}

/// An engine that runs.
pub(crate) struct Started {
    common: Arc<Common>,
    members: Arc<Members>,
    socket: Arc<ControlSocket>,
}

/// Results of services that have ended.
#[derive(Default)]
pub(crate) struct Stopped {
    pub(crate) totals: Totals,
    pub(crate) prefetch: PrefetchStats,
    /// Each measured device, and true if it serves one request at a time.
    pub(crate) measured: Vec<((u32, u32), bool)>,
    /// Programs that were followed.
    pub(crate) followed: u64,
    /// Counts of the programs' own predictions, if any were made.
    pub(crate) speculated: Option<Counts>,
}

impl Engine {
    pub(crate) fn new(
        mut prepared: Prepared,
        file: OwnedFd,
        degraded: &Arc<Reasons>,
        options: &Options,
        history: Option<Arc<History>>,
    ) -> Result<Self, Errno> {
        let faults = &options.faults;
        let (beside, prefetcher) = (prepared.beside()?, prepared.prefetcher());
        let Prepared { layout, listener, token, waits, .. } = prepared;
        let follow_all = history.as_ref().is_some_and(|history| history.follows_all())
            || faults.without.unwatched
            || options.held_apart.is_some();
        let &Faults { keep_shadows, without, .. } = faults;
        let tasks = Arc::new(Tasks::default());
        let learns = history.clone().map(|history| history as Arc<dyn Listener>);
        let admission = Arc::new(Admission {
            prefetcher,
            degraded: degraded.clone(),
            waits: waits.clone(),
            keep_shadows,
            without,
            ledger: Ledger::default(),
            sole: SingleSpindle::default(),
            room: tasks.clone(),
            listener: learns,
        });
        let common = Arc::new(Common {
            beside,
            admission,
            tasks,
            programs: Programs::default(),
            unwatched: Unwatched::new(waits, follow_all),
            history,
        });
        let members = Arc::new(Members::new(common.clone())?);
        Ok(Engine { layout, listener, token, file, common, members })
    }

    /// Descriptors that the services need.
    pub(crate) fn descriptors(&self) -> Vec<i32> {
        let members = self.members.descriptor();
        let bell = self.common.beside.bell().map(|bell| bell.as_raw_fd());
        let others = [self.listener.as_raw_fd(), self.file.as_raw_fd(), members];
        others.into_iter().chain(bell).collect()
    }

    /// `first` is the command's file, if it is to be brought in.
    pub(crate) fn start(self, first: Option<&Path>) -> Started {
        let Engine { layout, listener, token, file, common, members } = self;
        let watcher = members.clone();
        common.beside.lead(STACK_BYTES, move || watcher.watch());
        let degraded = common.admission.degraded.clone();
        let socket = ControlSocket::new((listener, token), members.clone(), file, layout, degraded);
        if let Some(path) = first {
            let (path, common) = (path.to_owned(), common.clone());
            let _ = common.beside.clone().spawn("first", STACK_BYTES, move || {
                let Some(device) = runahead_admission::mount_table::device(&path) else { return };
                common.programs.bring_in(&common.admission.prefetcher, &path, device);
            });
        }
        Started { common, members, socket }
    }
}

impl Started {
    /// Stops the services. Their threads are not waited for: they hold nothing that outlives this
    /// process, and some may be in reads that are no longer needed. `None`: the I/O process has
    /// ended already.
    pub(crate) fn stop(self) -> Option<Stopped> {
        let Started { common, members, socket } = self;
        let beside = common.beside.clone();
        io_process::go_on();
        // Whose hints are given up may bring in a thread for others.
        let ended = beside.ask(move || {
            common.programs.give_up();
            (
                members.end(),
                common.admission.prefetcher.stats(),
                common.admission.prefetcher.measured(),
            )
        });
        socket.close();
        let (totals, prefetch, measured) = ended?;
        let followed = socket.followed.load(Relaxed) as u64;
        let speculated = socket.speculated();
        Some(Stopped { totals, prefetch, measured, followed, speculated })
    }
}

/// True if user code may read its thread pointer with `rdfsbase` (AT_HWCAP2, asm/hwcap2.h).
#[cfg(target_arch = "x86_64")]
fn has_fsgsbase() -> bool {
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    // SAFETY: reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}

/// Value of [`AgentConfig::pkru_at`].
#[cfg(target_arch = "x86_64")]
fn pkru_at() -> u32 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    /// Bit of CPUID leaf 7: the kernel has switched protection keys on (OSPKE).
    const SWITCHED_ON: u32 = 1 << 4;
    /// The register's part of the state.
    const PART: u32 = 9;
    let has_keys = __cpuid(0).eax >= 0xd && __cpuid_count(7, 0).ecx & SWITCHED_ON != 0;
    if has_keys { __cpuid_count(0xd, PART).ebx } else { 0 }
}

/// Prefetches hold descriptors; the command has been started with the limit that it was given.
fn raise_descriptor_limit() {
    // Not by rustix, for which it cannot fail: a filter may forbid it.
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes `limit`.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: reads `limit`.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}
