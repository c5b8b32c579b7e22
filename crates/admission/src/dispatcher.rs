//! Takes hints to the prefetcher, and runs shadows again when what they lacked has arrived (see
//! `again`). Within what bounds, the `throttle` says.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::{Duration, Instant};

use crate::process::doorbell::{sleep_until_rung, supersede};
use crate::process::read_rights::RightsCheck;
use crate::process::shared_memory::Mapping;
use runahead_abi::hint_record::{DISCLOSED, Header, MAX_RECORD, OF_MEMORY, RECORDED, STEERS};
use runahead_abi::{Control, HintKind, Record, RunEnd};
use runahead_estimators::Ticks;
use runahead_estimators::access_identity::CHUNK_BYTES;
use runahead_prefetch::{Client, Pace, memory_path};
use rustix::process::Pid;

use crate::hint_progress::Progress;
use crate::memory_budget::{self, ProcessMemory};
use crate::page_usage::PageUses;
use crate::session_admission::SessionAdmission;
use crate::throttle::{self, INTERVAL, Throttle};

mod rerun;

/// Pause between runs that found nothing new, at first (see `again`).
const BACKOFF: Duration = Duration::from_millis(1);

/// A shadow from which nothing comes for this long is let go: it holds memory.
const IDLE: Duration = Duration::from_secs(2);
/// Time after which a shadow that has run, and waits for nothing, is ended: a process that removes
/// a file which the shadow has open hears late that the file is gone (inotify(7)).
const SPENT: Duration = Duration::from_millis(200);
/// Shortest time without shadows for a process whose control group has no room for them.
const ROOM_AGAIN: Duration = Duration::from_millis(500);
/// Between two looks at rings that keep filling: waking for every record costs more than reading
/// it.
const NAP: Duration = Duration::from_micros(150);
/// The target's pace is said this often.
const PACE: Duration = Duration::from_millis(10);
/// Processor time of workers that tells how much of it the target lacks.
const TELLING: Duration = Duration::from_millis(1);
/// Bytes of records that are taken out at a time: a writer may be faster than we are.
const BATCH_BYTES: usize = 1 << 20;

/// Batches of records that are taken out when the process is gone.
const LAST_BATCHES: usize = 16;

/// The state of the one thread that runs [`Dispatcher::run`], for one process.
pub struct Dispatcher {
    shared: Arc<Mapping>,
    session: Arc<SessionAdmission>,
    client: Client,
    progress: Arc<Progress>,
    throttle: Throttle,
    uses: PageUses,
    stop: Arc<AtomicBool>,
    process: Pid,
    /// The name of its memory, whatever it says itself.
    memory: Vec<u8>,
    rights: RightsCheck,
    /// The process is not to have anything read any more.
    revoked: bool,
    /// True if nothing is read ahead: see [`crate::single_spindle`].
    single_server: bool,
    /// When to look again whether there is room for shadows; `None` while nothing says that there
    /// is none.
    lacks_room: Option<Instant>,
    /// The newest sync that was seen.
    sync: u32,
    /// Steering hints handed to the prefetcher, and those of them that had arrived when the
    /// newest run started.
    submitted: u64,
    arrived_before: u64,
    first_arrival: Option<Instant>,
    hints_before: u64,
    used_before: u64,
    backoff: Duration,
    not_before: Instant,
    /// When the process joined, and when its pace was said last.
    joined: Instant,
    paced: Instant,
    booked: BookedTotals,
    /// At the last look at the target's wait for processors: processor time that the prefetcher's
    /// workers had used, and that wait.
    contended: (Duration, Duration),
    /// When the target was last told how large it is.
    sized: Instant,
    /// When something last came of the shadow; `None` when there is none.
    active: Option<Instant>,
}

/// Counts of a process in the session's totals.
#[derive(Clone, Copy, Default)]
struct BookedTotals {
    syncs: u64,
    sync_time: Ticks,
    /// Unforeseen waits.
    waits: u64,
    wait_time: Ticks,
    /// Time of all waits, foreseen or not.
    all_wait_time: Ticks,
}

