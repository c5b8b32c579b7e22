//! Limits on what is in flight on each device.
//!
//! Every device has a [`Limit`] of its own, so that a share that takes 10 ms and a disk that takes
//! 0.1 ms, read at once, do not measure each other. What is looked up before its device is known
//! counts for a device of its own, "unknown", whose limit stays at its start; mostly the nearest
//! directory tells ([`crate::fair_queue`]).
//!
//! *The bound.* A read that the target makes itself waits behind what the device has in flight.
//! While a limit is settled, latency on its device is mostly within two to three times its base
//! (see [`crate::concurrency_limit`]), so a demand read waits for at most about two prefetches per
//! request that the device serves at a time: Fraser & Chang (2003, section 4.1.3) let one wait for
//! one that was in service. Before a device has answered for the first time there are at most
//! [`START`](crate::concurrency_limit::START) requests in flight on it. And a prefetch is one
//! transfer of at most [`PIECE_BYTES`], or of a chunk where the longer one takes more than twice as
//! long.
//!
//! *Sharing.* Threads are bounded for all devices together. A device that does not answer (a server
//! that is gone) must not take them all, so an eighth of them is not to be had by one device alone.
//!
//! Invariant: what is in flight on a device never exceeds what its limit was when the last of it
//! began, nor the total the bound on threads; a device in use is not forgotten.

use std::time::Duration;

use hashbrown::HashMap;
use runahead_estimators::access_identity::CHUNK_BYTES;
use runahead_predict::{PIECE_BYTES, Tier};

use crate::concurrency_limit::{INFORMATIVE, Limit, Sample};
use crate::device_number::{DeviceNumber, Home, MEMORY};
use crate::horizon::Speed;

mod swap_limit;

use swap_limit::SwapLimit;

/// Devices that are remembered, those in use aside.
const DEVICES_MAX: usize = 16;
/// From so many threads on, an eighth is not for one device alone.
const SHARED_FROM: usize = 64;

struct Device {
    limit: Limit,
    in_flight: usize,
    /// When the device was used last, as a number that grows.
    used: u64,
    /// Operations that waited for the device.
    waits: u64,
    /// Operations that the device served in less time than a wait takes.
    quick: u64,
}

/// Limits of all devices.
pub(crate) struct Limits {
    devices: HashMap<Home, Device>,
    in_flight: usize,
    max: usize,
    uses: u64,
    reclaim: SwapLimit,
}

impl Limits {
    /// At most `max` in flight on all devices together; at least one.
    pub(crate) fn new(max: usize) -> Self {
        Limits {
            devices: HashMap::new(),
            in_flight: 0,
            max: max.max(1),
            uses: 0,
            reclaim: SwapLimit::new(),
        }
    }

    fn most_of_one(&self) -> usize {
        self.max - if self.max >= SHARED_FROM { self.max / 8 } else { 0 }
    }

    fn device(&mut self, home: Home) -> &mut Device {
        self.uses += 1;
        let (used, most) = (self.uses, self.most_of_one());
        if self.devices.len() >= DEVICES_MAX && !self.devices.contains_key(&home) {
            let idle = self.devices.iter().filter(|(_, device)| device.in_flight == 0);
            let oldest = idle.min_by_key(|(_, device)| device.used).map(|(home, _)| *home);
            oldest.map(|home| self.devices.remove(&home));
        }
        let fresh = || Device { limit: Limit::new(most), in_flight: 0, used, waits: 0, quick: 0 };
        let device = self.devices.entry(home).or_insert_with(fresh);
        device.used = used;
        device
    }

