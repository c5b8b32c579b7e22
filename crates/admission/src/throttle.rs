//! Keeps the shadows of one process within their bounds: no more is prefetched ahead of the target
//! than the budget allows, and shadows that are not worth what they cost are stopped for a while.
//!
//! Data that does not fit into the budget is held back here, in order, until the target has used
//! something; a hint for a long range goes on in parts. Meanwhile the shadows, which see that they
//! are too far ahead, pause; when very much is held back, no more is taken out of their rings.
//! Names and directories go on at any time: they take little, and the course of a shadow depends on
//! them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::process::shared_memory::Mapping;
use runahead_abi::hint_record::{
    DISCLOSED, DISCLOSURE, EXPAND_LISTINGS, EXPAND_NAMES, Header, STARTED,
};
use runahead_abi::{Control, HintKind, Record};
use runahead_estimators::access_identity::CHUNK_BYTES;
use runahead_estimators::{Identity, Micros, Ticks};
use runahead_predict::cost_benefit::{CostBenefit, INTERVAL, Sample, ShadowDecision, StopReason};
use runahead_prefetch::{HINT_MAX_BYTES, Sink};

use crate::hint_progress::Progress;
use crate::outstanding_hints::{self, OutstandingHints};
use crate::refault;
use crate::session_admission::SessionAdmission;

/// Assumed length of a stall until one was measured, and its bounds.
const STALL: Duration = Duration::from_millis(5);
const STALLS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_secs(1));
/// While hints are held back, room is looked for this often.
const ROOM: Duration = Duration::from_millis(2);
/// Hints that are held back at most.
const HELD_BACK: usize = 1 << 12;
/// Hints are looked through at most this often.
const SWEEP: Duration = Duration::from_millis(1);

/// Bounds on the shadows of one process.
pub(crate) struct Throttle {
    shared: Arc<Mapping>,
    session: Arc<SessionAdmission>,
    progress: Arc<Progress>,
    origin: Instant,
    ahead: OutstandingHints,
    cost_benefit: CostBenefit,
    ghost: refault::RefaultShare,
    drops: refault::CacheDrops,
    held_back: VecDeque<(HintKind, Header, Vec<u8>)>,
    held_bytes: u64,
    /// Bytes that the budget has counted for this process.
    own: u64,
    /// When hints were looked through last, and when the account was made up.
    swept: Duration,
    looked: Duration,
    overdue: u64,
    before: Counts,
    /// When the first hint came of those that were judged last, if none of them has been used.
    first: Option<Duration>,
    quiet: bool,
}

/// True if `header` was disclosed and a cancel of `run` cancels it.
pub(crate) fn is_taken_back(header: &Header, run: u32) -> bool {
    // What the target discloses later is of a later run.
    let of = if run >= DISCLOSED { header.run <= run } else { header.run == run };
    of && header.flags & DISCLOSURE != 0
}

#[derive(Clone, Copy, Default)]
struct Counts {
    issued: u64,
    used: u64,
    unforeseen: u64,
    lost: u64,
    /// Time that the target waited for foreseen data.
    late: Ticks,
}

impl Counts {
    fn of(control: &Control) -> Self {
        Counts {
            issued: control.hints_issued.load(Relaxed),
            used: control.hints_used.load(Relaxed),
            unforeseen: control.stalls_unforeseen.load(Relaxed),
            lost: control.hints_lost.load(Relaxed),
            late: Ticks(control.stall_ticks_foreseen.load(Relaxed)),
        }
    }
}

impl Throttle {
    /// Creates the throttle of a process that has just joined.
    pub(crate) fn new(
        shared: Arc<Mapping>,
        session: Arc<SessionAdmission>,
        progress: Arc<Progress>,
    ) -> Self {
        session.ledger.budget.join();
        Throttle {
            shared,
            session,
            progress,
            origin: Instant::now(),
            ahead: OutstandingHints::default(),
            cost_benefit: CostBenefit::default(),
            ghost: refault::RefaultShare::default(),
            drops: refault::CacheDrops::default(),
            held_back: VecDeque::new(),
            held_bytes: 0,
            own: 0,
            swept: Duration::ZERO,
            looked: Duration::ZERO,
            overdue: 0,
            before: Counts::default(),
            first: None,
            quiet: true,
        }
    }

