//! A runner: the program's code, run ahead. What it knows of itself, and how far it may go.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use runahead_abi::{Control, Identity, RunEnd, RunStatus};

use super::path_pool::Texts;
use super::runner_children::Children;
use super::shadow_descriptors::{Behind, Descriptor, Files};
use super::shadow_lifetime;
use crate::plane::Call;
use crate::session::Session;
use crate::sys::{self, Fd};
use crate::thread_owned::Owned;

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
    pub(super) accesses: u64,
    /// How many accesses there had been when something new was met last.
    pub(super) fruitful: u64,
    /// The program's stack pointer at the call at hand.
    pub(super) stack: u64,
    /// Something was missing in this run: what follows from it is not to be learned from.
    pub(super) stood_in: bool,
    /// The chunk of a file that was found in memory last, and whole.
    pub(super) resident: Identity,
    /// Bytes of mapped files that it has copied, or may have by storing to them.
    pub(super) copied: u64,
    pub(super) children: Children,
}

pub(super) static RUNNER: Owned<Option<Runner>> = Owned::new(None);

/// How a call is answered, or that it cannot be.
pub(super) type Answer = Result<i64, Stop>;

/// The run ends here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stop(pub RunEnd);

/// More was hinted than there is room for.
fn is_full(control: &Control) -> bool {
    control.queued.load(Relaxed) > QUEUE_LIMIT
        || control.bytes_ahead.load(Relaxed) > control.bytes_budget.load(Relaxed)
}

/// This runner cannot go on, wherever it is.
pub(super) fn end_at_fault(session: &'static Session, why: RunEnd) -> ! {
    // SAFETY: whatever was interrupted does not go on.
    match unsafe { RUNNER.get() } {
        Some(runner) if !runner.children.is_child() => {
            shadow_lifetime::end(session.shared(), runner.run, why)
        }
        _ => sys::exit(0),
    }
}

impl Runner {
    /// The run ends at `call`.
    pub(super) fn end(&self, why: RunEnd, call: &Call) -> ! {
        if self.children.is_child() {
            // Its parent goes on.
            sys::exit(0);
        }
        self.status().call.store(call.nr as u32, Relaxed);
        shadow_lifetime::end(self.session.shared(), self.run, why)
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
            let far = self.accesses > since + control.horizon.load(Relaxed) || is_full(control);
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

    /// Waits while more was hinted than there is room for.
    pub(super) fn has_room(&self) -> Result<(), Stop> {
        let control = &self.session.shared().control;
        while is_full(control) {
            if control.sync.load(Acquire) != self.sync {
                return Err(Stop(RunEnd::Superseded));
            }
            let _ = sys::futex_wait(&self.status().run, self.run, Some(PAUSE_US));
        }
        Ok(())
    }

    /// The access at hand leads to something new.
    pub(super) fn note_progress(&mut self) {
        self.fruitful = self.accesses;
    }

    /// The runner found what `key` names in memory.
    pub(super) fn meets(&mut self, key: Identity) {
        if self.session.shared().log.is_ahead(key) {
            self.note_progress();
        }
    }

    /// Where in the target's life the access at hand will come.
    pub(super) fn position(&self) -> u64 {
        self.session.shared().control.accesses_at_sync.load(Relaxed) + self.accesses
    }

    /// A new descriptor that takes output.
    pub(super) fn sink(&mut self) -> i64 {
        let sink = Descriptor::new(Behind::Sink, Identity::ROOT);
        self.files.open(0, sink).map_or(sys::fail(sys::EMFILE), i64::from)
    }
}