/// Time that a process (its first thread) has waited for a processor. The kernel's text has the
/// time on a processor, the time in wait of one, both in nanoseconds, and a count
/// (Documentation/scheduler/sched-stats.rst).
fn processor_delay(process: Pid) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

impl BookedTotals {
    fn of(control: &Control) -> Self {
        let unforeseen = control.stall_ticks_unforeseen.load(Relaxed);
        let foreseen = control.stall_ticks_foreseen.load(Relaxed);
        BookedTotals {
            syncs: control.syncs.load(Relaxed),
            sync_time: Ticks(control.sync_ticks.load(Relaxed)),
            waits: control.stalls_unforeseen.load(Relaxed),
            wait_time: Ticks(unforeseen),
            all_wait_time: Ticks(unforeseen.wrapping_add(foreseen)),
        }
    }
}

impl Dispatcher {
    /// Creates the dispatcher of a process that shares `shared`.
    pub fn new(
        shared: Arc<Mapping>,
        session: Arc<SessionAdmission>,
        stop: Arc<AtomicBool>,
        process: Pid,
        rights: RightsCheck,
    ) -> Self {
        let progress = Arc::new(Progress::new(shared.clone()));
        // As it was told when it joined.
        let single_server = shared.control.single_server.load(Relaxed) != 0;
        let workers = session.prefetcher.stats().processor;
        Dispatcher {
            throttle: Throttle::new(shared.clone(), session.clone(), progress.clone()),
            uses: PageUses::new(process.as_raw_pid()),
            shared,
            client: session.prefetcher.client(progress.clone()),
            session,
            progress,
            stop,
            process,
            memory: memory_path(process.as_raw_pid()),
            rights,
            revoked: false,
            single_server,
            lacks_room: None,
            sync: 0,
            submitted: 0,
            arrived_before: 0,
            first_arrival: None,
            hints_before: 0,
            used_before: 0,
            backoff: BACKOFF,
            not_before: Instant::now(),
            joined: Instant::now(),
            paced: Instant::now(),
            booked: BookedTotals::default(),
            contended: (workers, processor_delay(process).unwrap_or_default()),
            sized: Instant::now(),
            active: None,
        }
    }

    /// Until `stop` is set and the bell rung.
    pub fn run(mut self) {
        let shared = self.shared.clone();
        let control = &shared.control;
        while !self.stop.load(Acquire) {
            let bell = control.doorbell.load(SeqCst);
            self.session.waits.take_reported(control);
            // For good, whatever is written there later.
            self.revoked |= control.stopped.load(Relaxed) != 0;
            self.follow_target();
            let busy = self.drain();
            self.publish();
            let timeout = self.run_again();
            let timeout = self.keep(timeout);
            if busy || self.session.prefetcher.kick() {
                std::thread::sleep(NAP);
                continue;
            }
            let timeout = self.let_go_if_idle(timeout);
            sleep_until_rung(control, bell, timeout);
        }
        supersede(control);
        // What it told last. (One that writes without end does not keep us.)
        if self.session.listener.is_some() {
            let _ = (0..LAST_BATCHES).take_while(|_| self.drain()).count();
        }
    }

    /// Lets go of a shadow that does nothing; how long to sleep at most, `timeout` if that is less.
    fn let_go_if_idle(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(active) = self.active else { return timeout };
        let idle = active.elapsed();
        if let Some(rest) = self.patience().checked_sub(idle) {
            return Some(timeout.map_or(rest, |t| t.min(rest)));
        }
        self.supersede();
        timeout
    }

    fn patience(&self) -> Duration {
        let run = self.shared.control.run_request.load(Relaxed);
        let status = self.shared.run(run);
        let end = RunEnd::from_raw(status.end.load(Relaxed));
        let has_run =
            status.run.load(Relaxed) == run && !matches!(end, RunEnd::Running | RunEnd::Paused);
        let is_spent = has_run && self.progress.steers() >= self.submitted;
        if is_spent && !self.session.keep_shadows { SPENT } else { IDLE }
    }

