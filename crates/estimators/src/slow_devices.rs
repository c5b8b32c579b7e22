//! Devices on which a process has waited recently.
//!
//! A name that the kernel does not know may still be answered from memory: the directory it belongs
//! to lies there, and only the name was never asked for. The agent cannot know that beforehand. So
//! it looks here when it meets such a name: if no process has waited lately, to wait once is
//! cheaper than to make a shadow for nothing each time. While no device is slow at all, no agent
//! probes.
//!
//! There is one table for a session, at the front of the agent's file. The supervisor writes it.
//! Agents see it through their private mapping, which shows what the file holds as long as the
//! process has not written to that page (mmap(2) leaves it open; Linux maps the page cache's own
//! page until then). An agent that sees an old state makes a shadow too many or waits once more.
//!
//! Invariant: a wait makes its device slow for [`FACTOR`] times as long as it took. So of the time
//! spent with storage, at most one part in [`FACTOR`] is lost to waits that nothing was made of.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Ticks;

/// Devices that can be in the table.
pub const SLOW_DEVICES_MAX: usize = 16;
/// Time that a device is slow after a wait, in units of the wait.
pub const FACTOR: u64 = 64;
/// Divisor of the growth of the usual wait: it grows by one part in this many with each longer
/// wait.
const USUAL_GROWS: u64 = 8;
/// Longer than any wait.
const EXPECTED: Ticks = Ticks(u64::MAX / 2);

#[repr(C)]
struct Device {
    /// Number of the device (`runahead_abi::device_number`); 0: none.
    number: AtomicU64,
    /// Time-stamp up to which it is slow.
    until_ticks: AtomicU64,
}

/// Table of slow devices.
#[repr(C)]
pub struct SlowDevices {
    /// The latest `until_ticks` of all that were.
    latest_ticks: AtomicU64,
    /// Usual time of a wait, in time-stamp ticks ([`SlowDevices::usual`]).
    usual_ticks: AtomicU64,
    devices: [Device; SLOW_DEVICES_MAX],
}

impl SlowDevices {
    /// True if a process has waited on device `number` not long before `now`.
    pub fn is_slow(&self, number: u64, now: Ticks) -> bool {
        let is_it =
            |d: &Device| d.number.load(Relaxed) == number && d.until_ticks.load(Relaxed) > now.0;
        self.devices.iter().any(is_it)
    }

    /// Time-stamp up to which any device is slow; 0: no process has waited.
    pub fn latest(&self) -> Ticks {
        Ticks(self.latest_ticks.load(Relaxed))
    }

    /// True if any device is slow. The clock is not read if no process has waited.
    pub fn is_any_slow(&self, now: impl FnOnce() -> Ticks) -> bool {
        let until = self.latest();
        until != Ticks(0) && until > now()
    }

    /// Usual time of a wait while no other wait is in progress: about the shortest of late. 0: no
    /// process has waited.
    pub fn usual(&self) -> Ticks {
        Ticks(self.usual_ticks.load(Relaxed))
    }

    /// Makes a new process expect to wait for long, whatever other processes do.
    pub fn expect(&self) {
        self.latest_ticks.store(u64::MAX, Relaxed);
        self.usual_ticks.store(EXPECTED.0, Relaxed);
    }

    /// Notes a wait of `time` for the device, until `now`. Threads that note two devices at once
    /// may lose one.
    pub fn waited(&self, number: u64, now: Ticks, time: Ticks) {
        let until = now.0.saturating_add(time.0.saturating_mul(FACTOR));
        self.latest_ticks.fetch_max(until, Relaxed);
        let usual = self.usual();
        if usual != EXPECTED {
            let slower = if usual == Ticks(0) { EXPECTED } else { usual + usual / USUAL_GROWS };
            self.usual_ticks.store(time.min(slower).0, Relaxed);
        }
        let devices = &self.devices;
        let known = devices.iter().find(|d| d.number.load(Relaxed) == number);
        let device = known.or_else(|| devices.iter().min_by_key(|d| d.until_ticks.load(Relaxed)));
        let Some(device) = device else { return };
        if device.number.swap(number, Relaxed) == number {
            device.until_ticks.fetch_max(until, Relaxed);
        } else {
            device.until_ticks.store(until, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> SlowDevices {
        SlowDevices {
            latest_ticks: AtomicU64::new(0),
            usual_ticks: AtomicU64::new(0),
            devices: [const { Device { number: AtomicU64::new(0), until_ticks: AtomicU64::new(0) } };
                SLOW_DEVICES_MAX],
        }
    }

    #[test]
    fn a_device_is_slow_for_as_long_as_the_wait_was_worth() {
        let table = table();
        table.waited(7, Ticks(1000), Ticks(10));
        assert!(table.is_slow(7, Ticks(1000 + 10 * FACTOR - 1)));
        assert!(!table.is_slow(7, Ticks(1000 + 10 * FACTOR)) && !table.is_slow(8, Ticks(1000)));
        table.waited(7, Ticks(1001), Ticks(1));
        assert!(table.is_slow(7, Ticks(1000 + 10 * FACTOR - 1)), "the longer wait counts");
        assert_eq!(table.latest(), Ticks(1000 + 10 * FACTOR));
    }

    #[test]
    fn a_wait_usually_takes_what_the_shortest_of_late_took() {
        let table = table();
        assert_eq!(table.usual(), Ticks(0));
        for (took, usual) in [(8000, 8000), (800, 800), (9000, 900), (850, 850)] {
            table.waited(7, Ticks(1), Ticks(took));
            assert_eq!(table.usual(), Ticks(usual));
        }
        (0..100).for_each(|_| table.waited(8, Ticks(1), Ticks(9000)));
        assert_eq!(table.usual(), Ticks(9000));
        table.expect();
        table.waited(8, Ticks(1), Ticks(900));
        assert!(table.usual() > Ticks(1 << 60) && table.latest() == Ticks(u64::MAX));
    }

    #[test]
    fn the_one_that_is_over_first_gives_way() {
        let table = table();
        table.waited(100, Ticks(1 << 60), Ticks(1));
        (1..=2 * SLOW_DEVICES_MAX as u64).for_each(|n| table.waited(n, Ticks(n), Ticks(1)));
        assert!(table.is_slow(100, Ticks(1 << 60)));
        assert!(
            !table.is_slow(1, Ticks(1)) && table.is_slow(2 * SLOW_DEVICES_MAX as u64, Ticks(1))
        );
    }
}
