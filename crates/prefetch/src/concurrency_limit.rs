//! Concurrency limit of a device: the number of reads in flight, from their latency.
//!
//! Storage serves some number of requests side by side (the heads of a disk, the channels of a
//! drive, the servers behind a mount) and makes the others wait in line. Below that number one more
//! request costs no other request anything; above it, each lengthens the wait of all, the target's
//! own included. By Little's law (in flight = throughput × latency) the two regimes look different
//! from outside: below, throughput grows with the number in flight and latency stays what it is;
//! above, throughput stays and latency grows. So latency tells where we are, and nothing has to be
//! known of the device.
//!
//! How much queueing is too much? TIP, and after it Fraser & Chang (2003, section 4.1.3), send a
//! prefetch to a disk only while at most one request is outstanding there: a normal request then
//! finds at most one other before it, and takes at most twice as long as on an idle disk. They knew
//! the disks; we keep the same promise measured from above. While latency is within [`GROW_BELOW`]
//! = 2 times its *base*, the limit grows; above [`SHRINK_ABOVE`] it is cut. This is the control law
//! of TCP Vegas with requests in the place of packets, and the slow start is TCP's: multiplying
//! each round (by four while latency is at its base, then by two) until it answers. (Their
//! *horizon* is another matter, and decided in [`crate::horizon`].)
//!
//! *The answer* may come within the round. At the start and after each multiplication, requests
//! begin at every depth from few to many: if those that began deeper took longer, they queued, and
//! how much longer says how many are served at a time (Little's law for each of them: its depth
//! over its latency, times the base). The limit becomes twice that at once, before whatever else is
//! in flight is multiplied. Without it, 16 requests that begin together on one spindle would be
//! taken, by their quartile, for a device that is four times as slow.
//!
//! *Samples.* Only operations of at least [`INFORMATIVE`] count: faster ones were served from
//! memory. Operations of different kinds (a lookup that walks cold directories; a long transfer)
//! have different bases, so each [`Kind`] is compared with itself only, and each device has a limit
//! of its own ([`crate::device_limits`]). Both the base and the latency compared with it are the
//! lower quartile of a round, which neither stragglers nor half cached operations move much. A
//! sample that began before its round, or while more than the limit was in flight, tells of an
//! earlier limit and is left out. A read beside another of late ([`recent_reads`]) needs a tenth of
//! what others do where heads move: it tells how long the queue is, and nothing of the base.
//!
//! *Rounds.* A round ends after about half as many samples as the limit (within [`ROUND`]), that is
//! one to two latencies; then one decision is taken. No growth unless the limit was nearly reached:
//! an unused limit says nothing.
//!
//! *The base* is the smallest quartile seen, with two ways to rise again, for devices change speed:
//! - if two cuts in a row did not bring latency down, it is not our queue that makes it: the
//!   present latency becomes the base (and growth begins anew);
//! - if latency has not come near the base for [`BASE_LIFE`], or less at the floor, a *drain* round
//!   with [`DRAIN_LIMIT`] in flight measures it afresh, as BBR does; without it, a queue of our own
//!   making would slowly be taken for the device's nature.
//!
//! *Uneven queues.* Where data lie on several spindles, most of what is in flight may be in line at
//! one of them, and those that end are of the others, early and many: the quartile sees no queue.
//! The mean latency of all does, those included that have not ended, and it need not wait for them:
//! by Little's law it is what is in flight over what ends per time. Half of it, as a multiple of
//! the base, counts as the round's latency if that is more.
//!
//! On few processors, threads that wait for a processor lengthen the measured latency: the brake
//! works for that resource as well.
//!
//! Invariant: the limit stays within the bounds given, whatever the samples are.

use std::time::Duration;

use crate::horizon::{Speed, WINDOW};

mod latency_sample;
mod measurement_round;
mod recent_reads;
mod spindle_test;

pub(crate) use latency_sample::{INFORMATIVE, Kind, Sample};
use latency_sample::{KINDS, SEEK};
use measurement_round::{FlightLatency, KindSamples, QUEUED_QUORUM, QUORUM};
use recent_reads::RecentReads;
use spindle_test::{ServiceOrder, SpindleTest};