    /// Hands every waiting record to the prefetcher; false if there was none.
    fn drain(&mut self) -> bool {
        let mut buf = [0u8; MAX_RECORD];
        let mut batch: Vec<u8> = Vec::new();
        let mut ends = Vec::new();
        let mut cancels = Vec::new();
        let mut told = 0;
        let rings = if self.throttle.is_full() { 1 } else { self.shared.rings.len() };
        for ring in &self.shared.rings[..rings] {
            while batch.len() + told < BATCH_BYTES
                && let Some(record) = ring.pop(&mut buf)
            {
                if self.session.listener.as_ref().is_some_and(|listener| listener.hear(&record)) {
                    told += size_of_val(&record.header) + record.path.len();
                    continue;
                }
                // The listener learns from the record; no hint follows from it.
                if record.header.flags & RECORDED != 0 {
                    continue;
                }
                batch.extend_from_slice(record.header.as_bytes());
                batch.extend_from_slice(record.path);
                if record.kind == HintKind::Cancel {
                    cancels.push((ends.len(), record.header.run));
                }
                ends.push(batch.len());
            }
        }
        let any = !ends.is_empty();
        // The records have been taken out: their writer had at most the rights that the process had
        // then.
        if !any || !self.may_ask() {
            return any || told > 0;
        }
        let mut rest = &batch[..];
        let mut start = 0;
        for (n, end) in ends.into_iter().enumerate() {
            let (bytes, others) = rest.split_at(end - start);
            (rest, start) = (others, end);
            let Ok(record) = Record::parse(bytes) else { continue };
            let record = match record.header.flags & OF_MEMORY {
                0 => record,
                _ if is_of_memory(&record) => Record { path: &self.memory, ..record },
                _ => continue,
            };
            if is_taken_back(n, &record.header, &cancels) {
                self.client.decline(&record);
            } else {
                if record.kind == HintKind::Cancel {
                    self.throttle.cancel(record.header.run);
                }
                if record.header.flags & OF_MEMORY != 0 {
                    self.uses.expect(&record.header);
                }
                let submit = |record: &Record<'_>| {
                    self.submitted += u64::from(record.header.flags & STEERS != 0);
                    self.client.submit(record);
                };
                self.throttle.take(&record, submit);
            }
        }
        if any && self.active.is_some() {
            self.active = Some(Instant::now());
        }
        any
    }

    /// The process may still read all that we may, and has not given up. If not, that is final.
    fn may_ask(&mut self) -> bool {
        if self.revoked {
            return false;
        }
        let stopped = self.shared.control.stopped.load(Relaxed) != 0;
        let (same, ended) = match self.rights.includes_ours() {
            Ok(same) => (same, false),
            Err(error) => (false, error.kind() == std::io::ErrorKind::NotFound),
        };
        if !same && !ended && !stopped {
            self.session
                .degraded
                .count("a process has other rights than runahead: its hints were ignored");
        }
        self.revoked = stopped || !same;
        if self.revoked {
            self.client.drop_queued_before(u32::MAX);
        }
        !self.revoked
    }

    /// Follows a new sync: drops what the shadows before it hinted and no worker has begun to read.
    fn follow_target(&mut self) {
        let shared = self.shared.clone();
        let control = &shared.control;
        let sync = control.sync.load(Acquire);
        if sync == self.sync {
            return;
        }
        self.sync = sync;
        if !self.has_room() {
            self.go_without();
            return;
        }
        if self.session.single_spindle.is_single_spindle() {
            // It was made before the target could see that there are to be none.
            self.supersede();
            return;
        }
        let run = control.run_request.load(Relaxed);
        // A shadow whose hints were being used was cut off, not astray: they stay.
        let used = control.hints_used.load(Relaxed);
        if used == self.used_before {
            self.throttle.drop_before(run);
            self.client.drop_queued_before(run);
        }
        self.uses.start_over(&shared);
        self.used_before = used;
        self.active = Some(Instant::now());
        self.started_run();
        self.backoff = BACKOFF;
        self.not_before = Instant::now();
    }

    fn publish(&mut self) {
        let shared = self.shared.clone();
        let control = &shared.control;
        control.queued.store(self.client.queued() as u32, Relaxed);
        self.throttle.publish();
        self.client.reached(control.accesses.load(Relaxed));
        if self.paced.elapsed() >= PACE {
            self.paced = Instant::now();
            let stats = self.session.prefetcher.stats();
            self.account(control, stats.processor);
            if let Some(part) = stats.own_requests() {
                control.own_requests.store(part, Relaxed);
            }
            if let Some(service) = stats.service {
                let us = service.as_micros().try_into().unwrap_or(u32::MAX);
                control.service_us.store(us, Relaxed);
            }
            if let Some(part) = stats.own_reads() {
                control.own_reads.store(part, Relaxed);
            }
            if !self.session.without.horizon {
                self.client.set_pace(self.pace());
            }
        }
    }

    /// Books what the target has waited and what its syncs took since this was last done, and tells
    /// it what syncs take in this session.
    fn account(&mut self, control: &Control, workers: Duration) {
        let used = workers.saturating_sub(self.contended.0);
        if used >= TELLING
            && let Some(delay) = processor_delay(self.process)
        {
            let (_, before) = std::mem::replace(&mut self.contended, (workers, delay));
            self.client.contended(delay.saturating_sub(before).div_duration_f64(used));
        }
        let now = BookedTotals::of(control);
        let before = std::mem::replace(&mut self.booked, now);
        let ledger = &self.session.ledger;
        let plus = |now: u64, before: u64| now.saturating_sub(before);
        let syncs = plus(now.syncs, before.syncs);
        let ticks = now.sync_time.saturating_sub(before.sync_time).0;
        let count = ledger.syncs.fetch_add(syncs, Relaxed).saturating_add(syncs);
        let sum = ledger.sync_ticks.fetch_add(ticks, Relaxed).saturating_add(ticks);
        control.usual_sync_ticks.store(sum.checked_div(count).unwrap_or(0), Relaxed);
        let rate = self.session.waits.tick_rate();
        let since = |now: Ticks, before| now.saturating_sub(before).to_micros(rate);
        ledger.crowd.waited(since(now.all_wait_time, before.all_wait_time));
        if !self.session.without.concurrency {
            ledger.crowd.tell(control);
            self.client.waiters(ledger.crowd.waiters());
        }
        let waits = plus(now.waits, before.waits);
        if waits > 0 {
            let time = Duration::from_micros(since(now.wait_time, before.wait_time).0);
            // Whatever the process says.
            self.client.waited(waits, time.min(self.joined.elapsed()));
        }
    }

    /// Returns the target's time from one access to the next when nothing makes it wait.
    fn pace(&self) -> Pace {
        let control = &self.shared.control;
        let waited = self.session.waits.time_waited(control);
        let computed = self.joined.elapsed().saturating_sub(waited);
        let accesses = control.accesses.load(Relaxed).clamp(1, u32::MAX.into()) as u32;
        Pace { compute: computed / accesses, budget: control.bytes_budget.load(Relaxed) }
    }

    /// Keeps shadows within their bounds; how long to sleep at most, `timeout` if that is less.
    fn keep(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        self.throttle.look();
        let session = &self.session;
        let single_server =
            !session.without.sole && session.single_spindle.look(&session.prefetcher);
        if single_server != std::mem::replace(&mut self.single_server, single_server) {
            self.shared.control.single_server.store(single_server.into(), Relaxed);
            match single_server {
                true => {
                    self.session.ledger.stops.count("the storage serves one request at a time");
                    self.stop_shadows();
                }
                false if self.lacks_room.is_none() => self.allow_shadows(),
                false => {}
            }
        }
        if self.lacks_room.is_none() && self.session.room.is_tight() {
            self.go_without();
        }
        if self.lacks_room.is_some_and(|then| Instant::now() >= then) {
            let room = self.has_room();
            self.lacks_room = (!room).then(|| Instant::now() + ROOM_AGAIN);
            if room && !self.session.single_spindle.is_single_spindle() {
                self.allow_shadows();
            }
        }
        if self.sized.elapsed() >= INTERVAL {
            let is_limited = self.shared.control.pages_most.load(Relaxed) != 0;
            if !is_limited {
                self.count_pages();
            } else if !self.has_room() && self.lacks_room.is_none() {
                self.go_without();
            }
        }
        let uses = self.uses.look(&self.shared);
        self.throttle.release(|record| self.client.submit(record));
        let patience = self.throttle.patience();
        let rest = if self.single_server { self.session.single_spindle.rest() } else { None };
        timeout.into_iter().chain(patience).chain(rest).chain(uses).min()
    }

    /// The control group has room for a shadow. The target is told how large it may become.
    fn has_room(&mut self) -> bool {
        let process = self.process.as_raw_pid() as u32;
        let own = self.count_pages();
        let most = memory_budget::pages_most(process, own.pages);
        self.shared.control.tell_most(most);
        let has_room =
            most.is_none_or(|most| own.pages <= most) || own.has_room_for_mirrors(process);
        has_room && self.session.room.allows_shadows(process)
    }

    /// Counts the pages of the target's own memory, and tells the target.
    fn count_pages(&mut self) -> ProcessMemory {
        self.sized = Instant::now();
        let own = ProcessMemory::of(self.process.as_raw_pid() as u32);
        own.tell(&self.shared.control);
        own
    }

    /// There is no room for a shadow: for a while there are to be none.
    fn go_without(&mut self) {
        if self.shared.control.horizon.swap(0, Relaxed) != 0 {
            let what = "a process ran without shadows: its control group lacks memory, or room for processes";
            self.session.degraded.count(what);
        }
        self.lacks_room = Some(Instant::now() + ROOM_AGAIN);
        self.supersede();
    }

    fn allow_shadows(&self) {
        if self.single_server {
            return;
        }
        self.shared.control.horizon.store(self.session.horizon(), Relaxed);
        self.shared.control.want_sync.store(1, Relaxed);
    }

    /// Ends the shadows, and drops all that they have hinted and no worker has begun to read.
    fn stop_shadows(&mut self) {
        let control = &self.shared.control;
        control.horizon.store(0, Relaxed);
        self.throttle.drop_before(DISCLOSED);
        self.client.drop_queued_before(DISCLOSED);
        self.supersede();
    }

    /// Has every shadow end itself. That is no new sync.
    fn supersede(&mut self) {
        self.sync = supersede(&self.shared.control);
        self.active = None;
    }
}

