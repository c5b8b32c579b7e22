//! What came of predictions that tests plant.

use std::fmt;
use std::str::FromStr;

use runahead_abi::config::{BUCKETS, ERRNOS};

/// What the agents of one session counted (`agent/src/speculation/planted.rs`). Its text is one line.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Speculated {
    /// Predictions that came true.
    pub committed: u64,
    /// Predictions that did not.
    pub failed: u64,
    /// Checkpoints that there were not.
    pub refused: u64,
    /// Nanoseconds that a checkpoint, a commit and a rollback took, in the median; 0: there was none.
    pub took: [u64; 3],
}

impl Speculated {
    /// The counts as they lie in memory.
    ///
    /// # Panics
    /// There are fewer.
    #[must_use]
    pub fn of_memory(bytes: &[u8]) -> Self {
        let words: Vec<u64> =
            bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let refused = words[2..][..ERRNOS].iter().sum();
        let took = |what: usize| median(&words[2 + ERRNOS + what * BUCKETS..][..BUCKETS]);
        let took = [0, 1, 2].map(took);
        Speculated { committed: words[0], failed: words[1], refused, took }
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

impl fmt::Display for Speculated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Speculated { committed, failed, refused, took: [a, b, c] } = self;
        writeln!(f, "{committed} {failed} {refused} {a} {b} {c}")
    }
}

impl FromStr for Speculated {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        let &[committed, failed, refused, a, b, c] = words.as_deref().unwrap_or_default() else {
            return Err(format!("not six numbers: {line}"));
        };
        Ok(Speculated { committed, failed, refused, took: [a, b, c] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_that_of_the_buckets() {
        let mut buckets = [0; BUCKETS];
        assert_eq!(median(&buckets), 0);
        // 1000 = 8 * 125: from 960 on, below 1024.
        (buckets[0], buckets[6 * 8 + 7], buckets[255]) = (1, 3, 1);
        assert_eq!(median(&buckets), 960);
    }
}
