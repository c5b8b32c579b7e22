//! History of the current session: records the accesses that processes report, and compares them
//! with the replayed run.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::{Follower, Found, RANGE_MAX, Recorder, What};
use runahead_abi::access_identity::BLOCK_BYTES;
use runahead_abi::agent_config::tell;
use runahead_abi::hint_record::{Header, MAPPED, PARTLY, RECORDED, TOUCHED};
use runahead_abi::{HintKind, Record};
use runahead_admission::process::shared_memory::Mapping;
use runahead_admission::session_admission;
use runahead_inject::Ended;

use super::followed_run::Followed;
use super::history_plan::{Plan, Replayed as PlannedReplay};
use super::replay_account::{HistoryStats, Recorded, Replayed};
use super::replay_listener::{Event, Listener, moves_on};
use super::unchanged_files::Places;

/// Longest time for the last reports of processes to arrive when the session ends.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Bytes of one access that are examined: no call reads more at once.
const TOLD_MAX: u64 = 4 << 30;

/// History of a session: the recording of its run, and the replay of an earlier one.
pub struct History {
    pub(super) plan: Arc<Plan>,
    places: Places,
    pub(super) recorder: Option<Mutex<Recorder>>,
    /// Set when it has been read, or never.
    pub(super) followed: OnceLock<Followed>,
    present: Mutex<Presence>,
    left: Condvar,
}

/// The processes that have joined and may still tell something.
#[derive(Default)]
struct Presence {
    members: Vec<Arc<Mapping>>,
    /// Accesses that ended processes could not report.
    untold: u64,
    /// There was one.
    had_any: bool,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl History {
    /// Makes the history of a command that is about to start.
    pub fn new(plan: Arc<Plan>) -> Arc<Self> {
        let recorder = plan.records().then(|| {
            let mut recorder = Recorder::default();
            if let Some((path, key)) = &plan.program {
                recorder.saw(path, key.raw(), What::Execute);
            }
            Mutex::new(recorder)
        });
        let (present, left) = (Mutex::default(), Condvar::new());
        let places = Places::now(plan.excluded());
        Arc::new(History { places, plan, recorder, followed: OnceLock::new(), present, left })
    }

    /// Amount that agents are to report, in terms of [`tell`].
    pub fn tell(&self) -> u64 {
        self.plan.tell()
    }

    /// Every program is to be followed, however brief.
    pub fn follows_all(&self) -> bool {
        self.plan.tell() != tell::WHILE_SLOW
    }

    /// True if there may be a record to replay, as far as is known without a wait.
    pub fn may_replay(&self) -> bool {
        self.plan.may_replay()
    }

    /// Reads what is to be replayed; false if there is nothing.
    pub(super) fn look_for_a_record(&self) -> bool {
        let Some(PlannedReplay { run, is_own }) = self.plan.replayed() else {
            return false;
        };
        let _ = self.followed.set(Followed {
            follower: Mutex::new(Follower::new(run.clone())),
            run,
            is_own,
            reached: AtomicUsize::new(0),
            settled: AtomicUsize::new(0),
            listener: Listener::new(),
        });
        true
    }

    /// No process will tell anything: what is replayed could not be checked.
    pub fn nobody_tells(&self) {
        if let Some(followed) = self.followed.get() {
            followed.listener.tell(Event::GiveUp);
        }
    }

    /// A process has joined. It tells until the result is dropped.
    pub fn enter(self: &Arc<Self>, shared: Arc<Mapping>) -> Present {
        let mut present = lock(&self.present);
        if let Some(followed) = self.followed.get() {
            // It may be the first that has waited.
            followed.listener.tell(Event::Moved);
            let follower = lock(&followed.follower);
            let first = follower.place().max(followed.settled.load(Relaxed));
            let pending = first..followed.reached.load(Relaxed);
            for number in pending.filter(|&number| follower.is_pending(number)) {
                followed.expect(number, &shared.log);
            }
        }
        present.members.push(shared.clone());
        present.had_any = true;
        Present { history: self.clone(), shared }
    }

    /// A range was mapped, or used where it is.
    fn saw_mapping(&self, record: &Record<'_>) {
        let Some(recorder) = &self.recorder else { return };
        let (mut recorder, header) = (lock(recorder), &record.header);
        for (offset, length) in parts(header) {
            let range = What::of_hint(HintKind::Data, 0, offset, length);
            let Some(What::Data { offset, length }) = range else { continue };
            match header.flags & TOUCHED {
                0 => recorder.mapped(record.path, header.key, offset, length),
                _ => recorder.touched(record.path, header.key, offset, length),
            }
        }
    }

    fn saw(&self, path: &[u8], (key, recorded): (u64, bool), what: What) {
        if let Some(recorder) = self.recorder.as_ref().filter(|_| recorded) {
            lock(recorder).saw(path, key, what);
        }
        let Some(followed) = self.followed.get() else { return };
        let mut follower = lock(&followed.follower);
        if follower.given_up().is_some() {
            return;
        }
        let before = (follower.place(), follower.matched());
        follower.saw(path, what);
        if follower.given_up().is_some() {
            followed.listener.tell(Event::GiveUp);
        } else if moves_on(before, &follower) {
            followed.listener.tell(Event::Moved);
        }
    }

    /// A program has been started.
    pub fn started_program(&self) {
        if let Some(recorder) = &self.recorder {
            lock(recorder).started_program();
        }
        if let Some(followed) = self.followed.get() {
            let mut follower = lock(&followed.follower);
            let before = (follower.place(), follower.matched());
            follower.started_program();
            if moves_on(before, &follower) {
                followed.listener.tell(Event::Moved);
            }
        }
    }

    /// Has the programs know that an access is on its way.
    pub(super) fn expect_everywhere(&self, followed: &Followed, number: usize) {
        let present = lock(&self.present);
        present.members.iter().for_each(|shared| followed.expect(number, &shared.log));
    }

    /// Has them forget it: it was given up.
    pub(super) fn forget_everywhere(&self, followed: &Followed, number: usize) {
        let present = lock(&self.present);
        for shared in &present.members {
            followed.keys(number, |piece| shared.log.take_back(piece));
        }
    }

    /// Writes what is to be kept, once the command has ended and no process can report any more.
    /// `measured`: each device, and true if it serves one request at a time.
    pub fn finish(&self, ended: &Ended, measured: &[((u32, u32), bool)]) -> HistoryStats {
        self.plan.note_measured(measured);
        let untold = self.last_words();
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
            followed.listener.tell(Event::GiveUp);
        }
        let Some(recorder) = &self.recorder else { return stats };
        let recorder = std::mem::take(&mut *lock(recorder));
        let lost = untold + recorder.left_out();
        let command = self.plan.command();
        // Most runs never wait: nothing of them is kept, so no file is examined.
        let is_kept = lock(&self.present).had_any || self.plan.complains();
        let run = match is_kept {
            true => recorder.finish(command, self.places.found_after()),
            false => recorder.finish(command, |_| Found::Unknown),
        };
        stats.recorded = Some(Recorded { accesses: run.accesses.len() as u64, lost });
        let was_killed = matches!(ended, Ended::Signaled(_));
        stats.complaints = self.plan.keep(run, lost, was_killed);
        stats
    }

