//! How many reads to have in flight, from how long they take.
//!
//! Storage serves some number of requests side by side (the heads of a disk, the channels of a
//! drive, the servers behind a mount) and makes the others wait in line. Below that number one more
//! request costs nobody anything; above it, each lengthens the wait of all, the target's own
//! included. By Little's law (in flight = throughput × latency) the two regimes look different from
//! outside: below, throughput grows with the number in flight and latency stays what it is; above,
//! throughput stays and latency grows. So latency tells where we are, and nothing has to be known
//! of the device.
//!
//! How much queueing is too much? TIP, and after it Fraser & Chang (2003, section 4.1.3), send a
//! prefetch to a disk only while at most one request is outstanding there: a normal request then
//! finds at most one other before it, and takes at most twice as long as on an idle disk. They knew
//! the disks; we keep the same promise measured from above. While latency is within
//! [`GROW_BELOW`] = 2 times its *base*, the limit grows; above [`SHRINK_ABOVE`] it is cut. This is
//! the control law of TCP Vegas with requests in the place of packets, and the slow start is TCP's:
//! multiplying each round (by four while latency is at its base, then by two) until it answers. (Their *horizon*, how far ahead a shadow may
//! run, is another matter and not decided here.)
//!
//! *Samples.* Only operations of at least [`INFORMATIVE`] count: faster ones were served from
//! memory. Operations of different kinds (a lookup that walks cold directories; a long transfer)
//! have different bases, and so have devices, so each [`Kind`] on each [`DeviceNumber`] is compared
//! with itself only. Both the base and the
//! latency compared with it are the lower quartile of a round, which neither stragglers nor half
//! cached operations move much. A sample that began before its round, or while more than the limit
//! was in flight, tells of an earlier limit and is left out.
//!
//! *Rounds.* A round ends after about half as many samples as the limit (within [`ROUND`]), that is
//! one to two latencies; then one decision is taken. No growth unless the limit was nearly reached:
//! an unused limit says nothing.
//!
//! *The base* is the smallest quartile seen, with two ways to rise again, for devices change speed:
//! - if two cuts in a row did not bring latency down, it is not our queue that makes it: the present
//!   latency becomes the base (and growth begins anew);
//! - if latency has not come near the base for [`BASE_LIFE`], or less at the floor, a *drain* round with
//!   [`DRAIN_LIMIT`] in flight measures it afresh, as BBR does; without it, a queue of our own
//!   making would slowly be taken for the device's nature.
//!
//! On few processors, threads that wait for a processor lengthen the measured latency: the brake
//! works for that resource as well.
//!
//! Invariant: the limit stays within the bounds given, whatever the samples are.

use std::time::Duration;

/// The limit before anything is known.
const START: usize = 32;
/// The limit never falls below this, except in a drain round: less is of no use.
const FLOOR: usize = 4;
/// In flight while the base is measured afresh.
const DRAIN_LIMIT: usize = 2;
/// Shorter operations did not wait for storage.
pub(crate) const INFORMATIVE: Duration = Duration::from_micros(300);
/// Fewest and most samples in a round. Of the fewest, some kind has at least [`QUORUM`].
const ROUND: (usize, usize) = ((QUORUM - 1) * KINDS + 1, 32);
/// Samples of one kind without which a round says nothing of it.
const QUORUM: usize = 4;
/// Multiple of the base up to which the limit grows.
const GROW_BELOW: f64 = 2.0;
/// Multiple of the base from which the limit is cut.
const SHRINK_ABOVE: f64 = 3.0;
/// Multiple of the base that confirms it.
const CONFIRM_BELOW: f64 = 1.2;
/// How long a base stands unconfirmed.
const BASE_LIFE: Duration = Duration::from_secs(5);
/// The same while the limit is at its floor: a base that a few half cached operations have set can
/// hold it there. Each time that such a base proves right this is doubled.
const BASE_LIFE_AT_FLOOR: Duration = Duration::from_millis(250);

/// Kinds of operations whose latencies can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Path walk and attributes.
    Lookup,
    /// Up to one chunk of file data.
    Read,
    /// More than that.
    LongRead,
    /// Directory entries.
    Listing,
}

const KINDS: usize = 4;

/// Major and minor number of what a file is on.
pub(crate) type DeviceNumber = (u32, u32);

/// Devices whose bases are remembered.
const DEVICES_MAX: usize = 16;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub kind: Kind,
    pub device: DeviceNumber,
    /// When it began, since any fixed instant.
    pub began: Duration,
    pub latency: Duration,
}

#[derive(Default)]
struct Track {
    /// Latency without a queue, once known.
    base: Option<Duration>,
    /// Of this round.
    samples: Vec<Duration>,
}

impl Track {
    /// Lower quartile of the round, if that has enough samples.
    fn quartile(&mut self) -> Option<Duration> {
        let at = self.samples.len() / 4;
        (self.samples.len() >= QUORUM).then(|| *self.samples.select_nth_unstable(at).1)
    }
}

