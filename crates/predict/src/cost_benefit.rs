//! Cost and benefit of the shadows of a process: Fraser & Chang's reactive account (section 6.1),
//! with costs of prefetching beside those of memory.
//!
//! All terms are parts of the time that passes, decayed from [`INTERVAL`] to [`INTERVAL`]:
//! - *benefit*: hints that were used, each a stall removed;
//! - *crowding*: stalls added, because data that had been in memory was evicted
//!   (`admission/src/refault.rs`);
//! - *waste*: hints that will not be used. Each is a request that others wait for where the device
//!   does few at a time, and holds a part of the budget;
//! - *loss*: while another process drops the page cache, waits for foreseen data, as far as they
//!   exceed the stalls that hints removed.
//!
//! The number of wasted hints among those issued is estimated from two counts, compared with the
//! hints that were used: hints that should have been used by now ([`Sample::missed`]), and hints
//! whose data was gone when the target reached it ([`Sample::lost`]). Waste counts only beyond the
//! point where the gain of the right hints makes up for the wrong ones.
//!
//! When cost exceeds benefit by more than [`TOLERANCE`], shadows are stopped. They are tried again
//! after a pause that grows from trial to trial.
//!
//! Invariants:
//! - nothing here reads a clock;
//! - a pause is never longer than the second value of [`PAUSE`];
//! - a shadow that only costs, and more than [`TOLERANCE`], is stopped within a second of the sixth
//!   sign of it.
//!
//! The account is here and not in `admission`, its caller, because the simulation of the scheduler
//! in `prefetch` runs it, and `admission` depends on `prefetch`.

use std::time::Duration;

/// Interval at which the account is updated.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Weight of the newest interval.
const ALPHA: f64 = 0.4;
/// Part of the time that shadows may cost on balance.
const TOLERANCE: f64 = 0.02;
/// Events by which hints are judged at least, and of which there are at most.
const EVIDENCE: f64 = 6.0;
const WINDOW: f64 = 64.0;
/// Largest cost and gain of one interval: the past must fade within a second.
const MOST: f64 = 2.0;
/// Cost of holding the whole budget for nothing.
const HELD: f64 = 0.1;
/// Requests at a time beyond which one more is not thought to be cheaper.
const DEPTH: f64 = 32.0;
/// A shadow is left to work for this long before it is judged.
const GRACE: Duration = Duration::from_millis(200);
/// After so long without any use, former ones count no more.
const DROUGHT: Duration = Duration::from_millis(400);
/// Hints lost of late, some quarter of a second, that are why others are not used.
const LOSSES: f64 = 3.0;
/// Time after a drop of the page cache in which foreseen data may be gone.
const DROPPED: Duration = Duration::from_secs(1);
/// First pause of stopped shadows, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));
/// A trial has succeeded when it lasts for this long.
const TRIAL: Duration = Duration::from_secs(5);

/// Counts since the last sample.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Hints that shadows issued.
    pub issued: u64,
    /// Hints that the target used.
    pub used: u64,
    /// Signs that hints are wrong: those that the target has passed without using them, and its
    /// stalls that none foresaw although there were hints for later.
    pub missed: u64,
    /// Hints whose data had been fetched, and was gone when the target came to it.
    pub lost: u64,
    /// Time that the target waited for foreseen data.
    pub late: Duration,
    /// True if another process has dropped the page cache.
    pub dropped: bool,
    /// Stalls of the target that there would not have been without this shadow.
    pub added: f64,
    /// Part of the budget that is taken by what was prefetched and not used.
    pub held: f64,
    /// Mean length of a stall.
    pub stall: Duration,
    /// Requests that the device does at a time.
    pub depth: usize,
}

/// Reason for which shadows are stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// Shadows' hints are not used.
    Waste,
    /// Shadows push out of memory what the target uses.
    Crowding,
    /// Fetched data is gone before it is used.
    Loss,
}

impl StopReason {
    /// Text for the statistics.
    pub fn text(self) -> &'static str {
        match self {
            StopReason::Waste => "its hints were not used",
            StopReason::Crowding => "it pushed out of memory what programs used",
            StopReason::Loss => "what it fetched was dropped from memory before it was used",
        }
    }
}

/// Decision about the shadows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShadowDecision {
    /// There are to be no shadows any more.
    Stop(StopReason),
    /// Shadows may be made again.
    TryAgain,
}

/// Account of the shadows of one process. Times count from any one moment.
#[derive(Debug, Default)]
pub struct CostBenefit {
    at: Duration,
    /// Decayed, as parts of the time.
    benefit: f64,
    hints: f64,
    crowding: f64,
    loss: f64,
    /// Estimated cost of recent hints that are not used, and of the memory that they hold.
    waste: f64,
    /// Hints that proved right and wrong, of the last [`WINDOW`].
    right: f64,
    wrong: f64,
    /// Hints that were lost of late, decayed.
    lost: f64,
    /// When something was last dropped.
    dropped: Option<Duration>,
    /// When one was last used, and the signs against them since.
    last_use: Duration,
    against: f64,
    /// When the first hint since it began, or was tried again, came.
    since: Option<Duration>,
    /// Stopped until then.
    until: Option<Duration>,
    /// Trials in a row that ended in a stop.
    pauses: u32,
}

