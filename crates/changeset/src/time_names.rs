//! Names of tries: the time of the start in base 32, so that names sort by time.
//!
//! Seven digits are the seconds since 1970, enough until the year 3058, and two the milliseconds.
//! Names of older tries lack the milliseconds, and sort before those of the same second.

use std::time::Duration;

const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Returns the name for a start at `time` since 1970.
pub(crate) fn time_name(time: Duration) -> String {
    let milliseconds = (time.as_secs() << 10) + u64::from(time.subsec_millis());
    let digit = |n: u32| char::from(DIGITS[(milliseconds >> (5 * n)) as usize & 31]);
    (0..9).rev().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_time() {
        let times = [0, 1, 999, 1000, 31_999, 32_000, 1_700_000_000_000, 1_700_000_000_001];
        assert!(times.map(|time| time_name(Duration::from_millis(time))).is_sorted());
        let last = time_name(Duration::from_secs((1 << 35) - 1));
        assert_eq!(last, "zzzzzzz00");
        assert!("zzzzzzz" < last.as_str(), "the older name of the same second");
    }
}
