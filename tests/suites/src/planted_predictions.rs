//! Outcomes of predictions that were planted in units.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;

use runahead_tests::prediction_counts::PredictionCounts;
use serde::{Deserialize, Serialize};

/// Numbers of predictions, of one unit or of several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predictions {
    /// Predictions that were right.
    pub right: u64,
    /// Predictions that were wrong: the process was rolled back.
    pub wrong: u64,
    /// Programs in which predictions were planted.
    pub programs: u64,
    /// Refused checkpoints by errno: the process continued without a prediction.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<u32, u64>,
}

impl From<PredictionCounts> for Predictions {
    fn from(seen: PredictionCounts) -> Self {
        let PredictionCounts { committed, failed, programs, refused, .. } = seen;
        Self { right: committed, wrong: failed, programs, refused }
    }
}

impl<'a> Sum<&'a Predictions> for Predictions {
    fn sum<I: Iterator<Item = &'a Predictions>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum.right += one.right;
            sum.wrong += one.wrong;
            sum.programs += one.programs;
            for (errno, count) in &one.refused {
                *sum.refused.entry(*errno).or_default() += count;
            }
            sum
        })
    }
}

impl Predictions {
    /// Renders the refusals by name: `EAGAIN 5, ENOMEM 1`.
    pub fn refusals(&self) -> String {
        let mut all: Vec<_> = self.refused.iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let named = |(errno, count): (&u32, &u64)| format!("{} {count}", name(*errno));
        match all.is_empty() {
            true => "none".to_owned(),
            false => all.into_iter().map(named).collect::<Vec<_>>().join(", "),
        }
    }
}

impl fmt::Display for Predictions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { right, wrong, programs, .. } = self;
        write!(f, "{right} predictions right, {wrong} wrong, in {programs} programs")?;
        match self.refused.is_empty() {
            true => Ok(()),
            false => write!(f, "; no checkpoint: {}", self.refusals()),
        }
    }
}

/// Returns the name of an errno with which checkpoints are refused.
fn name(errno: u32) -> String {
    use rustix::io::Errno;
    let known = [
        (Errno::PERM, "EPERM"),
        (Errno::INTR, "EINTR"),
        (Errno::TOOBIG, "E2BIG"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::ACCESS, "EACCES"),
        (Errno::BUSY, "EBUSY"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::TIMEDOUT, "ETIMEDOUT"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::ALREADY, "EALREADY"),
    ];
    let found = known.iter().find(|(known, _)| known.raw_os_error() as u32 == errno);
    found.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_by_errno() {
        let one = |refused: &[(u32, u64)]| Predictions {
            right: 3,
            wrong: 2,
            programs: 1,
            refused: refused.iter().copied().collect(),
        };
        let all = [one(&[(11, 1)]), one(&[(11, 2), (12, 9)]), one(&[])];
        let sum: Predictions = all.iter().sum();
        let said = "9 predictions right, 6 wrong, in 3 programs; no checkpoint: ENOMEM 9, EAGAIN 3";
        assert_eq!(sum.to_string(), said);
        assert_eq!(one(&[]).to_string(), "3 predictions right, 2 wrong, in 1 programs");
    }
}
