//! Test for devices that serve one request at a time, made with their very first requests.
//!
//! On such a device, operations that begin together end one after the other, each as long after the
//! one before as a request takes: a staircase. Where requests are served side by side they end
//! together, but for those that take several requests. Nothing has to be known of what one takes:
//! the height of the steps says that. Only what *began* together tells. In steady state something
//! begins as something ends, and then ends are evenly apart in both cases, by Little's law. So a
//! step counts as far as the later one took longer than the one before, which began no earlier.
//!
//! - What takes less than [`INFORMATIVE`] was in memory, or continues what was read before it, for
//!   which no head moves: that says nothing, and neither would a base made of it.
//! - Lookups say nothing but when they ended: those in one directory may wait for each other,
//!   wherever it is.
//!
//! So a burst tells, of whatever kinds of operations, while a round needs two of one kind
//! ([`super`]). Until it is told, few are sent: on one spindle each that is not needed costs the
//! target a seek, and elsewhere those that begin together tell within two latencies.

use std::collections::VecDeque;
use std::time::Duration;

use super::latency_sample::{INFORMATIVE, Kind, SEEK, Sample};

/// Steps that show that one request is served at a time, and how many there are at least for each
/// operation that shows the contrary.
const STEPS: (u32, u32) = (6, 6);
/// Contrary operations that show that requests are served side by side, if they are more than the
/// steps.
const CONTRARY: u32 = 3;
/// Requests in flight below which there is no queue.
const DEEP: usize = 3;
/// Part of a step by which the later operation took longer, at least: the rest is what it began
/// later.
const LONGER: f64 = 0.75;
/// A step is no less than this part of what the operation took for each that ended meanwhile,
/// itself included: they were served before it, and some took several requests, or others sent
/// some. Of several servers, each has served but a part of them.
const STEP: f64 = 0.65;
/// Two bounds that show the contrary. Requests that ended no further apart than the first part of a
/// latency ended together. Those that ended no further apart than the second, though they took
/// longer as steps of a staircase do, are no steps.
const CLOSE: (f64, f64) = (0.25, 0.4);
/// Part of a step that those that queue end apart on average, at least. (Of several servers, some
/// end between two steps.)
const EVEN: f64 = 0.85;
/// Ends that are remembered.
const ENDS: usize = 64;
/// Largest lead of an operation that is reported late; one that ended earlier says nothing.
const LATE: Duration = Duration::from_micros(100);

/// Known way in which a device serves requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ServiceOrder {
    /// Too little has been read yet.
    Unknown,
    OneAtATime,
    SideBySide,
}

/// Test of one device.
pub(super) struct SpindleTest {
    served: ServiceOrder,
    /// When the operation that ended last began.
    last_began: Duration,
    /// When operations ended, the last one first.
    ends: VecDeque<Duration>,
    /// The heights of the steps.
    steps: Vec<Duration>,
    /// Distances between the ends of queued requests: their number and sum.
    queued: (u32, Duration),
    /// Operations that show the contrary.
    contrary: u32,
}

impl SpindleTest {
    pub(super) const fn new() -> Self {
        Self::expect(ServiceOrder::Unknown)
    }

    /// The device is taken to serve requests so, until more is known.
    pub(super) const fn expect(served: ServiceOrder) -> Self {
        SpindleTest {
            served,
            last_began: Duration::ZERO,
            ends: VecDeque::new(),
            steps: Vec::new(),
            queued: (0, Duration::ZERO),
            contrary: 0,
        }
    }

    pub(super) fn served(&self) -> ServiceOrder {
        self.served
    }

    /// Returns the service time of a request, by the steps so far.
    pub(super) fn base(&self) -> Option<Duration> {
        let mut steps = self.steps.clone();
        let middle = steps.len() / 2;
        (!steps.is_empty()).then(|| *steps.select_nth_unstable(middle).1)
    }

    /// An operation ended that began as one of `in_flight`. True: this one has told.
    pub(super) fn add(&mut self, sample: &Sample, in_flight: usize) -> bool {
        if self.served != ServiceOrder::Unknown || sample.latency < INFORMATIVE {
            return false;
        }
        let (began, end) = (sample.began, sample.began + sample.latency);
        let end_before = self.ends.front().copied().unwrap_or_default();
        let queues = began < end_before && end + LATE > end_before && in_flight >= DEEP;
        if queues && sample.kind != Kind::Lookup {
            let apart = end.saturating_sub(end_before);
            let longer = apart.saturating_sub(began.saturating_sub(self.last_began));
            let meanwhile = self.ends.iter().take_while(|other| **other > began).count();
            let share = sample.latency / (1 + meanwhile as u32);
            let is_longer = longer >= apart.mul_f64(LONGER);
            self.queued = (self.queued.0 + 1, self.queued.1 + apart);
            if apart >= SEEK.max(share.mul_f64(STEP)) && is_longer {
                self.steps.push(apart);
            } else if apart < share.mul_f64(if is_longer { CLOSE.1 } else { CLOSE.0 }) {
                self.contrary += 1;
            }
            self.served = self.verdict();
        }
        if end > end_before {
            self.last_began = began;
            self.ends.truncate(ENDS - 1);
            self.ends.push_front(end);
        }
        self.served != ServiceOrder::Unknown
    }