impl CostBenefit {
    /// When to look again at the latest, if nothing comes to pass.
    pub fn until(&self) -> Option<Duration> {
        self.until
    }

    /// Accounts for what came to pass up to `now`.
    pub fn observe(&mut self, now: Duration, sample: &Sample) -> Option<ShadowDecision> {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        if passed <= 0.0 {
            return None;
        }
        self.at = now;
        self.learn(now, sample);
        if let Some(until) = self.until {
            // What is used now was prefetched before: the shadow had only been early.
            let early = self.right >= EVIDENCE && self.right > self.wrong;
            return (now >= until || early).then(|| self.begin());
        }
        if sample.issued > 0 {
            self.since.get_or_insert(now);
        }
        self.weigh(now, passed, sample);
        let working = now.saturating_sub(self.since?);
        if working >= TRIAL && self.benefit > self.cost() {
            self.pauses = 0;
        }
        let stop = working >= GRACE && self.cost() - self.benefit > TOLERANCE;
        stop.then(|| self.stop(now))
    }

    fn cost(&self) -> f64 {
        self.waste + self.crowding + self.loss
    }

    fn learn(&mut self, now: Duration, sample: &Sample) {
        self.right += sample.used as f64;
        self.wrong += sample.missed as f64 + sample.lost as f64;
        if sample.dropped {
            self.dropped = Some(now);
        }
        if sample.used > 0 {
            (self.last_use, self.against) = (now, 0.0);
        } else {
            self.against += sample.missed as f64 + sample.lost as f64;
            if self.against >= EVIDENCE && now.saturating_sub(self.last_use) >= DROUGHT {
                self.right = 0.0;
            }
        }
        let all = self.right + self.wrong;
        if all > WINDOW {
            self.right *= WINDOW / all;
            self.wrong *= WINDOW / all;
        }
    }

    fn weigh(&mut self, now: Duration, passed: f64, sample: &Sample) {
        let part = |stalls: f64| (stalls * sample.stall.as_secs_f64() / passed).min(MOST);
        let depth = (sample.depth.max(1) as f64).min(DEPTH);
        let useless = self.uselessness(depth);
        let keep = (1.0 - ALPHA).powf(passed / INTERVAL.as_secs_f64());
        let add = |sum: &mut f64, part: f64| *sum = *sum * keep + (1.0 - keep) * part;
        self.lost = self.lost * keep + sample.lost as f64;
        // By the time that hints are seen to be wrong, most have long been issued.
        add(&mut self.hints, part(sample.issued as f64 / depth));
        add(&mut self.crowding, part(sample.added));
        let late = match self.dropped {
            Some(then) if now.saturating_sub(then) < DROPPED => sample.late.as_secs_f64() / passed,
            _ => 0.0,
        };
        let benefit = part(sample.used as f64) - late;
        add(&mut self.benefit, benefit.max(0.0));
        add(&mut self.loss, (-benefit).clamp(0.0, MOST));
        self.waste = useless * (self.hints + HELD * sample.held.min(1.0));
    }

    /// Returns a value from 0 (hints gain at least their cost) to 1 (none is used). A wrong hint
    /// costs a stall divided by `depth`, a right one gains a stall.
    fn uselessness(&self, depth: f64) -> f64 {
        let all = self.right + self.wrong;
        if all < EVIDENCE {
            return 0.0;
        }
        ((self.wrong - self.right * depth) / all).max(0.0)
    }

    fn stop(&mut self, now: Duration) -> ShadowDecision {
        let is_lost = self.loss > self.waste || self.lost >= LOSSES;
        let why = match self.crowding > self.waste.max(self.loss) {
            true => StopReason::Crowding,
            false if is_lost => StopReason::Loss,
            false => StopReason::Waste,
        };
        let pause = PAUSE.0.saturating_mul(1 << self.pauses.min(16)).min(PAUSE.1);
        self.pauses += 1;
        self.until = Some(now + pause);
        (self.right, self.wrong, self.lost) = (0.0, 0.0, 0.0);
        ShadowDecision::Stop(why)
    }

    fn begin(&mut self) -> ShadowDecision {
        *self = CostBenefit {
            at: self.at,
            last_use: self.at,
            pauses: self.pauses,
            ..CostBenefit::default()
        };
        ShadowDecision::TryAgain
    }
}

#[cfg(test)]
#[path = "cost_benefit_tests.rs"]
mod tests;
