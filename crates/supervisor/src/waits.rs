//! Tells agents on which devices somebody has waited of late (`abi::slow`).

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use runahead_abi::{Control, SlowDevices};

use crate::clock::ticks;
use crate::memory::Front;

/// What one wait is taken to be at most: programs tell of theirs, and may tell anything.
const LONGEST: Duration = Duration::from_secs(1);

/// See the module's text.
pub struct Waits {
    front: Front,
    ticks_per_us: u64,
}

impl Waits {
    /// For the agent's file, of which that is the front.
    pub fn new(front: Front, ticks_per_us: u64) -> Self {
        Waits { front, ticks_per_us }
    }

    /// Has programs expect to wait from their start.
    pub fn expect(&self) {
        self.devices().waited(u64::MAX, u64::MAX, 0);
    }

    fn devices(&self) -> &SlowDevices {
        self.front.slow_devices()
    }

    /// The prefetcher has waited.
    pub fn waited(&self, device: u64, time: Duration) {
        let time = time.min(LONGEST).as_micros() as u64;
        self.devices().waited(device, ticks(), time * self.ticks_per_us);
    }

    /// A process has, if it says so.
    pub fn hear_of(&self, control: &Control) {
        if control.waited_ticks.load(Relaxed) == 0 {
            return;
        }
        let time = control.waited_ticks.swap(0, Relaxed);
        let longest = LONGEST.as_micros() as u64 * self.ticks_per_us;
        let device = control.waited_device.load(Relaxed);
        self.devices().waited(device, ticks(), time.min(longest));
    }
}
