//! History of a session: records this run, and fetches what an earlier one has read.
//!
//! | module | what it does |
//! |---|---|
//! | [`history_plan`] | what the user asked for, and what is there |
//! | [`replay`] | hands a recorded run to the prefetcher, bounded in how far it is ahead |
//! | `places` | what lies where, and whether it is what it was |
//! | [`replay_account`] | what came of it |
//!
//! With either, agents tell each thing that their process reads, once (`abi::config::tell`), by the
//! ring that hints take. The dispatchers bring it here, to be recorded and to say where in the
//! recorded run this one is.
//!
//! Invariant: what is told here makes nothing be read. It goes into a file that names what the user
//! reads, and when that is replayed that happens with the rights of *that* session. So no
//! rights are compared here, and what a process told before it ended is kept.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::{Access, Follower, Found, RANGE_MAX, Recorder, Run, What};
use runahead_abi::access_identity::BLOCK_BYTES;
use runahead_abi::agent_config::tell;
use runahead_abi::hint_record::{Header, MAPPED, PARTLY, RECORDED, TOUCHED};
use runahead_abi::{ChunkIndex, HintKind, HintLog, Identity, Piece, Record};
use runahead_admission::process::shared_memory::Mapping;
use runahead_admission::session_admission;
use runahead_admission::slow_devices::Waits;
use runahead_inject::Ended;
use runahead_prefetch::Prefetcher;
use rustix::time::{ClockId, clock_gettime};

pub mod history_plan;
pub mod replay;
pub mod replay_account;
#[cfg(test)]
mod tests;
mod unchanged_files;

pub use history_plan::{Asked, Learning, Plan};
pub use replay_account::HistoryStats;

use replay::{Event, Listener};
use replay_account::{Recorded, Replayed};
use unchanged_files::Places;

/// Longest time for the last reports of processes to arrive when the session ends.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Bytes of one access that are examined: no call reads more at once.
const TOLD_MAX: u64 = 4 << 30;

/// History of a session: the recording of its run, and the replay of an earlier one.
pub struct History {
    plan: Arc<Plan>,
    places: Places,
    recorder: Option<Mutex<Recorder>>,
    /// Set when it has been read, or never.
    followed: OnceLock<Followed>,
    present: Mutex<Presence>,
    left: Condvar,
}

/// A run that is replayed.
struct Followed {
    run: Arc<Run>,
    /// It was recorded of this very command.
    is_own: bool,
    follower: Mutex<Follower>,
    /// Accesses that the replay has come to.
    reached: AtomicUsize,
    /// Number of these, from the first on, that arrived long ago.
    settled: AtomicUsize,
    listener: Listener,
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

    /// Starts a thread that replays, if there is something to replay. The command must have been
    /// forked; `block_signals` keeps its signals away from the thread.
    pub fn start(
        self: &Arc<Self>,
        prefetcher: &Arc<Prefetcher>,
        waits: &Arc<Waits>,
        block_signals: fn(),
    ) {
        replay::start(self.clone(), prefetcher.clone(), waits.clone(), block_signals);
    }

    /// Reads what is to be replayed; false if there is nothing.
    fn look_for_a_record(&self) -> bool {
        let Some(history_plan::Replayed { run, is_own }) = self.plan.replayed() else {
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
        } else if replay::moves_on(before, &follower) {
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
            if replay::moves_on(before, &follower) {
                followed.listener.tell(Event::Moved);
            }
        }
    }

    /// Has the programs know that an access is on its way.
    fn expect_everywhere(&self, followed: &Followed, number: usize) {
        let present = lock(&self.present);
        present.members.iter().for_each(|shared| followed.expect(number, &shared.log));
    }

    /// Has them forget it: it was given up.
    fn forget_everywhere(&self, followed: &Followed, number: usize) {
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

impl Followed {
    /// Calls `each` with the hint log's key of each piece of the access.
    fn keys(&self, number: usize, mut each: impl FnMut(Piece)) {
        let access: &Access = &self.run.accesses[number];
        let object = Identity::from_raw(self.run.place(access).key);
        match access.what {
            What::Look | What::LookNoFollow => each(object.into()),
            What::List => each(object.listing().into()),
            What::Link => each(object.link().into()),
            // As the agent has it (`targets/exec.rs`).
            What::Execute => each(object.chunk(ChunkIndex(u64::MAX)).into()),
            What::Data { offset, length } | What::Touched { offset, length } => {
                object.pieces(offset, length).for_each(each);
            }
        }
    }

    /// Enters it into the log of a process, as something that need not be foreseen any more: a
    /// stall there is no reason to make a shadow.
    fn expect(&self, number: usize, log: &HintLog) {
        self.keys(number, |piece| log.done_by_target(piece));
    }
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

/// The clock with which file systems stamp changes, in nanoseconds since 1970.
fn file_clock() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}
