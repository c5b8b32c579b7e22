//! What suites there are.
//!
//! Invariant: a suite says only what is its own: what prepares it, how one unit is started, and in
//! what form it reports its cases. Everything else is the same for all.

mod cpython;
mod gnu;
mod go;
mod libc;
mod ltp;
mod perl;
mod planted;
mod scripts;
mod tools;

use std::path::Path;

use crate::results::Format;

/// Where the suite is in the namespaces of a unit.
pub const TREE: &str = "/mnt/tree";
/// Where a unit may write: its home, on the slow disk.
pub const WORK: &str = "/mnt/work";

/// Another project and its tests.
#[derive(Debug)]
pub struct Suite {
    /// For the command line.
    pub name: &'static str,
    /// For people.
    pub about: &'static str,
    /// Downloads and builds it; see `prepare/common.sh`.
    pub script: &'static str,
    /// How one unit is started.
    pub command: fn(unit: &str, version: &str, tree: &Path) -> Command,
    /// Seconds that a native half may take.
    pub limit: u64,
    /// Whether units write into the tree itself.
    pub writes: bool,
    /// A directory of the tree that units may add to: they find it in [`WORK`] under the same name, the
    /// files being links to the tree's.
    pub grows: Option<&'static str>,
    /// Whether it is prepared within a minute or two, for samples.
    pub quick: bool,
    /// Units that take more than a few seconds, to be left out of samples.
    pub slow: &'static [&'static str],
    /// Units in which no predictions are planted, and why: what they look at is not hidden (`docs/guide/speculation.md`).
    pub unplanted: &'static [(&'static str, &'static str)],
}

/// How a unit is started, and where its cases are then found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where it starts.
    pub dir: String,
    /// What its environment has besides the usual.
    pub env: Vec<(&'static str, String)>,
    /// The form of its report.
    pub format: Format,
}

/// All suites that are meant to be run.
pub const SUITES: &[&Suite] = &[
    &cpython::CPYTHON,
    &go::GO,
    &perl::PERL,
    &gnu::GREP,
    &gnu::SED,
    &gnu::COREUTILS,
    &ltp::LTP,
    &ltp::OPEN_POSIX,
    &libc::LIBC_TEST,
    &tools::STRESS_NG,
    &tools::GIT,
    &tools::BASH,
    &tools::MAKE,
    &tools::TAR,
    &tools::BUSYBOX,
    &tools::REDIS,
    &tools::LIBUV,
    &tools::UTIL_LINUX,
    &scripts::SCRIPTS,
];

/// The suite of this name; also the one that tests the harness itself.
pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().copied().chain([&planted::PLANTED]).find(|suite| suite.name == name)
}

/// Words as a command's arguments.
fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        for (n, suite) in SUITES.iter().enumerate() {
            assert!(std::ptr::eq(find(suite.name).unwrap(), *suite));
            assert!(SUITES[..n].iter().all(|other| other.name != suite.name));
        }
        assert!(find("nonesuch").is_none());
    }
}
