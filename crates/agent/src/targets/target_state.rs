//! State of a target: what its policy remembers between calls.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use runahead_estimators::Identity;

use super::child_stalls::ChildStalls;
use super::dcache_miss_cost::DcacheMissCost;
use super::demand_readahead::DemandReadahead;
use super::disclosure_state::DisclosureState;
use super::dontfork_regions::DontforkRegions;
use super::fault_watch::FaultWatch;
use super::flush_on_close::FlushOnClose;
use super::large_mappings::LargeMappings;
use super::run_queue_delay::RunQueueDelay;
use super::stall_probing::StallProbing;
use super::sync_history::SyncHistory;
use crate::control_client;
use crate::descriptor_names::{FileKind, NAMES};
use crate::plane::{self, thread::Thread};
use crate::session::Session;
use crate::spin_lock::Lock;
use crate::sys;
use crate::time_stamp::ticks;

/// State of a target, shared by all of its threads. Shadows and children inherit a copy.
///
/// Fields that are written often come first, in few pages: each page costs a fault and a copy after
/// a fork, in the parent and in the child.
#[repr(C)]
pub struct Target {
    pub(crate) stall_probing: StallProbing,
    pub(super) dcache_misses: DcacheMissCost,
    pub(super) run_queue: RunQueueDelay,
    pub(super) syncs: Lock<SyncHistory>,
    /// Thread that has the shadow; null while it may be any thread.
    pub(crate) shadowed_thread: AtomicPtr<Thread>,
    /// Progress of the one attempt to join.
    pub(super) join_attempt: JoinAttempt,
    /// Time that this process waited before it joined, in time-stamp ticks.
    pub(super) waited_ticks: AtomicU64,
    /// Held by the thread that writes the target's ring.
    pub(super) ring_lock: Lock<()>,
    pub(super) disclosures: DisclosureState,
    /// Accesses that did not make this process join.
    pub(super) accesses_before_join: AtomicU32,
    /// True while accesses cannot be recorded because the ring has no room.
    pub(super) recording_falls_behind: AtomicBool,
    pub(super) demand_readahead: DemandReadahead,
    pub(super) dontfork: DontforkRegions,
    pub(super) child_stalls: ChildStalls,
    pub(super) flush_on_close: FlushOnClose,
    pub(super) large_mappings: LargeMappings,
    pub(super) fault_watch: FaultWatch,
    /// True once the process has memory that must not be copied into a shadow.
    pub(super) shadows_forbidden: AtomicBool,
    /// True once a thread has waited for children of all kinds.
    pub(super) waits_for_clones: AtomicBool,
}

/// Progress of the one attempt of a process to join the session. A refusal is final.
#[repr(transparent)]
pub(super) struct JoinAttempt(AtomicU32);

impl JoinAttempt {
    const NOT_MADE: u32 = 0;
    const UNDER_WAY: u32 = 1;
    const OVER: u32 = 2;

    const fn new() -> Self {
        JoinAttempt(AtomicU32::new(Self::NOT_MADE))
    }

    /// Does `attempt`, unless it has been done or is under way.
    pub(super) fn make(&self, attempt: impl FnOnce()) {
        let begun = self.0.compare_exchange(Self::NOT_MADE, Self::UNDER_WAY, Relaxed, Relaxed);
        if begun.is_ok() {
            attempt();
            self.0.store(Self::OVER, Release);
        }
    }

    pub(super) fn is_made(&self) -> bool {
        self.0.load(Relaxed) != Self::NOT_MADE
    }

    /// Waits until no attempt of another thread is under way.
    pub(super) fn wait(&self) {
        /// Interval between two looks, in microseconds.
        const LOOK_US: u64 = 100;
        /// Looks in the time after which an attempt gives up, and as many again.
        const LOOKS_MAX: u64 = 2 * control_client::ANSWER_PATIENCE_MS as u64 * 1_000 / LOOK_US;
        for _ in 0..LOOKS_MAX {
            if self.0.load(Acquire) != Self::UNDER_WAY {
                return;
            }
            sys::sleep_us(LOOK_US);
        }
    }

    fn start_in_child(&self) {
        self.0.store(Self::NOT_MADE, Relaxed);
    }
}

pub(super) static TARGET: Target = Target {
    stall_probing: StallProbing::new(),
    dcache_misses: DcacheMissCost::new(),
    run_queue: RunQueueDelay::new(),
    syncs: Lock::new(SyncHistory::new()),
    shadowed_thread: AtomicPtr::new(core::ptr::null_mut()),
    join_attempt: JoinAttempt::new(),
    waited_ticks: AtomicU64::new(0),
    ring_lock: Lock::new(()),
    disclosures: DisclosureState::new(),
    accesses_before_join: AtomicU32::new(0),
    recording_falls_behind: AtomicBool::new(false),
    demand_readahead: DemandReadahead::new(),
    dontfork: DontforkRegions::new(),
    child_stalls: ChildStalls::new(),
    flush_on_close: FlushOnClose::new(),
    large_mappings: LargeMappings::new(),
    fault_watch: FaultWatch::new(),
    shadows_forbidden: AtomicBool::new(false),
    waits_for_clones: AtomicBool::new(false),
};

impl Target {
    /// Resets the per-process state at the start of a process.
    pub(super) fn reset_for_process(&self, session: &Session) {
        self.stall_probing.reset();
        self.large_mappings.start(ticks());
        self.stall_probing.hear_of_stalls(session.slow_devices().latest(), ticks);
        // A child's thread starts with its own counts of context switches. Being stopped, as at an
        // exec, counts too.
        if let Some(thread) = plane::thread::current() {
            thread.switches.set(None);
        }
    }

    /// Resets the state in a forked child, which has no shadow.
    pub(super) fn start_in_child(&self, session: &Session) {
        self.fault_watch.start_in_child();
        self.reset_for_process(session);
        self.syncs.break_open();
        self.syncs.try_with(|syncs| *syncs = SyncHistory::new());
        self.ring_lock.break_open();
        self.large_mappings.start_in_child();
        self.disclosures.start_in_child();
        self.dontfork.start_in_child();
        self.child_stalls.start_in_child();
        self.run_queue.start_in_child();
        self.shadowed_thread.store(core::ptr::null_mut(), Relaxed);
        self.join_attempt.start_in_child();
        self.waited_ticks.store(0, Relaxed);
        self.accesses_before_join.store(0, Relaxed);
        self.waits_for_clones.store(false, Relaxed);
        self.recording_falls_behind.store(false, Relaxed);
    }

    /// Identity of the object that `path` leads to from `dir`.
    pub(super) fn path_identity(&self, session: &Session, dir: sys::Fd, path: &[u8]) -> Identity {
        session.shared().parents.walk(NAMES.at(dir), path)
    }

    /// Kind of file behind `fd`, asked once for each open.
    pub(super) fn file_kind(&self, fd: sys::Fd) -> FileKind {
        NAMES.kind(fd)
    }
}
