//! Whether a device serves one request at a time, from its very first reads.
//!
//! Where it does, reads that overlap end one after the other, each as long after the one before as a read takes that is
//! alone, and each takes as long as all that were in flight before it. Where requests are served side by side the ends lie
//! closer, whatever the depth, the more so the more there are; or, if an operation takes several requests, it takes less
//! than the queue would. (What continues another read needs no seek, and says nothing.) So a dozen reads tell, in the
//! middle of a burst of all kinds of operations, while a round needs two bursts of one kind ([`super`]). Until they have told, few are sent:
//! on one spindle each that is not needed costs the target a seek, and elsewhere three reads are there within two
//! latencies.

use std::ops::Range;
use std::time::Duration;

use runahead_abi::identity::CHUNK_BYTES;

use super::{INFORMATIVE, Kind, Sample};

/// Reads that show that requests are served side by side, and how far apart they end, as a multiple of one alone.
const BESIDE: (u32, f64) = (3, 0.6);
/// Reads that show that requests are served one at a time, and how far apart they end at least.
const SERIAL: (u32, f64) = (6, 0.75);
/// Operations of other kinds take several requests each, one after the other. With so many in flight they end closer than
/// one request takes all the same, where those of several are served side by side.
const DEEP: usize = 4;
/// With so many that show neither, or so many operations of any kind, the device is none that is served one at a time, at
/// any rate.
const MOST: (u32, u32) = (24, 96);
/// What ends so little before another has ended with it. What ended earlier is heard of late, and says nothing.
const TOGETHER: Duration = Duration::from_micros(100);
/// Parts of files that were read of late.
const PARTS: usize = 4;
/// What one read tells at most: it may have been slow.
const CAP: f64 = 1.25;
/// Part of what one takes alone by which operations must overlap: what begins as another ends waits for nobody, and ends as
/// long after it as it takes.
const OVERLAP: f64 = 0.5;
/// How much shorter a queue of one at a time may be than what is in flight: the first of it is half served, and others have
/// ended without having been heard of.
const QUEUE: f64 = 1.2;

/// What is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Served {
    /// Not enough has been read yet.
    Unknown,
    OneAtATime,
    SideBySide,
}

/// See the module's text.
pub(super) struct Serial {
    served: Served,
    /// Reads that had the device to themselves: how many, and what they took in all.
    alone: (u32, Duration),
    /// What was read last: the inode, and its first byte and the one behind the last.
    parts: [(u64, u64, u64); PARTS],
    operations: u32,
    /// When the last operation ended.
    last_end: Duration,
    /// Reads that overlapped another operation: how many, and how long after that they ended, in multiples of one
    /// alone.
    overlapped: (u32, f64),
}

impl Serial {
    pub(super) const fn new() -> Self {
        Serial {
            served: Served::Unknown,
            alone: (0, Duration::ZERO),
            parts: [(0, 0, 0); PARTS],
            operations: 0,
            last_end: Duration::ZERO,
            overlapped: (0, 0.0),
        }
    }

    pub(super) fn served(&self) -> Served {
        self.served
    }

    /// It is taken for such a device.
    pub(super) fn expect(served: Served) -> Self {
        Serial { served, ..Serial::new() }
    }

    /// What one read takes that is alone.
    pub(super) fn base(&self) -> Option<Duration> {
        let (reads, took) = self.alone;
        (reads > 0).then(|| took / reads)
    }

