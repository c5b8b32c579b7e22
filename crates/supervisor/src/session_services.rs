//! Services of a session: the agent's file, the control socket, the I/O process and its threads.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use nix::libc;
use runahead_abi::agent_config::{FILTER_MAX, RUNNER_FILTER_MAX, TOKEN_BYTES};
use runahead_abi::overlay::Overlay;
use runahead_abi::{ABI_VERSION, AgentConfig};
use runahead_admission::degradation_counts::ReasonCounts;
use runahead_admission::process::shared_memory;
use runahead_admission::process::tsc_clock::Clock;
use runahead_admission::session_admission::RecordListener;
use runahead_admission::session_totals::SessionTotals;
use runahead_admission::single_spindle::SingleSpindle;
use runahead_admission::slow_devices::DeviceWaits;
use runahead_admission::{SessionAdmission as Admission, Without, memory_budget};
use runahead_inject::{AgentFile, Layout};
use runahead_prefetch::{PrefetchStats, Prefetcher};
use runahead_speculation::Counts;
use rustix::io::Errno;

use crate::agent_unavailable::AgentUnavailable;
use crate::control_socket::{self, ControlSocket};
use crate::follow_policy::FollowPolicy;
use crate::inherited_descriptors::beyond_standard;
use crate::io_process::{self, IoProcess};
use crate::joined_processes::JoinedProcesses;
use crate::program_prefetch::ProgramPrefetch;
use crate::session_context::SessionContext;
use crate::session_options::{Faults, Options};
use crate::session_stats::Totals;
use crate::shadow_sandbox;
use crate::swap_devices;
use crate::task_limits::TaskLimits;
use runahead_admission::mount_table::Mounts;
use runahead_history::session::History;

const STACK_BYTES: usize = 128 << 10;

/// Services that are made while the command executes.
pub(crate) struct PreparedSession {
    pub(crate) layout: Layout,
    listener: OwnedFd,
    token: [u8; TOKEN_BYTES],
    pub(crate) waits: Arc<DeviceWaits>,
    prefetcher: Option<Arc<Prefetcher>>,
    without: Without,
    has_servers: bool,
    io_process: Option<Arc<IoProcess>>,
}

impl PreparedSession {
    /// Fills the agent's file and opens the control socket. The agents' configuration gets how much
    /// they report (`tell`), true if their programs may speculate, and the overlay of their try.
    pub(crate) fn new(
        file: &OwnedFd,
        clock: &Clock,
        faults: &Faults,
        (tell, speculates, overlay): (u64, bool, Overlay),
    ) -> Result<Self, AgentUnavailable> {
        let address = control_socket::new_address();
        let opened = control_socket::open_listener(&address).and_then(beyond_standard);
        let listener = opened.map_err(AgentUnavailable::ControlSocket)?;
        let token = control_socket::new_token().map_err(AgentUnavailable::Token)?;
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
            io_process_pid: 0,
            memory_devices: mounts.in_memory(),
            remote_devices: mounts.remote(),
            rotational_devices: mounts.rotational_devices(),
            slow_devices: [0; _],
            follow_filter: [0; _],
            plant: faults.plant_code(),
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
            swaps: swap_devices::any_worth_prefetching().into(),
            overlay,
        };
        shadow_sandbox::fill_config(&mut config, faults.landlock)?;
        config.ticks_per_us = clock.tick_rate().ticks_per_us();
        let contents = AgentFile::new(config);
        let layout = contents.layout;
        let front = shared_memory::fill(file, &contents.front, contents.image)
            .map_err(AgentUnavailable::FileContents)?;
        let waits = DeviceWaits::new(front, config.tick_rate());
        if faults.keep_shadows {
            waits.expect();
        }
        let (waits, without) = (Arc::new(waits), faults.without);
        let (prefetcher, io_process) = (None, None);
        Ok(PreparedSession {
            layout,
            listener,
            token,
            waits,
            prefetcher,
            without,
            has_servers,
            io_process,
        })
    }

    /// Handle of the I/O process. Making that process takes some 0.4 ms, so it is made on first
    /// use.
    pub(crate) fn io_process(&mut self) -> Result<Arc<IoProcess>, Errno> {
        if let Some(io_process) = &self.io_process {
            return Ok(io_process.clone());
        }
        let io_process =
            if self.has_servers { IoProcess::start()? } else { IoProcess::in_this_process() };
        if let Some(process) = io_process::pid() {
            self.waits.set_io_process(process as u32);
        }
        Ok(self.io_process.insert(io_process).clone())
    }

    /// Prefetcher, without threads yet. It is made on first use: finding its memory budget takes
    /// some hundred microseconds, for which a starting command need not wait.
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
            TaskLimits::default().apply(&prefetcher);
            prefetcher
        });
        prefetcher.clone()
    }
}

/// Services whose threads have not started.
pub(crate) struct SessionServices {
    layout: Layout,
    listener: OwnedFd,
    token: [u8; TOKEN_BYTES],
    file: OwnedFd,
    common: Arc<SessionContext>,
    joined: Arc<JoinedProcesses>,
}

