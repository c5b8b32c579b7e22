//! Forms of reports.
//!
//! Invariant: a report that is cut off or malformed gives the cases that it has, never an error:
//! the end of a unit is compared, too.

use std::path::Path;

use crate::results::test_cases::Cases;
use crate::results::word_lines::{self, Words};
use crate::results::{automake_trs, go_test, junit_xml, tap};

/// Form of a report, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// JUnit's, in `work/junit.xml`.
    Junit,
    /// Test Anything Protocol on standard output.
    Tap,
    /// A line with a word on standard output for each case.
    Words(Words),
    /// A Go test program's `-test.v` on standard output.
    Go,
    /// No report: the end of the unit is its result.
    Status,
    /// A report of one case, in `<stem>.trs`.
    Automake {
        /// Path below the disk.
        stem: String,
    },
}

impl Format {
    /// True if the other output of a unit is the same each time: without times and PIDs.
    pub fn repeats_itself(&self) -> bool {
        matches!(self, Format::Tap | Format::Status | Format::Automake { .. })
    }

    /// Files besides the two outputs that say what happened, below the disk.
    pub fn files(&self) -> Vec<String> {
        match self {
            Format::Junit => vec!["work/junit.xml".into()],
            Format::Tap | Format::Go | Format::Words(_) | Format::Status => Vec::new(),
            Format::Automake { stem } => vec![format!("{stem}.log")],
        }
    }

    /// Returns the cases of a unit that has run on the disk at `disk`.
    pub fn cases(&self, disk: &Path, stdout: &[u8]) -> Cases {
        let read = |name: &str| {
            let bytes = std::fs::read(disk.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        match self {
            Format::Junit => junit_xml::cases(&read("work/junit.xml")),
            Format::Tap => tap::cases(&String::from_utf8_lossy(stdout)),
            Format::Words(words) => word_lines::cases(*words, &String::from_utf8_lossy(stdout)),
            Format::Status => Cases::new(),
            Format::Go => go_test::cases(&String::from_utf8_lossy(stdout)),
            Format::Automake { stem } => automake_trs::cases(&read(&format!("{stem}.trs"))),
        }
    }
}
