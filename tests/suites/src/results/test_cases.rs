//! Cases of a unit, and their outcomes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Outcomes by the names of cases.
pub type Cases = BTreeMap<String, Status>;

/// Outcome of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Pass,
    Fail,
    /// It says itself that it was not run.
    Skip,
    ExpectedFail,
    UnexpectedPass,
    /// It could not be carried out.
    Error,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pass => "passes",
            Self::Fail => "fails",
            Self::Skip => "is skipped",
            Self::ExpectedFail => "fails as expected",
            Self::UnexpectedPass => "passes unexpectedly",
            Self::Error => "ends in an error",
        })
    }
}

/// Enters a case; a name that is there already gets a number.
pub fn enter(cases: &mut Cases, name: &str, status: Status) {
    let mut key = name.to_owned();
    let mut n = 1;
    while cases.contains_key(&key) {
        n += 1;
        key = format!("{name} (no. {n})");
    }
    cases.insert(key, status);
}
