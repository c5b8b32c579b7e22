//! Measurements of one round: requests in flight, and their latencies.

use std::time::Duration;

/// Multiple of the base that queued operations take at least: threads that wait for a processor are
/// late, too.
const DEEP: f64 = 2.5;
/// Requests in flight below which no queue is uneven enough to look for.
const FLOW_MIN: f64 = 8.0;
/// Multiple of the latency that queued requests have if they began deeper in a round.
const QUEUED: f64 = 1.6;
/// Samples of one kind that show it.
pub(super) const QUEUED_QUORUM: usize = 8;
/// Samples of one kind without which a round says nothing of it.
pub(super) const QUORUM: usize = 4;

/// Operations that end, and the number in flight meanwhile.
#[derive(Default)]
pub(super) struct FlightLatency {
    last: Duration,
    ends: f64,
    in_flight: f64,
    /// Time in which something was certainly in flight.
    busy: Duration,
    /// The mean latency in the rounds before.
    before: [f64; 3],
}

impl FlightLatency {
    pub(super) fn add(&mut self, end: Duration, latency: Duration, in_flight: usize) {
        self.busy += end.saturating_sub(self.last).min(latency);
        self.last = self.last.max(end);
        self.ends += 1.0;
        self.in_flight += in_flight as f64;
    }

    /// The mean of all in flight, in seconds; 0 if there is little. Of this round and some before,
    /// the least: when processors are busy, now and then nothing ends for a while.
    pub(super) fn latency(&self) -> f64 {
        self.before.into_iter().fold(self.of_round(), f64::min)
    }

    fn of_round(&self) -> f64 {
        let in_flight = self.in_flight / self.ends.max(1.0);
        if in_flight < FLOW_MIN {
            return 0.0;
        }
        in_flight * self.busy.as_secs_f64() / self.ends
    }

    /// Another round.
    pub(super) fn begin(&mut self) {
        let [.., second, last] = self.before;
        let before = [second, last, self.of_round()];
        *self = FlightLatency { last: self.last, before, ..FlightLatency::default() };
    }
}

#[derive(Default)]
pub(super) struct KindSamples {
    /// Latency without a queue, once known.
    pub(super) base: Option<Duration>,
    /// Samples of this round: number in flight at the begin, and latency.
    pub(super) samples: Vec<(usize, Duration)>,
    /// Latencies of those of them that tell what the device needs for one: where heads move, what
    /// lies beside what was read of late takes a tenth.
    pub(super) apart: Vec<Duration>,
}

impl KindSamples {
    /// Lower quartile of the round, if that has enough samples.
    pub(super) fn quartile(&mut self) -> Option<Duration> {
        let at = self.samples.len() / 4;
        let latency = |&(_, latency): &(usize, Duration)| latency;
        (self.samples.len() >= QUORUM)
            .then(|| self.samples.select_nth_unstable_by_key(at, latency).1.1)
    }

    /// The shortest of the round, as a multiple of the base.
    pub(super) fn least(&self) -> Option<f64> {
        let least = self.samples.iter().map(|(_, latency)| *latency).min()?;
        Some(least.div_duration_f64(self.base?))
    }

    /// Another round.
    pub(super) fn begin(&mut self) {
        self.samples.clear();
        self.apart.clear();
    }

    /// The middle of those that tell what the device needs: a base is lowered by this, and not by
    /// the quartile, for some that are not known to lie beside another do. If they are too few,
    /// nothing, or the upper third of all if `any` will do.
    pub(super) fn middle(&mut self, any: bool) -> Option<Duration> {
        let of_apart = self.of_apart(self.apart.len() / 2);
        of_apart.or_else(|| any.then(|| upper_third(&mut self.samples)))
    }

    /// The lower quartile of those that tell what the device needs, if they are enough.
    pub(super) fn quartile_apart(&mut self) -> Option<Duration> {
        self.of_apart(self.apart.len() / 4)
    }

    fn of_apart(&mut self, at: usize) -> Option<Duration> {
        (self.apart.len() >= QUORUM).then(|| *self.apart.select_nth_unstable(at).1)
    }

    /// Returns the latency of a request that waited for few others. It is taken from requests that
    /// began with less in flight than the others: their lower quartile, or the start of the upper
    /// third if they lie beside each other.
    pub(super) fn shallow(&mut self) -> Option<Duration> {
        self.samples.sort_unstable();
        let middle = self.samples.len().div_ceil(2);
        let half = &mut self.samples[..middle];
        let (at, enough) = (half.len() / 4, half.len() >= QUORUM);
        enough.then(|| match self.apart.len() >= QUORUM {
            true => half.select_nth_unstable_by_key(at, |&(_, latency)| latency).1.1,
            false => upper_third(half),
        })
    }

    /// If those that began deeper in this round queued: how many were served at a time, and how
    /// long one took that did not wait.
    pub(super) fn queued(&mut self) -> Option<(f64, Duration)> {
        if self.samples.len() < QUEUED_QUORUM {
            return None;
        }
        self.samples.sort_unstable();
        let (shallow, deep) = self.samples.split_at(self.samples.len() / 2);
        let median = |half: &[(usize, Duration)], of: fn(&(usize, Duration)) -> f64| {
            let mut all: Vec<f64> = half.iter().map(of).collect();
            *all.select_nth_unstable_by(half.len() / 2, f64::total_cmp).1
        };
        let depth: fn(&(usize, Duration)) -> f64 = |&(depth, _)| depth as f64;
        let latency: fn(&(usize, Duration)) -> f64 = |(_, latency)| latency.as_secs_f64();
        let times = |of| median(deep, of) / median(shallow, of);
        if times(depth) < QUEUED || times(latency) < QUEUED {
            return None;
        }
        let least = shallow.iter().map(|(_, latency)| *latency).min()?;
        let least = match self.apart.iter().min() {
            Some(&apart) => apart.max(least),
            None => upper_third(&mut shallow.to_vec()),
        };
        let base = self.base.map_or(least, |base| base.min(least));
        let times_base = median(deep, latency) / base.as_secs_f64();
        (times_base >= DEEP).then(|| (median(deep, depth) / times_base, base))
    }
}

/// Returns the start of the upper third: where heads move, hardly any request beside another takes
/// as long as others do, but for these.
fn upper_third(samples: &mut [(usize, Duration)]) -> Duration {
    let at = 2 * samples.len() / 3;
    samples.select_nth_unstable_by_key(at, |&(_, latency)| latency).1.1
}
