//! History of the current session: records the accesses that processes report, and compares them
//! with the replayed run.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::{AccessKind, Follower, RANGE_MAX};
use runahead_abi::agent_config::tell;
use runahead_abi::hint_record::{Header, MAPPED, PARTLY, RECORDED, TOUCHED};
use runahead_abi::{HintKind, Record};
use runahead_admission::process::shared_memory::Mapping;
use runahead_admission::session_admission;
use runahead_estimators::access_identity::BLOCK_BYTES;
use runahead_inject::Ended;

use super::history_plan::{Plan, ReplayRecord as PlannedReplay};
use super::mutex_locking::lock;
use super::replay_account::{HistoryStats, Recorded, Replayed};
use super::replay_listener::{Event, ReplayListener, must_wake};
use super::replayed_run::ReplayedRun;
use super::run_logger::{self, Recording, RunLogger};
use super::unchanged_files::SessionFilesystems;

/// Longest wait for the last reports of processes when the session ends.
const LAST_REPORTS_TIMEOUT: Duration = Duration::from_millis(500);
/// Most bytes of one access that are examined: no call reads more at once.
const REPORT_MAX: u64 = 4 << 30;

/// History of a session: the recording of its run, and the replay of an earlier one.
pub struct History {
    /// Plan of what is recorded and replayed.
    pub plan: Arc<Plan>,
    places: Arc<SessionFilesystems>,
    pub(super) recording: Option<Arc<Mutex<Recording>>>,
    /// Logger of the run, if it is remembered.
    pub(super) logger: Option<Arc<RunLogger>>,
    /// Run that is replayed; set when it has been read, if ever.
    pub(super) followed: OnceLock<ReplayedRun>,
    reporters: Mutex<Reporters>,
    left: Condvar,
}

/// Processes that have joined and may still report.
#[derive(Default)]
struct Reporters {
    processes: Vec<Arc<Mapping>>,
    /// Accesses that ended processes could not report.
    unreported: u64,
    /// True if a process has ever joined.
    had_any: bool,
}

impl History {
    /// Makes the history of a command that is about to start.
    pub fn new(plan: Arc<Plan>) -> Arc<Self> {
        let places = Arc::new(SessionFilesystems::now(plan.excluded()));
        let recording = plan.records().then(|| {
            let mut recording = Recording::default();
            if plan.store().is_some() {
                recording.log(plan.keys(), plan.origin());
            }
            if let Some((path, key)) = &plan.program {
                recording.add_access(path, key.raw(), AccessKind::Execute);
            }
            Arc::new(Mutex::new(recording))
        });
        let logger = plan.store().zip(recording.clone()).map(|(store, recording)| {
            Arc::new(RunLogger::new((store.clone(), *plan.keys()), recording, places.clone()))
        });
        let (present, left) = (Mutex::default(), Condvar::new());
        Arc::new(History {
            places,
            plan,
            recording,
            logger,
            followed: OnceLock::new(),
            reporters: present,
            left,
        })
    }

    /// True if every program must be followed, however brief.
    pub fn follows_all(&self) -> bool {
        self.plan.report_level() != tell::WHILE_SLOW
    }

    /// Reads the record to replay. Returns false if there is none.
    pub(super) fn load_record(&self) -> bool {
        let Some(PlannedReplay { run, is_own }) = self.plan.replay_record() else {
            return false;
        };
        let _ = self.followed.set(ReplayedRun {
            follower: Mutex::new(Follower::new(run.clone())),
            run,
            is_own,
            requested: AtomicUsize::new(0),
            arrived: AtomicUsize::new(0),
            listener: ReplayListener::new(),
        });
        true
    }

    /// Ends the replay, since no process will report: the replay could not be checked.
    pub fn no_reports(&self) {
        if let Some(replayed_run) = self.followed.get() {
            replayed_run.listener.send(Event::GiveUp);
        }
    }

