//! State of a target: what its policy remembers between calls.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

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
    /// True if the supervisor has been asked to let this process join.
    pub(super) tried_to_join: AtomicBool,
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

pub(super) static TARGET: Target = Target {
    stall_probing: StallProbing::new(),
    dcache_misses: DcacheMissCost::new(),
    run_queue: RunQueueDelay::new(),
    syncs: Lock::new(SyncHistory::new()),
    shadowed_thread: AtomicPtr::new(core::ptr::null_mut()),
    tried_to_join: AtomicBool::new(false),
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
        self.tried_to_join.store(false, Relaxed);
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