    fn verdict(&self) -> ServiceOrder {
        let (steps, (queued, apart)) = (self.steps.len() as u32, self.queued);
        let are_even = || self.base().is_some_and(|step| apart / queued >= step.mul_f64(EVEN));
        if steps >= STEPS.0.max(STEPS.1 * self.contrary) && are_even() {
            ServiceOrder::OneAtATime
        } else if self.contrary >= CONTRARY && self.contrary > steps {
            ServiceOrder::SideBySide
        } else {
            ServiceOrder::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Duration = Duration::from_millis(8);

    fn operation(kind: Kind, began: Duration, latency: Duration) -> Sample {
        Sample { kind, device: (8, 0), part: (1, 0..4096), began, latency }
    }

    /// Waves of as many operations as are in flight, served so many at a time.
    fn of(kind: Kind, service: Duration, servers: u32, depth: u32, waves: u32) -> SpindleTest {
        let mut serial = SpindleTest::new();
        for wave in 0..waves {
            for n in 0..depth {
                let began = 2 * wave * depth * service + n * service / 100;
                let sample = operation(kind, began, service * (n / servers + 1));
                serial.add(&sample, n as usize + 1);
            }
        }
        serial
    }

    #[test]
    fn what_begins_together_tells() {
        for kind in [Kind::Read, Kind::LongRead, Kind::Listing] {
            let served = |servers, depth, waves| of(kind, SERVICE, servers, depth, waves).served();
            assert_eq!(served(1, 4, 1), ServiceOrder::Unknown);
            assert_eq!(served(1, 8, 1), ServiceOrder::OneAtATime);
            assert_eq!(served(1, 4, 2), ServiceOrder::Unknown);
            assert_eq!(served(1, 4, 3), ServiceOrder::OneAtATime);
            assert_eq!(
                served(1, 2, 100),
                ServiceOrder::Unknown,
                "two may be one after the other anyway"
            );
            assert_eq!(
                served(2, 8, 10),
                ServiceOrder::Unknown,
                "as many steps as there are that end together"
            );
            for servers in [4, 128] {
                assert_eq!(served(servers, 8, 2), ServiceOrder::SideBySide, "{servers} at a time");
            }
        }
    }

    #[test]
    fn the_steps_say_what_one_takes() {
        let base = of(Kind::Listing, SERVICE, 1, 8, 1).base().expect("steps");
        assert!(base.abs_diff(SERVICE) < SERVICE / 50, "{base:?}");
    }

    /// Operations that wait for a lock or a processor do not wait for a head.
    #[test]
    fn names_and_short_steps_do_not_tell() {
        assert_eq!(of(Kind::Lookup, SERVICE, 1, 8, 10).served(), ServiceOrder::Unknown);
        assert_eq!(of(Kind::Read, SEEK / 2, 1, 8, 10).served(), ServiceOrder::Unknown);
    }

    /// Steady state: each request begins as another ends, evenly apart, however many are served at
    /// a time.
    #[test]
    fn what_begins_one_after_the_other_says_nothing() {
        for depth in [2, 4, 8] {
            let mut serial = SpindleTest::new();
            for n in 0..100 {
                serial.add(&operation(Kind::Read, n * SERVICE, depth * SERVICE), depth as usize);
            }
            assert_eq!(serial.served(), ServiceOrder::Unknown, "{depth} in flight");
        }
    }

    /// Listings that take one request to three, side by side.
    #[test]
    fn operations_of_several_requests_are_no_staircase() {
        let mut serial = SpindleTest::new();
        let mut ends: Vec<_> = (0..8).map(|n| (SERVICE * (1 + n % 3), n as usize + 1)).collect();
        ends.sort();
        ends.iter().for_each(|&(latency, in_flight)| {
            serial.add(&operation(Kind::Listing, SERVICE, latency), in_flight);
        });
        assert_eq!(serial.served(), ServiceOrder::SideBySide);
    }

    /// Requests as `tar` began on a disk that serves 128 at a time: they overlap by nothing.
    #[test]
    fn what_begins_as_another_ends_is_no_queue() {
        let mut serial = SpindleTest::new();
        for n in 0..30 {
            let began = n * (SERVICE - LATE / 2);
            serial.add(&operation(Kind::Read, began, SERVICE), DEEP);
        }
        assert_eq!(serial.served(), ServiceOrder::Unknown);
    }

    /// Lookups of one request more each, as a queue would have it.
    #[test]
    fn names_of_several_requests_are_no_queue() {
        let mut serial = SpindleTest::new();
        for n in 1..=2 * STEPS.0 {
            serial.add(&operation(Kind::Lookup, SERVICE, SERVICE * (n + 1)), 8);
        }
        assert_ne!(serial.served(), ServiceOrder::OneAtATime);
    }

    #[test]
    fn what_needs_no_seek_says_nothing() {
        let mut serial = SpindleTest::new();
        for n in 0..100 {
            serial.add(&operation(Kind::Read, n * INFORMATIVE, INFORMATIVE / 2), 8);
        }
        assert_eq!(serial.served(), ServiceOrder::Unknown);
    }
}