/// See the module's text.
pub(crate) struct Limit {
    floor: usize,
    max: usize,
    limit: usize,
    /// Doubling, because latency has not answered yet.
    slow_start: bool,
    /// The device that was new last comes last.
    tracks: Vec<(DeviceNumber, [Track; KINDS])>,
    round_began: Duration,
    round_samples: usize,
    /// Some track has a quorum.
    tells: bool,
    /// Most in flight when a sample of this round began.
    round_peak: usize,
    /// When latency was last near its base.
    confirmed: Duration,
    /// See [`BASE_LIFE_AT_FLOOR`].
    life_at_floor: Duration,
    /// The limit to return to after a drain round.
    draining: Option<usize>,
    /// Latency, as a multiple of the base, at the last cut, if that was the last decision.
    cut_at: Option<f64>,
    /// Cuts in a row that did not help.
    futile: u32,
}

impl Limit {
    /// A limit between 4 and `max`, or just `max` when that is less.
    pub(crate) fn new(max: usize) -> Self {
        let max = max.max(1);
        Limit {
            floor: FLOOR.min(max),
            max,
            limit: START.min(max),
            slow_start: true,
            tracks: Vec::new(),
            round_began: Duration::ZERO,
            round_samples: 0,
            tells: false,
            round_peak: 0,
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
        !self.slow_start && self.limit < START
    }

    /// Most operations to have in flight now.
    pub(crate) fn current(&self) -> usize {
        self.limit
    }

    /// An operation ended that began with `in_flight` operations under way, itself included.
    pub(crate) fn sample(&mut self, sample: Sample, in_flight: usize) {
        if sample.latency < INFORMATIVE || sample.began < self.round_began || in_flight > self.limit
        {
            return;
        }
        let samples = &mut self.track(sample.device, sample.kind).samples;
        samples.push(sample.latency);
        let tells = samples.len() >= QUORUM;
        self.tells |= tells;
        self.round_samples += 1;
        self.round_peak = self.round_peak.max(in_flight);
        if self.tells && self.round_samples >= (self.limit / 2).clamp(ROUND.0, ROUND.1) {
            let now = sample.began + sample.latency;
            self.end_round(now);
            self.round_began = now;
            self.round_samples = 0;
            self.round_peak = 0;
            self.tells = false;
            self.each_track().for_each(|track| track.samples.clear());
        }
    }

    fn each_track(&mut self) -> impl Iterator<Item = &mut Track> {
        self.tracks.iter_mut().flat_map(|(_, tracks)| tracks)
    }

    fn track(&mut self, device: DeviceNumber, kind: Kind) -> &mut Track {
        let at =
            self.tracks.iter().position(|(number, _)| *number == device).unwrap_or_else(|| {
                if self.tracks.len() >= DEVICES_MAX {
                    self.tracks.remove(0);
                }
                self.tracks.push((device, Default::default()));
                self.tracks.len() - 1
            });
        &mut self.tracks[at].1[kind as usize]
    }

    fn end_round(&mut self, now: Duration) {
        if let Some(limit) = self.draining.take() {
            self.limit = limit;
            if self.ratio() > GROW_BELOW {
                self.life_at_floor = BASE_LIFE_AT_FLOOR;
                self.slow_start = true;
            } else {
                self.life_at_floor = (2 * self.life_at_floor).min(BASE_LIFE);
            }
            self.adopt(now);
            return;
        }
        let ratio = self.ratio();
        if ratio <= CONFIRM_BELOW {
            self.confirmed = now;
        }
        let life = if self.limit <= self.floor { self.life_at_floor } else { BASE_LIFE };
        if now.saturating_sub(self.confirmed) > life {
            self.draining = Some(self.limit);
            self.limit = DRAIN_LIMIT.min(self.floor);
            self.cut_at = None;
        } else if ratio > SHRINK_ABOVE {
            self.shrink(ratio, now);
        } else {
            self.cut_at = None;
            self.futile = 0;
            if ratio > GROW_BELOW {
                self.slow_start = false;
            } else if self.round_peak * 4 >= self.limit * 3 {
                let step = match self.slow_start {
                    // Nothing queues yet: there is room for more than as much again.
                    true if ratio <= CONFIRM_BELOW => 3 * self.limit,
                    true => self.limit,
                    false => (self.limit / 8).max(1),
                };
                self.limit = (self.limit + step).min(self.max);
            }
        }
    }

    /// The round's latency as a multiple of the base, all operations taken together: those that take
    /// long say more than those that do not, which are soon doubled by chance.
    /// Lowers bases that were beaten.
    fn ratio(&mut self) -> f64 {
        let (mut all, mut bases) = (0.0, 0.0);
        for track in self.each_track() {
            let Some(quartile) = track.quartile() else { continue };
            let base = track.base.map_or(quartile, |base| base.min(quartile));
            track.base = Some(base);
            let samples = track.samples.len() as f64;
            all += samples * quartile.as_secs_f64();
            bases += samples * base.as_secs_f64();
        }
        if bases > 0.0 { all / bases } else { 1.0 }
    }

    fn shrink(&mut self, ratio: f64, now: Duration) {
        self.slow_start = false;
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

    /// Takes this round's latencies for the device's own.
    fn adopt(&mut self, now: Duration) {
        for track in self.each_track() {
            if let Some(quartile) = track.quartile() {
                track.base = Some(quartile);
            }
        }
        self.confirmed = now;
        self.cut_at = None;
        self.futile = 0;
    }
}

#[cfg(test)]
#[path = "limit/tests.rs"]
mod tests;
