//! Whether a device serves one request at a time, from its very first reads.
//!
//! Where it does, reads that overlap end one after the other, each as long after the one before as a read takes that is
//! alone. Where requests are served side by side the ends lie closer, whatever the depth, the more so the more there
//! are. (What continues the read before it needs no seek: of one file only the first of late says something.) So a dozen reads tell, in the middle of a burst of all kinds of operations, while a round needs two bursts
//! of one kind ([`super`]). Until they have told, few are sent: on one spindle each that is not needed costs the target
//! a seek, and elsewhere three reads are there within two latencies.

use std::time::Duration;

use super::{INFORMATIVE, Kind, Sample};

/// Reads that show that requests are served side by side, and how far apart they end, as a multiple of one alone.
const BESIDE: (u32, f64) = (3, 0.5);
/// The same for one at a time.
const SERIAL: (u32, f64) = (8, 0.75);
/// With so many that show neither the device is none that is served one at a time, at any rate.
const MOST: u32 = 24;
/// What ends so little before another has ended with it. What ended earlier is heard of late, and says nothing.
const TOGETHER: Duration = Duration::from_micros(100);
/// Files that were read of late.
const FILES: usize = 4;
/// What one read tells at most: it may have been slow.
const CAP: f64 = 1.25;

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
    /// Those that were read last, by inode.
    files: [u64; FILES],
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
            files: [0; FILES],
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
        if sample.latency < INFORMATIVE {
            // No head has moved.
            self.tell(0.0);
        } else {
            let end = sample.began + sample.latency;
            let overlaps = sample.began < self.last_end;
            if sample.kind == Kind::Read && self.is_another(sample.file) {
                if in_flight == 1 && !overlaps {
                    self.alone = (self.alone.0 + 1, self.alone.1 + sample.latency);
                } else if overlaps
                    && end + TOGETHER > self.last_end
                    && let Some(base) = self.base()
                {
                    self.tell(end.saturating_sub(self.last_end).div_duration_f64(base));
                }
            }
            self.last_end = self.last_end.max(end);
        }
        self.served != Served::Unknown
    }

    /// Whether `file` was not read of late. Now it is.
    fn is_another(&mut self, file: u64) -> bool {
        let is_known = self.files.contains(&file);
        self.files.rotate_right(1);
        self.files[0] = file;
        !is_known
    }

    fn tell(&mut self, apart: f64) {
        let (reads, sum) = self.overlapped;
        let (reads, sum) = (reads + 1, sum + apart.min(CAP));
        self.overlapped = (reads, sum);
        let mean = sum / f64::from(reads);
        self.served = match reads {
            _ if reads >= BESIDE.0 && mean <= BESIDE.1 => Served::SideBySide,
            _ if reads >= SERIAL.0 && mean >= SERIAL.1 => Served::OneAtATime,
            MOST.. => Served::SideBySide,
            _ => Served::Unknown,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Duration = Duration::from_millis(8);

    fn read(file: u64, began: Duration, latency: Duration) -> Sample {
        Sample { kind: Kind::Read, device: (8, 0), file, began, latency }
    }

    /// One alone, and then waves of as many reads as are in flight, served so many at a time.
    fn of(servers: u32, depth: u32, waves: u32) -> Served {
        let mut serial = Serial::new();
        serial.add(&read(1, Duration::ZERO, SERVICE), 1);
        for wave in 1..=waves {
            let began = wave * depth * SERVICE;
            for n in 0..depth {
                let (file, latency) = (u64::from(wave * depth + n), SERVICE * (n / servers + 1));
                serial.add(&read(file, began, latency), n as usize + 1);
            }
        }
        serial.served()
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
        for n in 1..=MOST {
            serial.add(&read(2 * u64::from(n), SERVICE * n, SERVICE), 2);
            serial.add(&read(2 * u64::from(n) + 1, SERVICE * n, SERVICE * 8 / 5), 2);
        }
        assert_eq!(serial.served(), Served::SideBySide);
    }

    #[test]
    fn what_continues_a_read_says_nothing() {
        let mut serial = Serial::new();
        serial.add(&read(1, Duration::ZERO, SERVICE), 1);
        for n in 1..=100 {
            serial.add(&read(2, SERVICE, SERVICE + INFORMATIVE * n), 4);
        }
        assert_eq!(serial.served(), Served::Unknown);
    }
}