    /// Adds a process that has joined. It may report until the guard is dropped.
    pub fn process_joined(self: &Arc<Self>, shared: Arc<Mapping>) -> ReporterGuard {
        let mut present = lock(&self.reporters);
        if let Some(followed) = self.followed.get() {
            // This may be the first process that has waited.
            followed.listener.send(Event::Moved);
            let follower = lock(&followed.follower);
            let first = follower.place().max(followed.arrived.load(Relaxed));
            let pending = first..followed.requested.load(Relaxed);
            for number in pending.filter(|&number| follower.is_pending(number)) {
                followed.expect(number, &shared.log);
            }
        }
        present.processes.push(shared.clone());
        let is_first = !std::mem::replace(&mut present.had_any, true);
        drop(present);
        if let Some(logger) = self.logger.as_ref().filter(|_| is_first) {
            run_logger::start(logger.clone());
        }
        ReporterGuard { history: self.clone(), shared }
    }

    /// Records a range that was mapped, or used of a mapping.
    fn note_mapping(&self, record: &Record<'_>) {
        let Some(recording) = &self.recording else { return };
        let (mut recording, header) = (lock(recording), &record.header);
        for (offset, length) in mapped_ranges(header) {
            let range = AccessKind::of_hint(HintKind::Data, 0, offset, length);
            let Some(AccessKind::Data { offset, length }) = range else { continue };
            match header.flags & TOUCHED {
                0 => recording.add_mapping(record.path, header.key, offset, length),
                _ => recording.add_touched(record.path, header.key, offset, length),
            }
        }
    }

    fn note_access(&self, path: &[u8], (key, recorded): (u64, bool), what: AccessKind) {
        if let Some(recording) = self.recording.as_ref().filter(|_| recorded) {
            lock(recording).add_access(path, key, what);
        }
        let Some(followed) = self.followed.get() else { return };
        let mut follower = lock(&followed.follower);
        if follower.given_up().is_some() {
            return;
        }
        let before = (follower.place(), follower.matched());
        follower.observe(path, what);
        if follower.given_up().is_some() {
            followed.listener.send(Event::GiveUp);
        } else if must_wake(before, &follower) {
            followed.listener.send(Event::Moved);
        }
    }

    /// Counts a program that was started.
    pub fn program_started(&self) {
        if let Some(recording) = &self.recording {
            lock(recording).add_program();
        }
        if let Some(followed) = self.followed.get() {
            let mut follower = lock(&followed.follower);
            let before = (follower.place(), follower.matched());
            follower.program_started();
            if must_wake(before, &follower) {
                followed.listener.send(Event::Moved);
            }
        }
    }

    /// Marks an access as expected in the hint logs of all processes.
    pub(super) fn expect_everywhere(&self, followed: &ReplayedRun, number: usize) {
        let present = lock(&self.reporters);
        present.processes.iter().for_each(|shared| followed.expect(number, &shared.log));
    }

    /// Removes an access that was given up from the hint logs of all processes.
    pub(super) fn forget_everywhere(&self, followed: &ReplayedRun, number: usize) {
        let present = lock(&self.reporters);
        for shared in &present.processes {
            followed.for_each_key(number, |piece| shared.log.take_back(piece));
        }
    }

