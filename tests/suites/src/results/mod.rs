//! What suites report, case by case.
//!
//! Invariant: a report that is cut off or malformed gives the cases that it has, never an error: how
//! a unit ended is compared, too.

mod automake;
mod go;
mod junit;
mod tap;
mod words;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
pub use words::Words;

/// Results by the names of cases.
pub type Cases = BTreeMap<String, Status>;

/// What became of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Passed.
    Pass,
    /// Failed.
    Fail,
    /// Not run, as it says itself.
    Skip,
    /// Failed, and was expected to.
    ExpectedFail,
    /// Passed, and was expected not to.
    UnexpectedPass,
    /// Could not be carried out.
    Error,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Status::Pass => "passes",
            Status::Fail => "fails",
            Status::Skip => "is skipped",
            Status::ExpectedFail => "fails as expected",
            Status::UnexpectedPass => "passes unexpectedly",
            Status::Error => "ends in an error",
        })
    }
}

/// The form of a report, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// `work/junit.xml`.
    Junit,
    /// Test Anything Protocol on standard output.
    Tap,
    /// A line with a word on standard output for each case.
    Words(Words),
    /// A Go test program's `-test.v` on standard output.
    Go,
    /// None: how the unit ends is its result.
    Status,
    /// One case, in `<stem>.trs`.
    Automake {
        /// Below the disk.
        stem: String,
    },
}

impl Format {
    /// Whether what a unit writes besides is the same each time: without times, and identifiers of processes.
    pub fn repeats_itself(&self) -> bool {
        matches!(self, Format::Tap | Format::Status | Format::Automake { .. })
    }

    /// Files besides the two outputs that tell what happened, below the disk.
    pub fn files(&self) -> Vec<String> {
        match self {
            Format::Junit => vec!["work/junit.xml".into()],
            Format::Tap | Format::Go | Format::Words(_) | Format::Status => Vec::new(),
            Format::Automake { stem } => vec![format!("{stem}.log")],
        }
    }

    /// The cases of a unit that has run on the disk at `disk`.
    pub fn cases(&self, disk: &Path, stdout: &[u8]) -> Cases {
        let read = |name: &str| {
            let bytes = std::fs::read(disk.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        match self {
            Format::Junit => junit::cases(&read("work/junit.xml")),
            Format::Tap => tap::cases(&String::from_utf8_lossy(stdout)),
            Format::Words(words) => words::cases(*words, &String::from_utf8_lossy(stdout)),
            Format::Status => Cases::new(),
            Format::Go => go::cases(&String::from_utf8_lossy(stdout)),
            Format::Automake { stem } => automake::cases(&read(&format!("{stem}.trs"))),
        }
    }
}

/// Enters a case; a name that is there already gets a number.
fn enter(cases: &mut Cases, name: &str, status: Status) {
    let mut key = name.to_owned();
    let mut n = 1;
    while cases.contains_key(&key) {
        n += 1;
        key = format!("{name} (no. {n})");
    }
    cases.insert(key, status);
}