    /// Returns the jobs of `tier` that may still begin on `home` now. Guesses leave a quarter of
    /// the limit free for hints that may come meanwhile: not more, or the limit would never be
    /// nearly reached, and so never grow. Hints beyond the horizon leave half of it.
    pub(crate) fn room(&self, home: Home, tier: Tier) -> usize {
        let limit = self.current_on(home);
        let limit = match tier {
            Tier::Demand | Tier::Hint => limit,
            Tier::Guess => (limit - limit / 4).max(1),
            Tier::Far => (limit / 2).max(1),
        };
        let free = limit.saturating_sub(self.in_flight_on(home));
        free.min(self.free())
    }

    /// Returns the jobs that may still begin on all devices together.
    pub(crate) fn free(&self) -> usize {
        self.max.saturating_sub(self.in_flight)
    }

    /// Most jobs to have in flight on `home`.
    pub(crate) fn current_on(&self, home: Home) -> usize {
        let known = self.devices.get(&home).map(|device| device.limit.current());
        let limit = known.unwrap_or_else(|| Limit::new(self.most_of_one()).current());
        if home == Some(MEMORY) { limit.min(self.reclaim.limit()) } else { limit }
    }

    /// Jobs on `home`.
    pub(crate) fn in_flight_on(&self, home: Home) -> usize {
        self.devices.get(&home).map_or(0, |device| device.in_flight)
    }

    /// Jobs on all devices.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Most jobs to have in flight on the device that takes most, or before there is one.
    pub(crate) fn current(&self) -> usize {
        let known = self.devices.iter().filter(|(home, _)| home.is_some());
        let most = known.map(|(_, device)| device.limit.current()).max();
        most.unwrap_or_else(|| Limit::new(self.most_of_one()).current())
    }

    /// A job begins on `home`: how many are in flight there with it.
    pub(crate) fn begin(&mut self, home: Home) -> usize {
        self.in_flight += 1;
        let device = self.device(home);
        device.in_flight += 1;
        device.in_flight
    }

    /// Notes that a job has ended.
    pub(crate) fn end(&mut self, home: Home) {
        let device = self.devices.get_mut(&home).filter(|device| device.in_flight > 0);
        device.expect("a job that ends has begun").in_flight -= 1;
        self.in_flight -= 1;
    }

    /// An operation took its time. It was begun as one of `in_flight` on its device.
    pub(crate) fn sample(&mut self, sample: Sample, in_flight: usize) {
        let device = self.device(Some(sample.device));
        let is_wait = sample.latency >= INFORMATIVE;
        device.waits += u64::from(is_wait);
        device.quick += u64::from(!is_wait);
        let (home, latency) = (sample.device, sample.latency);
        device.limit.sample(sample, in_flight);
        if home == MEMORY && is_wait {
            self.reclaim.sample(latency);
        }
    }

    /// The device that is waited for most.
    fn most_waited_for(&self) -> Option<&Device> {
        let known = self.devices.iter().filter(|(home, _)| home.is_some()).map(|(_, d)| d);
        known.max_by_key(|device| device.waits).filter(|device| device.waits > 0)
    }

    /// True if `device` serves one request at a time.
    pub(crate) fn is_sole_on(&self, device: DeviceNumber) -> bool {
        self.devices.get(&Some(device)).is_some_and(|device| device.limit.is_sole())
    }

    /// The device that is waited for most serves one request at a time.
    pub(crate) fn is_sole(&self) -> bool {
        self.most_waited_for().is_some_and(|device| device.limit.is_sole())
    }

    /// True if `device` serves at least a third of all requests in less time than a waiting program
    /// could gain: those that take longer have queued.
    pub(crate) fn is_quick(&self, device: DeviceNumber) -> bool {
        /// Requests that tell.
        const ENOUGH: u64 = 3;
        let is_quick = |device: &Device| device.quick >= ENOUGH && 2 * device.quick > device.waits;
        self.devices.get(&Some(device)).is_some_and(is_quick)
    }

    /// Returns the latency of a request that waits for no other, if it is known.
    pub(crate) fn service(&self) -> Option<Duration> {
        let service = self.most_waited_for()?.limit.speed().service;
        (service > Duration::ZERO).then_some(service)
    }