/// Services that run.
pub(crate) struct RunningServices {
    common: Arc<SessionContext>,
    joined: Arc<JoinedProcesses>,
    socket: Arc<ControlSocket>,
}

/// Results of services that have ended.
#[derive(Default)]
pub(crate) struct SessionResults {
    pub(crate) totals: Totals,
    pub(crate) prefetch: PrefetchStats,
    /// Each measured device, and true if it serves one request at a time.
    pub(crate) measured: Vec<((u32, u32), bool)>,
    /// Number of programs that were followed.
    pub(crate) followed: u64,
    /// Counts of the programs' own predictions, if any were made.
    pub(crate) speculations: Option<Counts>,
}

impl SessionServices {
    pub(crate) fn new(
        mut prepared: PreparedSession,
        file: OwnedFd,
        degraded: &Arc<ReasonCounts>,
        options: &Options,
        history: Option<Arc<History>>,
    ) -> Result<Self, Errno> {
        let faults = &options.faults;
        let (io_process, prefetcher) = (prepared.io_process()?, prepared.prefetcher());
        let PreparedSession { layout, listener, token, waits, .. } = prepared;
        let follow_all = history.as_ref().is_some_and(|history| history.follows_all())
            || faults.without.unwatched
            || options.isolation.is_some();
        let &Faults { keep_shadows, without, .. } = faults;
        let task_limits = Arc::new(TaskLimits::default());
        let learns = history.clone().map(|history| history as Arc<dyn RecordListener>);
        let admission = Arc::new(Admission {
            prefetcher,
            degraded: degraded.clone(),
            waits: waits.clone(),
            keep_shadows,
            without,
            ledger: SessionTotals::default(),
            single_spindle: SingleSpindle::default(),
            room: task_limits.clone(),
            listener: learns,
        });
        let common = Arc::new(SessionContext {
            io_process,
            admission,
            task_limits,
            program_prefetch: ProgramPrefetch::default(),
            follow_policy: FollowPolicy::new(waits, follow_all),
            history,
        });
        let joined = Arc::new(JoinedProcesses::new(common.clone())?);
        Ok(SessionServices { layout, listener, token, file, common, joined })
    }

    /// Descriptors that the services need.
    pub(crate) fn descriptors(&self) -> Vec<i32> {
        let joined = self.joined.descriptor();
        let bell = self.common.io_process.bell().map(|bell| bell.as_raw_fd());
        let others = [self.listener.as_raw_fd(), self.file.as_raw_fd(), joined];
        others.into_iter().chain(bell).collect()
    }

    /// Starts the threads. `first` is the command's file if it is to be prefetched.
    pub(crate) fn start(self, first: Option<&Path>) -> RunningServices {
        let SessionServices { layout, listener, token, file, common, joined } = self;
        let watcher = joined.clone();
        common.io_process.run_forever(STACK_BYTES, move || watcher.watch());
        let degraded = common.admission.degraded.clone();
        let socket = ControlSocket::new((listener, token), joined.clone(), file, layout, degraded);
        if let Some(path) = first {
            let (path, common) = (path.to_owned(), common.clone());
            let _ = common.io_process.clone().spawn("first", STACK_BYTES, move || {
                let Some(device) = runahead_admission::mount_table::device(&path) else { return };
                common.program_prefetch.prefetch(&common.admission.prefetcher, &path, device);
            });
        }
        RunningServices { common, joined, socket }
    }
}

impl RunningServices {
    /// Stops the services. Their threads are not waited for: they hold nothing that outlives this
    /// process, and some may be in reads that are no longer needed. `None`: the I/O process has
    /// ended already.
    pub(crate) fn stop(self) -> Option<SessionResults> {
        let RunningServices { common, joined, socket } = self;
        let io_process = common.io_process.clone();
        io_process::resume();
        // The hints of an ended process may free a worker for those of another.
        let ended = io_process.call(move || {
            common.program_prefetch.cancel();
            (
                joined.end(),
                common.admission.prefetcher.stats(),
                common.admission.prefetcher.measured(),
            )
        });
        socket.close();
        let (totals, prefetch, measured) = ended?;
        let followed = socket.followed.load(Relaxed) as u64;
        let speculations = socket.speculation_counts();
        Some(SessionResults { totals, prefetch, measured, followed, speculations })
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
    /// Number of the PKRU component in the XSAVE area.
    const PART: u32 = 9;
    let has_keys = __cpuid(0).eax >= 0xd && __cpuid_count(7, 0).ecx & SWITCHED_ON != 0;
    if has_keys { __cpuid_count(0xd, PART).ebx } else { 0 }
}

/// Raises the soft limit of descriptors to the hard one: prefetches hold descriptors. The command
/// has been started with its own limit.
fn raise_descriptor_limit() {
    // Not with rustix, which assumes that the call cannot fail: a seccomp filter may forbid it.
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes `limit`.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: reads `limit`.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}