/// True if a record may be of swapped memory: shadows hint at most a chunk of it at a time.
fn is_of_memory(record: &Record<'_>) -> bool {
    record.kind == HintKind::Data && (1..=CHUNK_BYTES).contains(&record.header.length)
}

/// True if record `n` was disclosed and one of `cancels` (number and run) cancels it: no worker may
/// start on it in between.
fn is_taken_back(n: usize, header: &Header, cancels: &[(usize, u32)]) -> bool {
    let taken_back = |&(at, run): &(usize, u32)| {
        throttle::is_taken_back(header, run) && (run >= DISCLOSED || n < at)
    };
    cancels.iter().any(taken_back)
}

#[cfg(test)]
mod tests {
    use runahead_abi::hint_record::DISCLOSURE;

    use super::*;

    #[test]
    fn what_is_taken_back_later_in_a_batch_is_not_begun() {
        let header = |run, flags| Header {
            kind: HintKind::Data as u32,
            run,
            position: 0,
            key: 1,
            offset: 0,
            length: 1,
            flags,
            path_len: 2,
        };
        let cancels = [(3, DISCLOSED + 1), (8, 5)];
        let check = |n, run, flags| is_taken_back(n, &header(run, flags), &cancels);
        assert!(check(2, DISCLOSED, DISCLOSURE) && check(2, DISCLOSED + 1, DISCLOSURE));
        assert!(!check(4, DISCLOSED + 2, DISCLOSURE), "disclosed since");
        assert!(check(7, 5, DISCLOSURE) && check(7, 6, DISCLOSURE), "a shadow's");
        assert!(!check(2, 5, 0) && !check(2, 0, 0), "not disclosed");
        let own = [(8, 5)];
        let check = |n, run| is_taken_back(n, &header(run, DISCLOSURE), &own);
        assert!(check(7, 5) && !check(9, 5) && !check(7, 6) && !check(7, DISCLOSED));
        assert!(!is_taken_back(0, &header(DISCLOSED, DISCLOSURE), &[]));
    }
}