    /// Returns each measured device, with true if it serves one request at a time.
    pub(crate) fn measured(&self) -> Vec<(DeviceNumber, bool)> {
        let known = self.devices.iter().filter(|(_, device)| device.limit.has_answered());
        known.filter_map(|(home, device)| Some(((*home)?, device.limit.is_sole()))).collect()
    }

    /// `device` is taken to serve one request at a time, as it did before.
    pub(crate) fn expect_sole(&mut self, device: DeviceNumber) {
        let limit = Limit::sole(self.most_of_one());
        self.device(Some(device)).limit = limit;
    }

    /// Has devices that serve one request at a time measured again.
    pub(crate) fn forget_sole(&mut self) {
        let most = self.most_of_one();
        let sole = self.devices.values_mut().filter(|device| device.limit.is_sole());
        sole.for_each(|device| device.limit = Limit::new(most));
    }

    /// True if `home` serves few requests side by side.
    pub(crate) fn is_narrow(&self, home: Home) -> bool {
        self.devices.get(&home).is_some_and(|device| device.limit.is_narrow())
    }

    /// Returns the measured speed of `home`.
    pub(crate) fn speed(&self, home: Home) -> Speed {
        self.devices.get(&home).map(|device| device.limit.speed()).unwrap_or_default()
    }

