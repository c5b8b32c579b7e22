//! Keeps the shadows of one process within their bounds: no more is prefetched ahead of the target
//! than the budget allows.
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

use crate::process::proc_files::number;
use crate::process::shared_memory::Mapping;
use runahead_abi::hint_record::{
    DISCLOSED, DISCLOSURE, EXPAND_LISTINGS, EXPAND_NAMES, Header, STARTED,
};
use runahead_abi::{Control, HintKind, Record};
use runahead_estimators::access_identity::CHUNK_BYTES;
use runahead_estimators::{Identity, Ticks};
use runahead_prefetch::{HINT_MAX_BYTES, Sink};

use crate::hint_progress::Progress;
use crate::outstanding_hints::{self, OutstandingHints};
use crate::session_admission::SessionAdmission;

/// Counts of a process are compared with those before at most this often.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
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
    drops: CacheDrops,
    held_back: VecDeque<(HintKind, Header, Vec<u8>)>,
    held_bytes: u64,
    /// Bytes that the budget has counted for this process.
    own: u64,
    /// When hints were looked through last, and when counts were compared.
    swept: Duration,
    looked: Duration,
    overdue: u64,
    before: Counts,
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
    lost: u64,
    /// Time that the target waited for foreseen data.
    late: Ticks,
}

impl Counts {
    fn of(control: &Control) -> Self {
        Counts {
            issued: control.hints_issued.load(Relaxed),
            used: control.hints_used.load(Relaxed),
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
            drops: CacheDrops::default(),
            held_back: VecDeque::new(),
            held_bytes: 0,
            own: 0,
            swept: Duration::ZERO,
            looked: Duration::ZERO,
            overdue: 0,
            before: Counts::default(),
            quiet: true,
        }
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
        // There are no shadows then, and the target reads what it waits for itself. What the
        // program discloses is no shadow's.
        if header.run < DISCLOSED && self.session.single_spindle.is_single_spindle() {
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

    /// Says how much is ahead, to the shadows and to the other processes.
    pub(crate) fn publish(&mut self) {
        let control = &self.shared.control;
        let bytes = self.ahead.bytes();
        self.session.ledger.budget.change(self.own, bytes);
        self.own = bytes;
        control.bytes_ahead.store(bytes.saturating_add(self.held_bytes), Relaxed);
    }

    /// Looks after what is ahead. Data that may be gone is forgotten, and the target is told its
    /// budget.
    pub(crate) fn look(&mut self) {
        let now = self.origin.elapsed();
        let control = &self.shared.control;
        if now.saturating_sub(self.swept) >= SWEEP {
            self.swept = now;
            let accesses = control.accesses.load(Relaxed);
            let read = self.progress.bytes();
            self.overdue += self.ahead.sweep(&self.shared.log, accesses, read, now);
            self.publish();
        }
        if now.saturating_sub(self.looked) >= INTERVAL {
            self.looked = now;
            self.compare_counts();
        }
    }

    fn compare_counts(&mut self) {
        let control = &self.shared.control;
        let ledger = &self.session.ledger;
        let counts = Counts::of(control);
        let before = std::mem::replace(&mut self.before, counts);
        let overdue = std::mem::take(&mut self.overdue);
        ledger.overdue.fetch_add(overdue, Relaxed);
        let dropped = counts.late > before.late && self.drops.has_moved();
        if counts.lost > before.lost || dropped {
            self.ahead.lose(&self.shared.log);
        }
        control.bytes_budget.store(ledger.budget.allowance(self.own), Relaxed);
        self.quiet = overdue == 0 && (counts.issued, counts.used) == (before.issued, before.used);
    }

    /// Returns the longest time that the dispatcher may sleep.
    pub(crate) fn patience(&self) -> Option<Duration> {
        match self.quiet {
            _ if !self.held_back.is_empty() => Some(ROOM),
            true if self.ahead.is_empty() => None,
            true => Some(10 * INTERVAL),
            false => Some(INTERVAL),
        }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.session.ledger.budget.leave(self.own);
    }
}

/// Detects that another process drops the page cache (`drop_caches`, proc_sys_vm(5)).
#[derive(Default)]
struct CacheDrops(Option<u64>);

impl CacheDrops {
    /// True if the page cache was dropped since the last call.
    fn has_moved(&mut self) -> bool {
        let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let times = ["drop_pagecache", "drop_slab"].map(|name| number(&text, name));
        let now = times.into_iter().flatten().reduce(u64::saturating_add);
        let before = std::mem::replace(&mut self.0, now);
        before.is_some() && before != now
    }
}