    /// Writes the record, once the command has ended and no process can report any more.
    /// `measured`: each device, and true if it serves one request at a time.
    pub fn finish(&self, ended: &Ended, measured: &[((u32, u32), bool)]) -> HistoryStats {
        self.plan.note_measured(measured);
        let untold = self.wait_for_last_reports();
        let mut stats = HistoryStats::default();
        if let Some(followed) = self.followed.get() {
            let follower = lock(&followed.follower);
            stats.replayed = Some(Replayed {
                accesses: followed.run.accesses.len() as u64,
                asked: followed.listener.asked.load(Relaxed),
                used: follower.used(),
                matched: follower.matched(),
                files_changed: followed.listener.changed.load(Relaxed),
                given_up_at: follower.given_up(),
            });
            followed.listener.send(Event::GiveUp);
        }
        let Some(recording) = &self.recording else { return stats };
        let was_killed = matches!(ended, Ended::Signaled(_));
        let (accesses, lost) = {
            let recorder = &lock(recording).recorder;
            (recorder.len(), untold + recorder.left_out())
        };
        stats.recorded = Some(Recorded { accesses: accesses as u64, lost });
        if self.plan.has_record_file() {
            let recorder = std::mem::take(&mut lock(recording).recorder);
            let run = recorder.finish(self.plan.command(), self.places.found_after());
            stats.recorded = Some(Recorded { accesses: run.accesses.len() as u64, lost });
            stats.complaints = self.plan.save_record_file(run, lost);
        } else {
            // Most runs never wait: nothing of them is kept.
            let is_kept = (lock(&self.reporters).had_any || self.plan.complains())
                && self.plan.is_worth_keeping(accesses);
            let logger = self.logger.as_ref();
            let failure = logger.and_then(|logger| logger.complete(is_kept, was_killed));
            let failure = failure.filter(|_| self.plan.complains());
            stats.complaints.extend(failure.map(|error| format!("nothing is learned: {error}")));
        }
        stats
    }

    /// Waits for the last reports of processes. Returns the number of accesses that they could not
    /// report.
    fn wait_for_last_reports(&self) -> u64 {
        let until = Instant::now() + LAST_REPORTS_TIMEOUT;
        let mut present = lock(&self.reporters);
        while !present.processes.is_empty() {
            let Some(rest) = until.checked_duration_since(Instant::now()) else { break };
            let waited = self.left.wait_timeout(present, rest);
            present = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let late = present.processes.iter().map(|shared| unreported_by(shared));
        late.fold(present.unreported, u64::saturating_add)
    }
}

impl session_admission::RecordListener for History {
    fn hear(&self, record: &Record<'_>) -> bool {
        let header = &record.header;
        if header.flags & RECORDED == 0 {
            return false;
        }
        if self.places.is_unstored(record.path) {
            return true;
        }
        if header.flags & (MAPPED | TOUCHED) != 0 {
            self.note_mapping(record);
            if header.flags & TOUCHED != 0 {
                return true;
            }
        }
        let (mut offset, mut left) = (header.offset, header.length.min(REPORT_MAX));
        loop {
            let length = left.min(RANGE_MAX);
            if let Some(what) = AccessKind::of_hint(record.kind, header.flags, offset, length) {
                self.note_access(record.path, (header.key, header.flags & MAPPED == 0), what);
            }
            left -= length;
            offset += length;
            if left == 0 {
                return true;
            }
        }
    }
}

/// Ranges of a mapping that a record reports.
fn mapped_ranges(header: &Header) -> impl Iterator<Item = (u64, u64)> + use<> {
    let (offset, length) = (header.offset, header.length.min(RANGE_MAX));
    let (whole, mut mask) = match header.flags & PARTLY {
        0 => (Some((offset, length)), 0),
        _ => (None, header.position),
    };
    let blocks = std::iter::from_fn(move || {
        let first = mask.trailing_zeros();
        let blocks = mask.checked_shr(first)?.trailing_ones();
        let end = first + blocks;
        mask = mask.checked_shr(end).unwrap_or(0).checked_shl(end).unwrap_or(0);
        Some((
            offset.saturating_add(u64::from(first) * BLOCK_BYTES),
            u64::from(blocks) * BLOCK_BYTES,
        ))
    });
    whole.into_iter().chain(blocks)
}

fn unreported_by(shared: &Mapping) -> u64 {
    shared.control.untold.load(Relaxed)
}

/// Guard of a process between [`History::process_joined`] and its end.
pub struct ReporterGuard {
    history: Arc<History>,
    shared: Arc<Mapping>,
}

impl Drop for ReporterGuard {
    fn drop(&mut self) {
        let mut present = lock(&self.history.reporters);
        present.processes.retain(|shared| !Arc::ptr_eq(shared, &self.shared));
        present.unreported = present.unreported.saturating_add(unreported_by(&self.shared));
        self.history.left.notify_all();
    }
}