    /// Bytes to read at a time on `home`, so that no demand read waits long for one prefetch.
    pub(crate) fn piece(&self, home: Home) -> u64 {
        let long = self.devices.get(&home).is_some_and(|device| device.limit.is_long_read_slow());
        // Pages of memory are fetched one after the other.
        if long || home == Some(MEMORY) { CHUNK_BYTES } else { PIECE_BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concurrency_limit::{FIRST, Kind};

    const SHARE: Home = Some((0, 40));
    const DISK: Home = Some((8, 0));

    fn sample(home: Home, began: Duration, latency: Duration) -> Sample {
        let (kind, device, part) = (Kind::Lookup, home.expect("a device"), (0, 0..0));
        Sample { kind, device, part, began, latency }
    }

    /// Begins as many jobs as the limit allows, and ends them at once.
    fn wave(limits: &mut Limits, home: Home, latency: Duration) {
        limits.uses += 1;
        let began = Duration::from_secs(limits.uses);
        let in_flight = limits.room(home, Tier::Hint);
        (0..in_flight).for_each(|_| limits.sample(sample(home, began, latency), in_flight));
    }

    /// A disk of the machine's own and a share are read at once: one is not measured by the other.
    #[test]
    fn devices_do_not_measure_each_other() {
        let mut limits = Limits::new(256);
        for (home, us) in (0..40).flat_map(|_| [(DISK, 500), (SHARE, 10_000), (DISK, 500)]) {
            wave(&mut limits, home, Duration::from_micros(us));
        }
        assert_eq!((limits.room(DISK, Tier::Hint), limits.room(SHARE, Tier::Hint)), (224, 224));
        assert!(!limits.is_narrow(DISK) && !limits.is_narrow(SHARE));
        assert_eq!(limits.speed(SHARE).service, Duration::from_millis(10));
    }

    #[test]
    fn a_disk_is_quick_by_its_short_requests_and_not_slow_by_its_queue() {
        let mut limits = Limits::new(256);
        let ask = |limits: &mut Limits, times, us| {
            let of = |home| sample(home, Duration::ZERO, Duration::from_micros(us));
            (0..times).for_each(|_| limits.sample(of(DISK), 1));
        };
        ask(&mut limits, 2, 150);
        assert!(!limits.is_quick((8, 0)), "too few");
        ask(&mut limits, 1, 150);
        ask(&mut limits, 5, 900);
        assert!(limits.is_quick((8, 0)) && !limits.is_quick((0, 40)));
        ask(&mut limits, 100, 900);
        assert!(!limits.is_quick((8, 0)));
    }

    /// Begins jobs together, which end one after the other, `at_a_time`.
    fn queue(limits: &mut Limits, home: Home, at_a_time: u32) {
        limits.uses += 1;
        let began = Duration::from_secs(limits.uses);
        for n in 1..=limits.room(home, Tier::Hint) as u32 {
            let latency = Duration::from_millis(8) * n.div_ceil(at_a_time);
            limits.sample(sample(home, began, latency), n as usize);
        }
    }

    #[test]
    fn one_spindle_is_known_by_its_names_and_four_are_not_taken_for_one() {
        for (spindles, sole) in [(1, true), (2, false), (4, false), (16, false), (64, false)] {
            let mut limits = Limits::new(256);
            assert!(!limits.is_sole(), "nothing is known");
            let mut seen = (0..24).map(|_| {
                queue(&mut limits, DISK, spindles);
                limits.is_sole()
            });
            // What is left alone has no more bursts.
            assert_eq!(if sole { seen.any(|is| is) } else { seen.last() == Some(true) }, sole);
            // One that is hardly used says nothing.
            wave(&mut limits, SHARE, Duration::from_millis(1));
            limits.forget_sole();
            assert!(!limits.is_sole());
        }
    }

    /// A burst queued at something else, a lock for instance: what follows does not.
    #[test]
    fn one_burst_that_queued_is_no_spindle() {
        let mut limits = Limits::new(256);
        queue(&mut limits, DISK, 1);
        for _ in 0..40 {
            wave(&mut limits, DISK, Duration::from_millis(8));
            assert!(!limits.is_sole());
        }
    }

    #[test]
    fn what_was_measured_before_is_believed_from_the_first_wait_on() {
        let mut limits = Limits::new(256);
        limits.expect_sole((8, 0));
        assert!(!limits.is_sole(), "nobody has waited for it");
        limits.sample(sample(DISK, Duration::from_secs(1), Duration::from_millis(8)), 1);
        assert!(limits.is_sole());
        assert_eq!(limits.measured(), [((8, 0), true)]);
        limits.forget_sole();
        (0..24).for_each(|_| queue(&mut limits, DISK, 4));
        assert_eq!(limits.measured(), [((8, 0), false)]);
    }

    #[test]
    fn one_device_does_not_get_all_threads() {
        let mut limits = Limits::new(256);
        while limits.room(SHARE, Tier::Hint) < 224 {
            wave(&mut limits, SHARE, Duration::from_millis(10));
        }
        (0..224).for_each(|_| _ = limits.begin(SHARE));
        assert_eq!((limits.room(SHARE, Tier::Hint), limits.room(DISK, Tier::Hint)), (0, FIRST));
        assert_eq!(limits.room(DISK, Tier::Far), FIRST / 2);
        (0..FIRST).for_each(|_| _ = limits.begin(DISK));
        assert_eq!(limits.in_flight(), 224 + FIRST);
        assert_eq!((limits.room(DISK, Tier::Demand), limits.room(None, Tier::Demand)), (0, FIRST));
        (0..224).for_each(|_| limits.end(SHARE));
        assert_eq!(limits.room(SHARE, Tier::Hint), 224);
    }

    #[test]
    fn many_devices_are_not_remembered_for_ever() {
        let mut limits = Limits::new(64);
        let busy: Vec<Home> = (0..40).map(|n| Some((9, n))).collect();
        busy.iter().for_each(|&home| _ = limits.begin(home));
        for n in 0..1000 {
            limits.sample(sample(Some((n, 0)), Duration::ZERO, Duration::from_millis(1)), 1);
        }
        busy.iter().for_each(|&home| limits.end(home));
        for n in 0..1000 {
            limits.sample(sample(Some((n, 1)), Duration::ZERO, Duration::from_millis(1)), 1);
        }
        assert!(limits.devices.len() <= 41);
    }
}
