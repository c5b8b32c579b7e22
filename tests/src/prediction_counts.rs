//! Outcomes of predictions that tests plant.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use runahead_abi::agent_config::{BUCKETS, CALLS, ERRNOS};

/// Mark in front of the number of a call that waited.
const WAITED: char = 'w';

/// Counts of the agents of one session. Its text is one line.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct PredictionCounts {
    /// Predictions that came true.
    pub committed: u64,
    /// Predictions that did not.
    pub failed: u64,
    /// Programs in which they were planted: images.
    pub programs: u64,
    /// Programs that began speculative, executed by a child of a process that speculated.
    pub executed: u64,
    /// Checkpoints that there were not, by errno.
    pub refused: BTreeMap<u32, u64>,
    /// Calls in which a process waited for the outcome, by the call's number.
    pub waited: BTreeMap<u32, u64>,
    /// Median times of a checkpoint, a commit and a rollback, in nanoseconds; 0 if there was none.
    pub took: [u64; 3],
}

impl PredictionCounts {
    /// The counts as they lie in memory.
    ///
    /// # Panics
    /// There are fewer.
    #[must_use]
    pub fn of_memory(bytes: &[u8]) -> Self {
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (ended, words) = words.split_at(2);
        let (refused, words) = words.split_at(ERRNOS);
        let by_number = |counts: &[u64]| {
            (0..).zip(counts.iter().copied()).filter(|(_, count)| *count > 0).collect()
        };
        let refused = by_number(refused);
        let (took, words) = words.split_at(3 * BUCKETS);
        let took = [0, 1, 2].map(|what| median(&took[what * BUCKETS..][..BUCKETS]));
        let waited = by_number(&words[2..2 + CALLS]);
        let (committed, failed, [programs, executed]) = (ended[0], ended[1], [words[0], words[1]]);
        PredictionCounts { committed, failed, programs, executed, refused, waited, took }
    }
}

/// The lower end of the bucket in which the median is.
fn median(buckets: &[u64]) -> u64 {
    let (all, mut seen) = (buckets.iter().sum::<u64>(), 0);
    let is_it = |count: &u64| {
        seen += count;
        all > 0 && seen * 2 >= all
    };
    let lower = |bucket: usize| (8 + bucket as u64 % 8) << (bucket / 8);
    buckets.iter().position(is_it).map_or(0, lower)
}

impl fmt::Display for PredictionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PredictionCounts { committed, failed, programs, executed, refused, waited, took } =
            self;
        let [a, b, c] = took;
        write!(f, "{committed} {failed} {programs} {executed} {a} {b} {c}")?;
        refused.iter().try_for_each(|(errno, count)| write!(f, " {errno}={count}"))?;
        waited.iter().try_for_each(|(nr, count)| write!(f, " {WAITED}{nr}={count}"))?;
        writeln!(f)
    }
}

impl FromStr for PredictionCounts {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("not what agents counted: {line}");
        let mut words = line.split_whitespace();
        let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong);
        let (committed, failed) = (number()?, number()?);
        let (programs, executed) = (number()?, number()?);
        let took = [number()?, number()?, number()?];
        let (mut refused, mut waited) = (BTreeMap::new(), BTreeMap::new());
        for word in words {
            let (number, count) = word.split_once('=').ok_or_else(wrong)?;
            let (counts, number) = match number.strip_prefix(WAITED) {
                Some(nr) => (&mut waited, nr),
                None => (&mut refused, number),
            };
            counts
                .insert(number.parse().map_err(|_| wrong())?, count.parse().map_err(|_| wrong())?);
        }
        Ok(PredictionCounts { committed, failed, programs, executed, refused, waited, took })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let refused = BTreeMap::from([(11, 2), (22, 40)]);
        let (waited, took) = (BTreeMap::from([(231, 9)]), [1, 2, 3]);
        let one = PredictionCounts {
            committed: 7,
            failed: 5,
            programs: 3,
            executed: 2,
            refused,
            waited,
            took,
        };
        assert_eq!(one.to_string(), "7 5 3 2 1 2 3 11=2 22=40 w231=9\n");
        assert_eq!(one.to_string().parse(), Ok(one));
        assert!("1 2 3".parse::<PredictionCounts>().is_err());
        assert!("1 2 3 4 5 6 7 8".parse::<PredictionCounts>().is_err());
    }

    #[test]
    fn the_median_is_that_of_the_buckets() {
        let mut buckets = [0; BUCKETS];
        assert_eq!(median(&buckets), 0);
        // 1000 = 8 * 125: from 960 on, below 1024.
        (buckets[0], buckets[6 * 8 + 7], buckets[255]) = (1, 3, 1);
        assert_eq!(median(&buckets), 960);
    }
}