    /// An operation ended that had a request of its own, and began as one of `in_flight`. True: this one has told.
    pub(super) fn add(&mut self, sample: &Sample, in_flight: usize) -> bool {
        if self.served != Served::Unknown {
            return false;
        }
        self.operations += 1;
        if sample.latency < INFORMATIVE {
            // No head has moved.
            self.tell(0.0);
        } else {
            let end = sample.began + sample.latency;
            let overlap = self.last_end.saturating_sub(sample.began);
            let is_read = sample.kind == Kind::Read;
            let is_data = is_read || sample.kind == Kind::LongRead;
            if (!is_data || self.is_elsewhere(&sample.part)) && (is_read || in_flight >= DEEP) {
                if is_read && in_flight == 1 && overlap.is_zero() {
                    self.alone = (self.alone.0 + 1, self.alone.1 + sample.latency);
                } else if let Some(base) = self.base()
                    && overlap.div_duration_f64(base) >= OVERLAP
                    && end + TOGETHER > self.last_end
                {
                    let apart = end.saturating_sub(self.last_end).div_duration_f64(base);
                    let queue = sample.latency.div_duration_f64(base) / in_flight as f64;
                    self.tell(apart.min(QUEUE * queue));
                }
            }
            self.last_end = self.last_end.max(end);
        }
        if self.served == Served::Unknown && self.operations >= MOST.1 {
            self.served = Served::SideBySide;
        }
        self.served != Served::Unknown
    }

    /// Whether it does not continue what was read of late, nor repeat it. Now that was read, too.
    fn is_elsewhere(&mut self, (file, range): &(u64, Range<u64>)) -> bool {
        let continues = |(other, start, end): &(u64, u64, u64)| {
            other == file && (*start..=end + CHUNK_BYTES).contains(&range.start)
        };
        let is_elsewhere = !self.parts.iter().any(continues);
        self.parts.rotate_right(1);
        self.parts[0] = (*file, range.start, range.end);
        is_elsewhere
    }

