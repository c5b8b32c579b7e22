//! Limits on what runahead costs: units, and how much more there may be of them under runahead.
//!
//! Invariant: limits are on medians of one run of the benchmark, plain against runahead (with
//! everything in memory: of the figures; from storage: of the ratios of pairs); never on a figure
//! alone.

use serde::{Deserialize, Serialize};

/// Unit of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Elapsed time of the command.
    Seconds,
    /// Time of one call, as the program prints it.
    NanosecondsPerCall,
    /// Time of one program that a script starts.
    MicrosecondsPerStart,
    /// Requests that a server answers: the only unit of which more is better.
    RequestsPerSecond,
    /// Resident memory.
    KiB,
}

impl Unit {
    /// A value with its unit, for people.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Seconds if value.abs() < 1.0 => format!("{:.1} ms", value * 1e3),
            Self::Seconds => format!("{value:.2} s"),
            Self::NanosecondsPerCall => format!("{value:.1} ns"),
            Self::MicrosecondsPerStart => format!("{value:.0} µs"),
            Self::RequestsPerSecond => format!("{value:.0}/s"),
            Self::KiB => format!("{value:.0} KiB"),
        }
    }

    fn more_is_better(self) -> bool {
        self == Self::RequestsPerSecond
    }
}

/// Limits of a row of costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Unit of the figures of its runs.
    pub unit: Unit,
    /// Largest ratio of runahead's figure and plain's; the smallest if more is better.
    pub ratio: Option<f64>,
    /// Largest difference of runahead's figure and plain's.
    pub added: Option<f64>,
}

impl Cost {
    /// Limits with a ratio only.
    pub const fn ratio(unit: Unit, ratio: f64) -> Self {
        Self { unit, ratio: Some(ratio), added: None }
    }

    /// Limits with a difference only.
    pub const fn added(unit: Unit, added: f64) -> Self {
        Self { unit, ratio: None, added: Some(added) }
    }

    /// True if the ratio and the difference of runahead's figure and plain's are within all limits.
    pub fn met(&self, ratio: f64, added: f64) -> bool {
        let ratio_met = self.ratio.is_none_or(|limit| match self.unit.more_is_better() {
            true => ratio >= limit,
            false => ratio <= limit,
        });
        ratio_met && self.added.is_none_or(|limit| added <= limit)
    }

    /// The limits, for people: `at most 1.1, +40.0 ns`.
    pub fn asked(&self) -> String {
        let bound = if self.unit.more_is_better() { "at least" } else { "at most" };
        let ratio = self.ratio.map(|limit| format!("{limit}"));
        let added = self.added.map(|limit| self.difference(limit));
        let limits: Vec<_> = [ratio, added].into_iter().flatten().collect();
        format!("{bound} {}", limits.join(", "))
    }

    /// A difference with its sign and unit.
    pub fn difference(&self, value: f64) -> String {
        let sign = if value < 0.0 { "" } else { "+" };
        format!("{sign}{}", self.unit.show(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_to_be_met() {
        let pread = Cost { unit: Unit::NanosecondsPerCall, ratio: Some(1.1), added: Some(40.0) };
        assert!(pread.met(1.04, 40.0) && !pread.met(1.04, 41.0));
        assert!(pread.met(1.1, 10.0) && !pread.met(1.11, 11.0));
        let memory = Cost::added(Unit::KiB, 1024.0);
        assert!(memory.met(100.0, 1024.0) && !memory.met(1.0, 1025.0));
    }

    #[test]
    fn a_rate_may_not_fall() {
        let rate = Cost::ratio(Unit::RequestsPerSecond, 0.98);
        assert!(rate.met(0.98, -2.0) && !rate.met(0.97, -3.0) && rate.met(2.0, 100.0));
    }

    #[test]
    fn limits_are_shown() {
        let both = Cost { unit: Unit::NanosecondsPerCall, ratio: Some(1.1), added: Some(40.0) };
        assert_eq!(both.asked(), "at most 1.1, +40.0 ns");
        assert_eq!(Cost::ratio(Unit::RequestsPerSecond, 0.98).asked(), "at least 0.98");
        assert_eq!(both.difference(-2.0), "-2.0 ns");
    }
}