/// The limit before anything is known ([`spindle_test`]).
pub(crate) const FIRST: usize = 8;
/// The limit from which it grows, where requests are served side by side.
pub(crate) const START: usize = 16;
/// The limit never falls below this, except in a drain round: one in service and one that waits, so
/// that the device does not idle from one to the next.
const FLOOR: usize = 2;
/// Requests in flight while the base is measured afresh: from limits of at most [`FEW`], and from
/// others.
const DRAIN_LIMIT: (usize, usize) = (1, 2);
/// A limit that few servers explain.
const FEW: usize = 8;
/// Limit that one or two servers explain. There each request more costs every other one half a
/// service time, so growth stops, and cuts begin, at a smaller excess.
const SOLE: usize = 4;
/// Samples that exclude chance: where requests that began together have shown it, and where not.
const SOLE_SAMPLES: (u32, u32) = (8, 24);
/// Times their base that these take then, at least.
const BESIDE: f64 = 1.6;
/// Requests in flight when the number of servers is measured a second time.
const AGAIN: usize = 8;
/// Number of servers below which there is one, measured as well as can be.
const ONE_AT_A_TIME: f64 = 1.7;
/// The multiples of the base for those: growth below, cut above.
const SOLE_LAW: (f64, f64) = (1.75, 2.25);
/// A limit of at most the first is for a device that has to move heads, until it is more than the
/// second: in between a settled limit goes up and down, and what is read in which order is not to
/// change with it.
const NARROW: (usize, usize) = (32, 96);
/// A device also counts as seeking, whatever its limit, if one in this many of a round's reads took
/// at most a quarter of the base latency: those were adjacent.
const CONTINUED: usize = 8;
/// Factor by which such reads lower a base at most, each time: maybe the device has become faster.
const SLOWLY: f64 = 0.875;
/// Multiple of the base that operations without a queue take on average: they differ.
const SPREAD: f64 = 2.0;
/// Long reads are slow if they take so many times as long as others.
const SLOW_LONG_READ: u32 = 2;
/// Fewest and most samples in a round. Of the fewest, some kind has at least [`QUORUM`].
const ROUND: (usize, usize) = ((QUORUM - 1) * KINDS + 1, 32);
/// Multiple of the base up to which the limit grows.
const GROW_BELOW: f64 = 2.0;
/// Multiple of the base from which the limit is cut.
const SHRINK_ABOVE: f64 = 3.0;
/// Multiple of the base from which a drain round on a device of few servers shows that another
/// program, the target first of all, has a request there most of the time. That is no reason to
/// send more.
const OTHERS: f64 = 1.5;
/// Multiple of the base that confirms it.
const CONFIRM_BELOW: f64 = 1.2;
/// Time for which an unconfirmed base is valid.
const BASE_LIFE: Duration = Duration::from_secs(5);
/// Validity of an unconfirmed base while the limit is at its floor: a base that a few half cached
/// operations have set can hold it there. Each time that such a base proves right this time is
/// doubled.
const BASE_LIFE_AT_FLOOR: Duration = Duration::from_millis(250);

/// Limit of one device.
pub(crate) struct Limit {
    floor: usize,
    max: usize,
    limit: usize,
    /// Doubling, because latency has not answered yet.
    slow_start: bool,
    /// Test for a device that serves one request at a time, from the first reads.
    serial: SpindleTest,
    /// Latency has answered before: what is tried again is tried more slowly.
    answered: bool,
    /// Result that [`Self::is_narrow`] returns.
    narrow: bool,
    recent: RecentReads,
    /// Reads of this round beside others that took at most a quarter of the base.
    continued: usize,
    /// Number of servers, where requests that began together have shown it.
    servers: Option<f64>,
    /// True if one burst has looked as if one request were served at a time.
    suspected: bool,
    /// While the limit is one that one or two servers explain: samples that began beside another,
    /// and how many times their base these took, decayed.
    beside: (u32, f64),
    by_kind: [KindSamples; KINDS],
    round_began: Duration,
    round_samples: usize,
    /// Some kind of operation has a quorum.
    tells: bool,
    /// Most in flight when a sample of this round began.
    round_peak: usize,
    /// Operations that ended in this round, whenever they began.
    flow: FlightLatency,
    /// When latency was last near its base.
    confirmed: Duration,
    /// Present value of [`BASE_LIFE_AT_FLOOR`].
    life_at_floor: Duration,
    /// The limit to return to after a drain round.
    draining: Option<usize>,
    /// Latency, as a multiple of the base, at the last cut, if that was the last decision.
    cut_at: Option<f64>,
    /// Cuts in a row that did not help.
    futile: u32,
}

