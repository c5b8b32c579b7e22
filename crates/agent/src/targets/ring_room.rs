//! Waits for room in the target's ring, where all accesses are to be recorded.
//!
//! The clock alone does not tell if the supervisor responds. Where processors are contended, a
//! pause of a tenth of a millisecond takes tens of them, here and in the supervisor. So a wait goes
//! on as long as the supervisor takes records out. It ends after [`PATIENCE`] and [`PAUSES_MIN`]
//! pauses in which it took none.

use runahead_abi::Shared;
use runahead_estimators::{Micros, TickRate, Ticks};

use crate::sys;
use crate::time_stamp::ticks;

/// Longest wait for a supervisor that takes nothing out.
const PATIENCE: Micros = Micros(100_000);
/// Fewest pauses of that wait.
const PAUSES_MIN: u32 = 20;
/// Length of a pause, in microseconds.
const PAUSE_US: u64 = 100;

/// A wait for room.
pub(super) struct RoomWait {
    /// Bytes that had been taken out at the last look.
    taken: u32,
    /// Time-stamp of the first look that saw as many.
    since: Ticks,
    /// Pauses since then.
    pauses: u32,
}

impl RoomWait {
    pub(super) fn new(shared: &Shared) -> Self {
        RoomWait { taken: shared.ring(0).taken(), since: ticks(), pauses: 0 }
    }

    /// Pauses. Returns false once the supervisor has taken nothing out for too long.
    pub(super) fn pause(&mut self, shared: &Shared, rate: TickRate) -> bool {
        sys::sleep_us(PAUSE_US);
        let taken = shared.ring(0).taken();
        if taken != self.taken {
            *self = RoomWait { taken, since: ticks(), pauses: 0 };
            return true;
        }
        self.pauses += 1;
        self.pauses < PAUSES_MIN || ticks().wrapping_sub(self.since) < PATIENCE.to_ticks(rate)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use runahead_abi::hint_record::MAX_RECORD;
    use std::boxed::Box;

    fn shared() -> Box<Shared> {
        // SAFETY: atomics and integers, for which zeroes are valid.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// A rate at which the patience is over with the first pause.
    const HASTE: TickRate = TickRate::ONE;

    #[test]
    fn a_supervisor_that_takes_nothing_is_given_a_number_of_pauses() {
        let shared = shared();
        let mut wait = RoomWait::new(&shared);
        let pauses = (0..10 * PAUSES_MIN).take_while(|_| wait.pause(&shared, HASTE)).count();
        assert!(pauses as u32 + 1 >= PAUSES_MIN, "{pauses}");
        assert!(!wait.pause(&shared, HASTE));
    }

    #[test]
    fn a_wait_goes_on_while_records_are_taken_out() {
        let shared = shared();
        let ring = shared.ring(0);
        let mut wait = RoomWait::new(&shared);
        let mut room = [0; MAX_RECORD];
        for n in 0..3 * PAUSES_MIN {
            if n % 7 == 0 {
                assert!(ring.push(&[b"no record"]));
                let _ = ring.pop(&mut room);
            }
            assert!(wait.pause(&shared, HASTE), "pause {n}");
        }
    }
}
