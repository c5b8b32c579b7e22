//! Horizon: how far ahead of the target a hint is worth acting on.
//!
//! TIP's *prefetch horizon* (Patterson et al.; Chang 2001, section 2.2.3.1; Fraser & Chang 2003,
//! section 4.1.3) is the number of accesses after which fetching sooner brings nothing: what is
//! asked for while the target still has `service / compute` accesses to make is there when it
//! comes. TIP assumed storage that serves any number of requests at once. Where it serves
//! `parallel` at a time and the target is faster than that, the storage is what the target waits
//! for, and what counts is that it never idles: as many accesses ahead as it serves side by side.
//! So the horizon is the larger of the two, times [`MARGIN`]. Where heads have to be moved, such a
//! target gains from order as well: the more hints there are to choose from, the fewer seeks. There
//! a whole sweep ([`crate::request_queue`]) is within the horizon.
//!
//! *Cost and benefit.* Within the horizon a hint has a benefit, a stall less, and waits for nothing
//! but its place in line. Beyond it there is none to be had by acting now, and there are two costs:
//! memory that is occupied for longer, and delay for what comes up meanwhile. The first is bounded
//! by the client's budget, which nothing but a demand may exceed. The second is nothing where the
//! storage idles: then hints beyond the horizon are acted on, too, as long as they leave half of
//! the limit free, so that what becomes near finds room at once. They pay when the target's pace
//! was measured wrong, or changes.

use std::time::Duration;

/// The limit lets latency grow to twice its base, so what is asked for now may take that long.
pub const MARGIN: u64 = 2;

/// Items in one sweep, and files kept open at most while lookups go first.
pub(crate) const WINDOW: usize = 2048;

/// Compute times below this are not believed: a horizon is no use beyond any real queue.
const COMPUTE_MIN: Duration = Duration::from_micros(1);

/// Inputs of the horizon of a target on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Horizon {
    /// Latency of a request that waits for no other.
    pub service: Duration,
    /// Requests that are usefully in flight at a time, as measured.
    pub parallel: usize,
    /// Computing time of the target from one access to the next, without its stalls.
    pub compute: Duration,
    /// Hints from which to choose an order, where that saves time: 0 where nothing seeks.
    pub sweep: usize,
}

impl Horizon {
    /// Returns the accesses ahead of the target at which hints are worth acting on; at least 1.
    pub fn accesses(&self) -> u64 {
        let compute = self.compute.max(COMPUTE_MIN);
        let hides = self.service.as_nanos().div_ceil(compute.as_nanos());
        let hides = u64::try_from(hides).unwrap_or(u64::MAX);
        let busy = self.parallel.max(1) as u64;
        // It waits for the storage in any case.
        let sweep = if hides > busy { self.sweep as u64 } else { 0 };
        hides.max(busy).max(sweep).saturating_mul(MARGIN)
    }
}

/// A client's target, as far as the scheduler is concerned; see [`crate::Client::set_pace`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Computing time of the target from one access to the next, without its stalls.
    pub compute: Duration,
    /// Bytes that may have been read, or be under way, for accesses that the target has not made
    /// yet.
    pub budget: u64,
}

/// Speed of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Speed {
    pub service: Duration,
    pub parallel: usize,
    pub sweep: usize,
}

impl Default for Speed {
    /// Speed of an unknown device: wide and slow, where most can be gained.
    fn default() -> Self {
        Speed { service: Duration::from_millis(10), parallel: 64, sweep: 0 }
    }
}

impl Speed {
    pub(crate) fn horizon(self, compute: Duration) -> Horizon {
        let Speed { service, parallel, sweep } = self;
        Horizon { service, parallel, compute, sweep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accesses(service_us: u64, parallel: usize, compute_us: u64) -> u64 {
        let [service, compute] = [service_us, compute_us].map(Duration::from_micros);
        Horizon { service, parallel, compute, sweep: 0 }.accesses()
    }

    #[test]
    fn a_target_that_computes_much_needs_little() {
        // A seek takes as long as it computes: the next access and, with the margin, one more.
        assert_eq!(accesses(12_000, 1, 12_000), 2);
        assert_eq!(accesses(5_000, 1, 50), 200);
        assert_eq!(accesses(5_000, 1, 1_000_000), 2);
    }

    #[test]
    fn wide_storage_is_kept_busy_by_a_fast_target() {
        assert_eq!(accesses(100, 128, 100), 256);
        assert_eq!(accesses(5_000, 128, 5), 2_000);
    }

    #[test]
    fn a_sweep_counts_where_the_target_waits_for_the_storage() {
        let of = |compute_us| {
            let [service, compute] = [12_000, compute_us].map(Duration::from_micros);
            Horizon { service, parallel: 2, compute, sweep: 512 }.accesses()
        };
        assert_eq!((of(1_000), of(12_000)), (1024, 4));
    }

    #[test]
    fn no_values_are_too_odd() {
        assert_eq!(accesses(0, 0, 0), 2);
        let most = Duration::MAX;
        let horizon =
            Horizon { service: most, parallel: usize::MAX, compute: Duration::ZERO, sweep: 0 };
        assert_eq!(horizon.accesses(), u64::MAX);
    }
}
