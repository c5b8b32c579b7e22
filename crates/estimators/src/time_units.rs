//! Units of time: ticks of the time-stamp counter, by which agents measure, and microseconds, in
//! which limits are given.

use core::num::NonZeroU64;
use core::ops::{Add, Div, Mul};

/// Time-stamp, or the difference of two, in ticks of the time-stamp counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Ticks(pub u64);

/// Time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Micros(pub u64);

/// Time-stamp ticks in a microsecond; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct TickRate(NonZeroU64);

impl TickRate {
    /// Rate of one tick in a microsecond, which stands for an unknown one.
    pub const ONE: TickRate = TickRate(NonZeroU64::MIN);

    /// Rate of `ticks_per_us`; 0, an unknown rate, counts as 1.
    pub const fn new(ticks_per_us: u64) -> Self {
        match NonZeroU64::new(ticks_per_us) {
            Some(rate) => TickRate(rate),
            None => TickRate::ONE,
        }
    }

    /// Ticks in a microsecond.
    pub const fn ticks_per_us(self) -> u64 {
        self.0.get()
    }
}

impl Ticks {
    /// Whole microseconds in this time.
    pub fn to_micros(self, rate: TickRate) -> Micros {
        Micros(self.0 / rate.0)
    }

    /// Difference modulo 2^64: a later `earlier` gives a very long time.
    pub const fn wrapping_sub(self, earlier: Ticks) -> Ticks {
        Ticks(self.0.wrapping_sub(earlier.0))
    }

    /// Difference; 0 if `earlier` is later.
    pub const fn saturating_sub(self, earlier: Ticks) -> Ticks {
        Ticks(self.0.saturating_sub(earlier.0))
    }

    /// Mean of `count` times whose sum this is; `None` if there were none.
    pub fn mean_of(self, count: u64) -> Option<Ticks> {
        self.0.checked_div(count).map(Ticks)
    }
}

impl Micros {
    /// Ticks in this time, at most the longest time.
    pub const fn to_ticks(self, rate: TickRate) -> Ticks {
        Ticks(self.0.saturating_mul(rate.ticks_per_us()))
    }

    /// Difference; 0 if `other` is longer.
    pub const fn saturating_sub(self, other: Micros) -> Micros {
        Micros(self.0.saturating_sub(other.0))
    }
}

macro_rules! arithmetic {
    ($unit:ident) => {
        impl Add for $unit {
            type Output = $unit;
            fn add(self, other: $unit) -> $unit {
                $unit(self.0 + other.0)
            }
        }

        impl Mul<u64> for $unit {
            type Output = $unit;
            fn mul(self, factor: u64) -> $unit {
                $unit(self.0 * factor)
            }
        }

        impl Div<u64> for $unit {
            type Output = $unit;
            fn div(self, divisor: u64) -> $unit {
                $unit(self.0 / divisor)
            }
        }
    };
}

arithmetic!(Ticks);
arithmetic!(Micros);