    /// Shadows are stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.session.single_spindle.is_single_spindle()
            || self.cost_benefit.until().is_some() && !self.session.without.memory
    }

    /// True if nothing may be taken out of the shadows' rings.
    pub(crate) fn is_full(&self) -> bool {
        self.held_back.len() >= HELD_BACK
    }

    /// A hint has come. `submit` gets what may go on now.
    pub(crate) fn take(&mut self, record: &Record<'_>, submit: impl FnMut(&Record<'_>)) {
        let own = record.header.run == 0;
        // A target may write anything into a ring; what the prefetcher would not look at is cut
        // off.
        let length = record.header.length.min(HINT_MAX_BYTES);
        let mut header = Header { length, ..record.header };
        if self.session.without.expansion {
            header.flags &= !(EXPAND_NAMES | EXPAND_LISTINGS);
        }
        let record = &Record { header, ..*record };
        // What the program itself discloses is no shadow's.
        if !own && header.run < DISCLOSED && self.is_stopped() {
            return self.forget(record);
        }
        // What the target waits for is its own there.
        if own && self.session.single_spindle.is_single_spindle() {
            return self.forget(record);
        }
        if own || record.kind != HintKind::Data {
            // It was told to be learned from.
            if header.flags & STARTED != 0 {
                return;
            }
            return self.go_on(record, submit);
        }
        self.held_bytes = self.held_bytes.saturating_add(header.length);
        self.held_back.push_back((record.kind, header, record.path.to_vec()));
        // Behind others it waits for them: room is looked for in its time.
        if self.held_back.len() == 1 {
            self.release(submit);
        }
    }

    fn go_on(&mut self, record: &Record<'_>, mut submit: impl FnMut(&Record<'_>)) {
        self.ahead.add(record);
        submit(record);
    }

    /// Lets go on what there is room for.
    pub(crate) fn release(&mut self, mut submit: impl FnMut(&Record<'_>)) {
        if self.held_back.is_empty() {
            return;
        }
        let allowance = self.session.ledger.budget.allowance(self.own);
        while let Some((kind, header, path)) = self.held_back.pop_front() {
            let taken = self.ahead.bytes();
            // Whole chunks, of which the log knows.
            let end = header.offset + header.length;
            let most =
                allowance.saturating_sub(taken).max(if taken == 0 { CHUNK_BYTES } else { 0 });
            let cut = match header.length <= most {
                true => end,
                false => (header.offset + most) / CHUNK_BYTES * CHUNK_BYTES,
            };
            if cut <= header.offset && header.length > 0 {
                self.held_back.push_front((kind, header, path));
                break;
            }
            let first = Header { length: cut - header.offset, ..header };
            self.held_bytes = self.held_bytes.saturating_sub(first.length);
            if cut < end {
                let rest = Header { offset: cut, length: end - cut, ..header };
                self.held_back.push_front((kind, rest, path.clone()));
            }
            self.go_on(&Record { kind, header: first, path: &path }, &mut submit);
        }
        self.publish();
    }

    /// Gives up what runs before `run` have hinted and is held back.
    pub(crate) fn drop_before(&mut self, run: u32) {
        self.drop_where(|header| header.run < run);
    }

    /// Gives up what was disclosed in `run`, or by the program before it, and is held back.
    pub(crate) fn cancel(&mut self, run: u32) {
        self.drop_where(|header| is_taken_back(header, run));
    }

    fn drop_where(&mut self, is_dropped: impl Fn(&Header) -> bool) {
        for (kind, header, path) in std::mem::take(&mut self.held_back) {
            if !is_dropped(&header) {
                self.held_back.push_back((kind, header, path));
                continue;
            }
            self.held_bytes = self.held_bytes.saturating_sub(header.length);
            self.forget(&Record { kind, header, path: &path });
        }
    }

    /// Forgets what `record` hinted, as if it had never been.
    fn forget(&self, record: &Record<'_>) {
        outstanding_hints::keys(record).for_each(|(key, _): (Identity, u32)| {
            self.progress.forget(key, record.header.run.saturating_add(1));
        });
    }

    /// A new shadow: how far the one before it was ahead says nothing.
    pub(crate) fn start_over(&mut self) {
        self.ahead.start_over();
    }

    /// Says how much is ahead, to the shadows and to the other processes.
    pub(crate) fn publish(&mut self) {
        let control = &self.shared.control;
        let bytes = self.ahead.bytes();
        self.session.ledger.budget.change(self.own, bytes);
        self.own = bytes;
        control.bytes_ahead.store(bytes.saturating_add(self.held_bytes), Relaxed);
    }

    /// Looks after what is ahead, and makes up the account when it is time to: what is to be done.
    pub(crate) fn look(&mut self) -> Option<ShadowDecision> {
        let now = self.origin.elapsed();
        let control = &self.shared.control;
        if now.saturating_sub(self.swept) >= SWEEP {
            self.swept = now;
            let accesses = control.accesses.load(Relaxed);
            let read = self.progress.bytes();
            self.overdue += self.ahead.sweep(&self.shared.log, accesses, read, now);
            self.publish();
        }
        if now.saturating_sub(self.looked) < INTERVAL {
            return None;
        }
        self.looked = now;
        let sample = self.sample();
        self.quiet = [sample.issued, sample.used, sample.missed] == [0; 3];
        if sample.used > 0 {
            self.first = None;
        } else if sample.issued > 0 {
            self.first.get_or_insert(now.saturating_sub(INTERVAL));
        }
        if self.session.without.memory {
            return None;
        }
        let change = self.cost_benefit.observe(now, &sample);
        let ledger = &self.session.ledger;
        match change {
            Some(ShadowDecision::Stop(why)) => self.note_stop(now, why),
            Some(ShadowDecision::TryAgain) => _ = ledger.trials.fetch_add(1, Relaxed),
            None => {}
        }
        change
    }

    fn note_stop(&mut self, now: Duration, why: StopReason) {
        let ledger = &self.session.ledger;
        ledger.stops.count(why.text());
        if let Some(first) = self.first.take() {
            let took = now.saturating_sub(first).as_micros() as u64;
            ledger.longest_us.fetch_max(took, Relaxed);
        }
    }

    fn sample(&mut self) -> Sample {
        let control = &self.shared.control;
        let ledger = &self.session.ledger;
        let counts = Counts::of(control);
        let before = std::mem::replace(&mut self.before, counts);
        let unforeseen = match self.ahead.leads(control.accesses.load(Relaxed)) {
            true => counts.unforeseen.saturating_sub(before.unforeseen),
            false => 0,
        };
        ledger.overdue.fetch_add(self.overdue, Relaxed);
        let lost = counts.lost.saturating_sub(before.lost);
        let late =
            counts.late.saturating_sub(before.late).to_micros(self.session.waits.tick_rate());
        let dropped = late > Micros(0) && self.drops.has_moved();
        if lost > 0 || dropped {
            self.ahead.lose(&self.shared.log);
        }
        let allowance = ledger.budget.allowance(self.own);
        control.bytes_budget.store(allowance, Relaxed);
        let own = self.own;
        let run = self.shared.run(control.run_request.load(Relaxed));
        let shadows = [control.template_pid.load(Relaxed), run.pid.load(Relaxed)];
        let stopped = self.is_stopped();
        // The PID of an ended process may have been reused by another.
        let held = || own + if stopped { 0 } else { refault::private_memory(&shadows) };
        let refaults = control.refaults.load(Relaxed);
        Sample {
            issued: counts.issued.saturating_sub(before.issued),
            used: counts.used.saturating_sub(before.used),
            missed: unforeseen
                .saturating_sub(lost)
                .saturating_add(std::mem::take(&mut self.overdue)),
            added: self.ghost.account(&ledger.ghost, refaults, refault::refaults, held),
            lost,
            late: Duration::from_micros(late.0),
            dropped,
            held: own.saturating_add(self.held_bytes) as f64 / allowance.max(1) as f64,
            stall: self.stall(),
            depth: self.session.prefetcher.stats().limit,
        }
    }

    /// Returns the mean length of a stall of this process.
    fn stall(&self) -> Duration {
        let control = &self.shared.control;
        let waited = Ticks(control.stall_ticks_unforeseen.load(Relaxed));
        let rate = self.session.waits.tick_rate();
        let mean = waited.mean_of(control.stalls_unforeseen.load(Relaxed));
        let mean = mean.map_or(STALL, |mean| Duration::from_micros(mean.to_micros(rate).0));
        mean.clamp(STALLS.0, STALLS.1)
    }

    /// Returns the longest time that the dispatcher may sleep.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let now = self.origin.elapsed();
        match self.cost_benefit.until() {
            Some(until) => Some(until.saturating_sub(now).max(SWEEP)),
            None if !self.held_back.is_empty() => Some(ROOM),
            None if self.quiet && self.ahead.is_empty() => None,
            None if self.quiet => Some(10 * INTERVAL),
            None => Some(INTERVAL),
        }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.session.ledger.budget.leave(self.own);
        self.ghost.hold(&self.session.ledger.ghost, 0);
    }
}