    fn tell(&mut self, apart: f64) {
        let (reads, sum) = self.overlapped;
        let (reads, sum) = (reads + 1, sum + apart.min(CAP));
        self.overlapped = (reads, sum);
        let mean = sum / f64::from(reads);
        self.served = match reads {
            _ if reads >= BESIDE.0 && mean <= BESIDE.1 => Served::SideBySide,
            _ if reads >= SERIAL.0 && mean >= SERIAL.1 => Served::OneAtATime,
            _ if reads >= MOST.0 => Served::SideBySide,
            _ => Served::Unknown,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Duration = Duration::from_millis(8);

    fn read(file: u64, began: Duration, latency: Duration) -> Sample {
        Sample { kind: Kind::Read, device: (8, 0), part: (file, 0..4096), began, latency }
    }

    /// One read alone, and then waves of as many operations as are in flight, of so many requests each, served so many at a
    /// time.
    fn of_waves(kind: Kind, servers: u32, depth: u32, requests: u32, waves: u32) -> Served {
        let mut serial = Serial::new();
        serial.add(&read(1, Duration::ZERO, SERVICE), 1);
        for wave in 1..=waves {
            let began = wave * depth * requests * SERVICE;
            for n in 0..depth {
                let (file, latency) = (wave * depth + n, requests * SERVICE * (n / servers + 1));
                let sample = Sample { kind, ..read(file.into(), began, latency) };
                serial.add(&sample, n as usize + 1);
            }
        }
        serial.served()
    }

    fn of(servers: u32, depth: u32, waves: u32) -> Served {
        of_waves(Kind::Read, servers, depth, 1, waves)
    }

    fn of_names(servers: u32, depth: u32, requests: u32) -> Served {
        of_waves(Kind::Lookup, servers, depth, requests, 16)
    }

    #[test]
    fn a_dozen_reads_tell() {
        assert_eq!(of(1, 4, 1), Served::Unknown);
        assert_eq!(of(1, 4, 3), Served::OneAtATime);
        assert_eq!(of(1, 2, 8), Served::OneAtATime);
        assert_eq!(of(4, 4, 2), Served::SideBySide);
        assert_eq!(of(2, 4, 2), Served::SideBySide);
        assert_eq!(of(128, 2, 3), Served::SideBySide);
    }

    #[test]
    fn many_names_at_a_time_tell_as_well() {
        assert_eq!(of_names(1, 8, 1), Served::OneAtATime);
        assert_eq!(of_names(1, 8, 3), Served::OneAtATime);
        assert_eq!(of_names(8, 8, 3), Served::SideBySide);
        assert_eq!(
            of_names(1, 3, 1),
            Served::Unknown,
            "with few in flight it may be one after the other anyway"
        );
    }

    /// Of a disk that serves 128 at a time, as `tar` began on it: what overlaps by nothing, and long lookups.
    #[test]
    fn what_begins_as_another_ends_is_no_queue() {
        let mut serial = Serial::new();
        serial.add(&read(1, Duration::ZERO, SERVICE), 1);
        for n in 1..30 {
            let began = n * (SERVICE - TOGETHER / 2);
            serial.add(&read(100 * u64::from(n), began, SERVICE), 2);
        }
        assert_eq!(serial.served(), Served::Unknown);
    }

    #[test]
    fn operations_of_several_requests_are_no_queue() {
        let mut serial = Serial::new();
        serial.add(&read(1, Duration::ZERO, SERVICE), 1);
        for n in 1..=SERIAL.0 {
            let look = read(0, SERVICE, SERVICE * (n + 1));
            serial.add(&Sample { kind: Kind::Lookup, ..look }, 8);
        }
        assert_ne!(serial.served(), Served::OneAtATime);
    }

    #[test]
    fn what_is_read_twice_says_nothing() {
        let mut serial = Serial::new();
        serial.add(&read(1, Duration::ZERO, SERVICE), 1);
        for n in 1..8 {
            serial.add(&read(7, SERVICE, SERVICE + INFORMATIVE * n), 2);
        }
        assert_eq!(serial.served(), Served::Unknown);
    }

    #[test]
    fn what_needs_no_seek_is_no_spindle() {
        let mut serial = Serial::new();
        let quick = |n| read(1, SERVICE * n, INFORMATIVE / 2);
        assert!((0..BESIDE.0).map(|n| serial.add(&quick(n), 1)).last() == Some(true));
        assert_eq!(serial.served(), Served::SideBySide);
    }

    #[test]
    fn what_shows_neither_is_not_taken_for_a_spindle() {
        let mut serial = Serial::new();
        serial.add(&read(1, Duration::ZERO, SERVICE), 1);
        for n in 1..=MOST.0 {
            serial.add(&read(2 * u64::from(n), SERVICE * n, SERVICE), 2);
            serial.add(&read(2 * u64::from(n) + 1, SERVICE * n, SERVICE * 8 / 5), 2);
        }
        assert_eq!(serial.served(), Served::SideBySide);
    }

    #[test]
    fn what_continues_a_read_says_nothing() {
        let mut serial = Serial::new();
        let burst = |serial: &mut Serial, began: Duration, apart: u64| {
            for n in 1..u64::from(SERIAL.0) {
                let at = n * apart;
                let latency = SERVICE + INFORMATIVE * n as u32;
                let part = (2, at..at + CHUNK_BYTES);
                serial.add(&Sample { part, ..read(2, began, latency) }, 4);
            }
        };
        serial.add(&read(1, Duration::ZERO, SERVICE), 1);
        burst(&mut serial, SERVICE, CHUNK_BYTES);
        assert_eq!(serial.served(), Served::Unknown);
        burst(&mut serial, 9 * SERVICE, 9 * CHUNK_BYTES);
        assert_eq!(serial.served(), Served::SideBySide);
    }

    #[test]
    fn names_alone_do_not_hold_it_up_for_ever() {
        let mut serial = Serial::new();
        let look = Sample { kind: Kind::Lookup, ..read(0, Duration::ZERO, SERVICE) };
        let told =
            (0..MOST.1).map(|n| serial.add(&Sample { began: SERVICE * n, ..look.clone() }, 4));
        assert_eq!(told.filter(|told| *told).count(), 1);
        assert_eq!(serial.served(), Served::SideBySide);
    }
}
