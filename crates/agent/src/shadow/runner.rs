//! The runner: a process that runs the program's code ahead of the target. Holds its state and its
//! limits.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use runahead_abi::{Control, RunEnd, RunStatus};
use runahead_estimators::Identity;

use super::path_pool::PathPool;
use super::runner_children::Children;
use super::shadow_descriptors::{Backing, Descriptor, DescriptorTable};
use super::shadow_lifetime;
use crate::session::Session;
use crate::sys::{self, Fd};
use crate::thread_owned::Owned;

/// Most hints that may be queued before runners pause.
const HINTS_QUEUED_MAX: u32 = 1 << 14;
/// Pause between two checks of the target's progress, in microseconds.
const HORIZON_CHECK_US: u64 = 300;
/// Horizon from which there is no limit.
const HORIZON_UNBOUNDED: u64 = 1 << 60;
/// Most accesses of a runner without anything new: a wrong value may lead it in circles.
const DRY_ACCESSES_MAX: u64 = 1024;
/// Accesses by which the target may pass a runner that has guessed nothing.
const OVERTAKEN_ACCESSES: u64 = 64;

/// State of a runner.
pub struct Runner {
    pub(super) session: &'static Session,
    pub(super) sync: u32,
    pub(super) run: u32,
    pub(super) descriptors: &'static mut DescriptorTable,
    pub(super) paths: PathPool,
    /// Working directory: a real descriptor or `AT_FDCWD`, and its identity.
    pub(super) cwd: (Fd, Identity),
    pub(super) accesses: u64,
    /// Count of accesses when the run last met something new.
    pub(super) accesses_at_progress: u64,
    /// Stack pointer of the program at the call at hand.
    pub(super) stack: u64,
    /// True once data was missing in this run: what follows must not be learned from.
    pub(super) has_used_stale: bool,
    /// Chunk of a file that was last found whole in memory.
    pub(super) resident_chunk: Identity,
    /// Bytes of mapped files that the run has copied, or may have by storing to them.
    pub(super) copied_bytes: u64,
    pub(super) children: Children,
}

pub(super) static RUNNER: Owned<Option<Runner>> = Owned::new(None);

/// Answer to a call, or the end of the run.
pub(super) type CallAnswer = Result<i64, Stop>;

/// End of the run, with its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stop(pub RunEnd);

/// True if more is hinted than there is room for.
fn is_hint_room_full(control: &Control) -> bool {
    control.queued.load(Relaxed) > HINTS_QUEUED_MAX
        || control.bytes_ahead.load(Relaxed) > control.bytes_budget.load(Relaxed)
}

/// Ends a run at a fault, anywhere in its code.
pub(super) fn end_run_at_fault() -> ! {
    // SAFETY: whatever was interrupted does not go on.
    match unsafe { RUNNER.get() } {
        Some(runner) => runner.end_run(RunEnd::Fault),
        None => sys::exit(0),
    }
}

impl Runner {
    /// Ends the run, or this child of it.
    pub(super) fn end_run(&self, why: RunEnd) -> ! {
        if self.children.is_child() {
            // The parent of this child goes on.
            sys::exit(0);
        }
        shadow_lifetime::end_run(self.session.shared(), self.run, why)
    }

    pub(super) fn status(&self) -> &'static RunStatus {
        self.session.shared().run(self.run)
    }

    /// Counts an access, which the target counts too unless a child makes it. Waits while the
    /// shadow is far enough ahead.
    pub(super) fn count_access(&mut self) -> Result<(), Stop> {
        if !self.children.is_child() {
            self.accesses += 1;
            self.status().accesses.store(self.accesses, Relaxed);
        } else if !self.children.take_access() {
            return Err(Stop(RunEnd::Call));
        }
        let control = &self.session.shared().control;
        // Without a horizon this limit does not apply either.
        let bounded = control.horizon.load(Relaxed) < HORIZON_UNBOUNDED;
        if bounded && self.accesses > self.accesses_at_progress + DRY_ACCESSES_MAX {
            return Err(Stop(RunEnd::Dry));
        }
        let steering = self.status().steering.load(Relaxed);
        loop {
            let since = control.accesses.load(Relaxed) - control.accesses_at_sync.load(Relaxed);
            if control.sync.load(Acquire) != self.sync {
                return Err(Stop(RunEnd::Superseded));
            }
            if steering == 0 && since > self.accesses + OVERTAKEN_ACCESSES {
                return Err(Stop(RunEnd::Overtaken));
            }
            let far =
                self.accesses > since + control.horizon.load(Relaxed) || is_hint_room_full(control);
            let end = if far { RunEnd::Paused } else { RunEnd::Running };
            if self.status().end.load(Relaxed) != end as u32 {
                self.status().end.store(end as u32, Relaxed);
            }
            if !far {
                return Ok(());
            }
            let _ = sys::futex_wait(&self.status().run, self.run, Some(HORIZON_CHECK_US));
        }
    }

    /// Waits while more is hinted than there is room for.
    pub(super) fn wait_for_hint_room(&self) -> Result<(), Stop> {
        let control = &self.session.shared().control;
        while is_hint_room_full(control) {
            if control.sync.load(Acquire) != self.sync {
                return Err(Stop(RunEnd::Superseded));
            }
            let _ = sys::futex_wait(&self.status().run, self.run, Some(HORIZON_CHECK_US));
        }
        Ok(())
    }

    /// Notes that the access at hand leads to something new.
    pub(super) fn note_progress(&mut self) {
        self.accesses_at_progress = self.accesses;
    }

    /// Notes that the object `key` was found in memory.
    pub(super) fn note_met(&mut self, key: Identity) {
        if self.session.shared().log.is_ahead(key) {
            self.note_progress();
        }
    }

    /// Access count of the target at which the access at hand will come.
    pub(super) fn hint_position(&self) -> u64 {
        self.session.shared().control.accesses_at_sync.load(Relaxed) + self.accesses
    }

    /// Opens a new descriptor that discards output.
    pub(super) fn open_sink(&mut self) -> i64 {
        let sink = Descriptor::new(Backing::Sink, Identity::ROOT);
        self.descriptors.open(0, sink).map_or(sys::fail(sys::EMFILE), i64::from)
    }
}