impl Limit {
    /// A limit between 2 and `max`, or just `max` when that is less.
    pub(crate) fn new(max: usize) -> Self {
        let max = max.max(1);
        Limit {
            floor: FLOOR.min(max),
            max,
            limit: FIRST.min(max),
            slow_start: true,
            serial: SpindleTest::new(),
            answered: false,
            narrow: false,
            recent: RecentReads::default(),
            continued: 0,
            servers: None,
            suspected: false,
            beside: (0, 0.0),
            by_kind: Default::default(),
            round_began: Duration::ZERO,
            round_samples: 0,
            tells: false,
            round_peak: 0,
            flow: FlightLatency::default(),
            confirmed: Duration::ZERO,
            life_at_floor: BASE_LIFE_AT_FLOOR,
            draining: None,
            cut_at: None,
            futile: 0,
        }
    }

    /// Latency has answered early: few requests are served side by side, which so far only disks
    /// do that have to move their heads.
    pub(crate) fn is_narrow(&self) -> bool {
        self.narrow
    }

    /// True if one request is served at a time: a read ahead delays what the target wants, and
    /// moves the head away from its place.
    pub(crate) fn is_sole(&self) -> bool {
        let measured = self.servers.is_some_and(|servers| servers < ONE_AT_A_TIME);
        let (samples, times) = self.beside;
        let enough = if measured { SOLE_SAMPLES.0 } else { SOLE_SAMPLES.1 };
        let moves_a_head = self.speed().service >= SEEK;
        // Of few spindles, now and then most of what is in flight is in line at one.
        let is_known_better = self.serial.served() == ServiceOrder::SideBySide;
        let takes_longer = samples >= enough && times >= BESIDE;
        self.limit <= SOLE && takes_longer && moves_a_head && !is_known_better
    }