    /// Waits for what processes told last; how much they could not tell.
    fn last_words(&self) -> u64 {
        let until = Instant::now() + LAST_WORDS;
        let mut present = lock(&self.present);
        while !present.members.is_empty() {
            let Some(rest) = until.checked_duration_since(Instant::now()) else { break };
            let waited = self.left.wait_timeout(present, rest);
            present = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let late = present.members.iter().map(|shared| untold(shared));
        late.fold(present.untold, u64::saturating_add)
    }
}

impl session_admission::Listener for History {
    fn hear(&self, record: &Record<'_>) -> bool {
        let header = &record.header;
        if header.flags & RECORDED == 0 {
            return false;
        }
        if self.places.is_unstored(record.path) {
            return true;
        }
        if header.flags & (MAPPED | TOUCHED) != 0 {
            self.saw_mapping(record);
            if header.flags & TOUCHED != 0 {
                return true;
            }
        }
        let (mut offset, mut left) = (header.offset, header.length.min(TOLD_MAX));
        loop {
            let length = left.min(RANGE_MAX);
            if let Some(what) = What::of_hint(record.kind, header.flags, offset, length) {
                self.saw(record.path, (header.key, header.flags & MAPPED == 0), what);
            }
            left -= length;
            offset += length;
            if left == 0 {
                return true;
            }
        }
    }
}

/// The ranges of a mapping that a record tells of.
fn parts(header: &Header) -> impl Iterator<Item = (u64, u64)> + use<> {
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

fn untold(shared: &Mapping) -> u64 {
    shared.control.untold.load(Relaxed)
}

/// Guard of a process between [`History::enter`] and its end.
pub struct Present {
    history: Arc<History>,
    shared: Arc<Mapping>,
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut present = lock(&self.history.present);
        present.members.retain(|shared| !Arc::ptr_eq(shared, &self.shared));
        present.untold = present.untold.saturating_add(untold(&self.shared));
        self.history.left.notify_all();
    }
}
