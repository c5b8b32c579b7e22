//! Sizes, durations and fractions as people write them on a command line.
//!
//! Invariant: a number without a unit is refused, except for a plain byte count, so that no user
//! gets seconds for milliseconds.

use std::time::Duration;

/// Why a size, duration or percentage was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// There is no number at the start.
    #[error("{0:?} does not start with a number")]
    Number(String),
    /// The unit is missing or unknown.
    #[error("{text:?} has no known unit; use one of {expected}")]
    Unit {
        /// Text that was given.
        text: String,
        /// The units that are known.
        expected: &'static str,
    },
    /// The value does not fit.
    #[error("{0:?} is out of range")]
    Range(String),
}

const SIZE_UNITS: &str = "B, KiB, MiB, GiB, TiB, kB, MB, GB, TB";
const DURATION_UNITS: &str = "ns, us, ms, s, m";

fn split(text: &str) -> Result<(f64, &str), ParseError> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().map_err(|_| ParseError::Number(text.to_owned()))?;
    Ok((number, unit.trim()))
}

/// Parses a size into bytes: `4096`, `64KiB`, `1.5GiB`, `2GB`; `K`, `M`, `G` and `T` are powers of
/// 1024.
///
/// # Errors
/// No number, an unknown unit, or more than fits 63 bits.
pub fn parse_size(text: &str) -> Result<u64, ParseError> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => {
            return Err(ParseError::Unit { text: text.to_owned(), expected: SIZE_UNITS });
        }
    };
    let bytes = number * factor as f64;
    if bytes >= i64::MAX as f64 {
        return Err(ParseError::Range(text.to_owned()));
    }
    Ok(bytes.round() as u64)
}

/// Parses a duration: `5ms`, `250us`, `1.5s`, `2m`; plain `0` needs no unit.
///
/// # Errors
/// No number, a missing or unknown unit, or more than an hour, which is surely a mistake and would
/// hang every reader.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    let (number, unit) = split(text)?;
    let nanos = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "" if number == 0.0 => 1.0,
        _ => {
            return Err(ParseError::Unit { text: text.to_owned(), expected: DURATION_UNITS });
        }
    } * number;
    if nanos > 3600e9 {
        return Err(ParseError::Range(text.to_owned()));
    }
    Ok(Duration::from_nanos(nanos.round() as u64))
}

/// Parses a percentage, `20%`, into a fraction between 0 and 1.
///
/// # Errors
/// No number, no percent sign, or more than 100%.
pub fn parse_percent(text: &str) -> Result<f64, ParseError> {
    let (number, unit) = split(text)?;
    if unit != "%" {
        return Err(ParseError::Unit { text: text.to_owned(), expected: "%" });
    }
    if number > 100.0 {
        return Err(ParseError::Range(text.to_owned()));
    }
    Ok(number / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert_eq!(parse_size(" 1.5 GiB "), Ok(3 << 29));
        assert_eq!(parse_size("2GB"), Ok(2_000_000_000));
        assert!(matches!(parse_size("GiB"), Err(ParseError::Number(_))));
        assert!(matches!(parse_size(""), Err(ParseError::Number(_))));
        assert!(matches!(parse_size("-1K"), Err(ParseError::Number(_))));
        assert!(matches!(parse_size("1.2.3K"), Err(ParseError::Number(_))));
        assert!(matches!(parse_size("3 apples"), Err(ParseError::Unit { .. })));
        assert!(matches!(parse_size("99999999TiB"), Err(ParseError::Range(_))));
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(parse_duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert!(matches!(parse_duration("5"), Err(ParseError::Unit { .. })));
        assert!(matches!(parse_duration("fast"), Err(ParseError::Number(_))));
        assert!(matches!(parse_duration("2000000s"), Err(ParseError::Range(_))));
    }

    #[test]
    fn percentages() {
        assert_eq!(parse_percent("20%"), Ok(0.2));
        assert!(matches!(parse_percent("0.2"), Err(ParseError::Unit { .. })));
        assert!(matches!(parse_percent("101%"), Err(ParseError::Range(_))));
    }
}