    /// Latency has answered: it is known what the device is.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered
    }

    /// Creates the limit of a device that is taken to serve one request at a time, until it is
    /// measured.
    pub(crate) fn sole(max: usize) -> Self {
        let limit = FLOOR.min(max.max(1));
        let (servers, beside) = (Some(1.0), (SOLE_SAMPLES.0, 2.0 * BESIDE));
        let serial = SpindleTest::expect(ServiceOrder::OneAtATime);
        Limit {
            limit,
            servers,
            beside,
            serial,
            slow_start: false,
            answered: true,
            narrow: true,
            ..Limit::new(max)
        }
    }

    /// Most operations to have in flight now.
    pub(crate) fn current(&self) -> usize {
        self.limit
    }

    /// An operation ended that began with `in_flight` operations under way, itself included.
    pub(crate) fn sample(&mut self, sample: Sample, in_flight: usize) {
        if self.serial.add(&sample, in_flight) {
            self.open();
        }
        let is_beside = self.recent.add(&sample);
        if sample.latency < INFORMATIVE {
            return;
        }
        self.flow.add(sample.began + sample.latency, sample.latency, in_flight);
        if sample.began < self.round_began || in_flight > self.limit {
            return;
        }
        self.note_beside(&sample, in_flight);
        let of_kind = &mut self.by_kind[sample.kind as usize];
        if !is_beside {
            of_kind.apart.push(sample.latency);
        } else if of_kind.base.is_some_and(|base| 4 * sample.latency <= base) {
            self.continued += 1;
        }
        let samples = &mut of_kind.samples;
        samples.push((in_flight, sample.latency));
        // What is not known yet is not to be taken for queueing, nor that for what it is.
        let quorum = if self.answered { QUORUM } else { QUEUED_QUORUM };
        let tells = samples.len() >= quorum;
        self.tells |= tells;
        self.round_samples += 1;
        self.round_peak = self.round_peak.max(in_flight);
        if self.tells && self.round_samples >= (self.limit / 2).clamp(ROUND.0, ROUND.1) {
            let now = sample.began + sample.latency;
            self.end_round(now);
            let moves_heads = self.has_continued()
                || self.narrow && self.limit <= NARROW.1
                || !self.slow_start && self.limit <= NARROW.0;
            self.narrow = moves_heads && self.speed().service >= SEEK;
            self.continued = 0;
            self.round_began = now;
            self.round_samples = 0;
            self.round_peak = 0;
            self.flow.begin();
            self.tells = false;
            self.by_kind.iter_mut().for_each(KindSamples::begin);
        }
    }

    /// The first reads have told how requests are served.
    fn open(&mut self) {
        if self.serial.served() == ServiceOrder::SideBySide {
            // Rounds may have answered before.
            if !self.answered {
                self.limit = self.limit.max(START.min(self.max));
            }
            return;
        }
        if let Some(base) = self.serial.base() {
            let max = self.max;
            *self = Limit::sole(max);
            self.by_kind[Kind::Read as usize].base = Some(base);
        }
    }

    /// Two that are under way at once take twice as long each where one is served at a time, and as
    /// long as ever where something else made them slow: a lock, a processor.
    fn note_beside(&mut self, sample: &Sample, in_flight: usize) {
        if self.limit > SOLE || self.slow_start {
            self.beside = (0, 0.0);
        }
        let Some(base) = self.by_kind[sample.kind as usize].base else { return };
        if in_flight >= 2 && !self.slow_start && self.limit <= SOLE {
            let times = (sample.latency.as_secs_f64() / base.as_secs_f64()).min(4.0);
            let (samples, mean) = self.beside;
            let weight = 1.0 / f64::from((samples + 1).min(SOLE_SAMPLES.0));
            self.beside = (samples.saturating_add(1), mean + weight * (times - mean));
        }
    }

    /// Returns the latency of a request that waits for no other, as far as it is known, and the
    /// number to have in flight.
    pub(crate) fn speed(&self) -> Speed {
        let sweep = if self.is_narrow() { WINDOW } else { 0 };
        let of = |kind: Kind| self.by_kind[kind as usize].base;
        let kinds = [Kind::Read, Kind::LongRead, Kind::Lookup, Kind::Listing];
        match kinds.into_iter().find_map(of) {
            Some(service) => Speed { service, parallel: self.limit, sweep },
            None => Speed::default(),
        }
    }

    /// True if a read of several chunks takes much longer than another operation, so that a program
    /// which waits for one gains from shorter ones.
    pub(crate) fn is_long_read_slow(&self) -> bool {
        let of = |kind: Kind| self.by_kind[kind as usize].base;
        let short = of(Kind::Read).or(of(Kind::Lookup));
        matches!((of(Kind::LongRead), short), (Some(long), Some(short)) if long > SLOW_LONG_READ * short)
    }

    /// If requests of some kind queued in this round: how many are served at a time, which kind,
    /// and its base.
    fn queued(&mut self) -> Option<(f64, usize, Duration)> {
        let most = (0..KINDS).max_by_key(|&kind| self.by_kind[kind].samples.len())?;
        let (at_a_time, base) = self.by_kind[most].queued()?;
        Some((at_a_time, most, base))
    }

    fn end_round(&mut self, now: Duration) {
        if let Some(limit) = self.draining.take() {
            self.limit = limit;
            let (ratio, few) = (self.ratio(), limit <= FEW);
            if ratio > if few { SHRINK_ABOVE } else { GROW_BELOW } {
                self.life_at_floor = BASE_LIFE_AT_FLOOR;
                self.slow_start = true;
            } else {
                self.life_at_floor = (2 * self.life_at_floor).min(BASE_LIFE);
            }
            if few && (OTHERS..=SHRINK_ABOVE).contains(&ratio) && self.some_near() {
                self.confirmed = now;
            } else {
                self.adopt(now);
            }
            return;
        }
        if self.slow_start
            && let Some((at_a_time, of_kind, base)) = self.queued()
        {
            self.by_kind[of_kind].base = Some(base);
            self.confirmed = now;
            if at_a_time < ONE_AT_A_TIME && !std::mem::replace(&mut self.suspected, true) {
                // They may have been in line for something else, a lock for instance: once more.
                (self.limit, self.answered) = (AGAIN.min(self.limit), true);
                return;
            }
            self.servers = Some(at_a_time);
            self.limit = ((GROW_BELOW * at_a_time).round() as usize).clamp(self.floor, self.limit);
            (self.slow_start, self.answered) = (false, true);
            return;
        }
        let ratio = self.ratio();
        let sole = self.limit <= SOLE && !self.slow_start;
        let (grow_below, shrink_above) = if sole { SOLE_LAW } else { (GROW_BELOW, SHRINK_ABOVE) };
        if ratio <= CONFIRM_BELOW {
            self.confirmed = now;
        }
        let life = if self.limit <= self.floor { self.life_at_floor } else { BASE_LIFE };
        if now.saturating_sub(self.confirmed) > life {
            self.draining = Some(self.limit);
            let drained = if self.limit <= FEW { DRAIN_LIMIT.0 } else { DRAIN_LIMIT.1 };
            self.limit = drained.min(self.floor);
            self.cut_at = None;
        } else if ratio > shrink_above {
            self.shrink(ratio, now);
        } else {
            self.cut_at = None;
            self.futile = 0;
            if ratio > grow_below {
                (self.slow_start, self.answered) = (false, true);
            } else if self.round_peak * 4 >= self.limit * 3 {
                let step = match self.slow_start {
                    // Nothing queues yet: there is room for more than as much again.
                    true if ratio <= CONFIRM_BELOW && !self.answered => 3 * self.limit,
                    true => self.limit,
                    // It was cut for something that is over.
                    false if ratio <= CONFIRM_BELOW => (self.limit / 2).max(1),
                    false => (self.limit / 8).max(1),
                };
                self.limit = (self.limit + step).min(self.max);
            }
        }
    }

    /// True if reads of this round have continued others faster than only heads do.
    fn has_continued(&self) -> bool {
        self.continued > 0 && CONTINUED * self.continued >= self.round_samples
    }

    /// The round's latency as a multiple of the base, all operations taken together: those that
    /// take long say more than those that do not, which are soon doubled by chance. Lowers bases
    /// that were beaten.
    fn ratio(&mut self) -> f64 {
        let (mut all, mut bases) = (0.0, 0.0);
        let any = !self.answered || self.limit > NARROW.1;
        let least = if self.has_continued() { SLOWLY } else { 0.0 };
        for of_kind in &mut self.by_kind {
            let Some(quartile) = of_kind.quartile() else { continue };
            let middle = of_kind.middle(any);
            let lower = |base: Duration| {
                middle.map_or(base, |middle| base.min(middle).max(base.mul_f64(least)))
            };
            let Some(base) = of_kind.base.map(lower) else { continue };
            let quartile = quartile.max(base);
            of_kind.base = Some(base);
            let samples = of_kind.samples.len() as f64;
            all += samples * quartile.as_secs_f64();
            bases += samples * base.as_secs_f64();
        }
        // What comes up for the first time waits like the rest; if all does, those that began first
        // waited least.
        let known = (bases > 0.0).then(|| all / bases);
        for of_kind in self.by_kind.iter_mut().filter(|of_kind| of_kind.base.is_none()) {
            let Some(quartile) = of_kind.quartile() else { continue };
            let base = match known {
                Some(ratio) => quartile.div_f64(ratio.max(1.0)),
                None => of_kind.shallow().unwrap_or(quartile),
            };
            of_kind.base = Some(base);
            let samples = of_kind.samples.len() as f64;
            all += samples * quartile.as_secs_f64();
            bases += samples * base.as_secs_f64();
        }
        if bases <= 0.0 {
            return 1.0;
        }
        let samples = |of_kind: &KindSamples| {
            if of_kind.samples.len() < QUORUM { 0 } else { of_kind.samples.len() }
        };
        let base = bases / self.by_kind.iter().map(samples).sum::<usize>() as f64;
        (all / bases).max(self.flow.latency() / base / SPREAD)
    }

    fn shrink(&mut self, ratio: f64, now: Duration) {
        (self.slow_start, self.answered) = (false, true);
        // A cut of a third or more that leaves four fifths of the latency did not help.
        self.futile = match self.cut_at {
            Some(before) if ratio > 0.8 * before => self.futile + 1,
            _ => 0,
        };
        if self.futile >= 2 {
            self.adopt(now);
            self.slow_start = true;
            return;
        }
        let factor = (GROW_BELOW / ratio).max(0.5);
        let cut = ((self.limit as f64 * factor) as usize).max(self.floor);
        // At the floor nothing was tried, so nothing can be concluded from the next round.
        self.cut_at = (cut < self.limit).then_some(ratio);
        self.limit = cut;
    }

    /// True if some operation of this round took about its base. If none did, the base is wrong: no
    /// other program has a request there all of the time.
    fn some_near(&self) -> bool {
        self.by_kind.iter().any(|of_kind| of_kind.least().is_some_and(|least| least < OTHERS))
    }

    /// Takes this round's latencies for the device's own.
    fn adopt(&mut self, now: Duration) {
        for of_kind in &mut self.by_kind {
            of_kind.base = of_kind.quartile_apart().or(of_kind.quartile().max(of_kind.base));
        }
        self.confirmed = now;
        self.cut_at = None;
        self.futile = 0;
    }
}

#[cfg(test)]
#[path = "concurrency_limit/tests.rs"]
mod tests;
