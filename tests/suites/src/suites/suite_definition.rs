//! A suite: another project and its tests.
//!
//! Invariant: a suite says only what is its own: what prepares it, how one unit is started, and in
//! what form it reports its cases. All suites have everything else in common.

use std::path::Path;

use crate::results::report_format::Format;

/// Directory of the suite in the namespaces of a unit.
pub const TREE: &str = "/mnt/tree";
/// Directory that a unit may write: its home, on the slow disk.
pub const WORK: &str = "/mnt/work";

/// Another project and its tests.
#[derive(Debug)]
pub struct Suite {
    /// Name on the command line.
    pub name: &'static str,
    /// Description for people.
    pub about: &'static str,
    /// Script that downloads and builds it; see `prepare/common.sh`.
    pub script: &'static str,
    /// Starts one unit.
    pub command: fn(unit: &str, version: &str, tree: &Path) -> Command,
    /// Seconds that a native run may take.
    pub limit: u64,
    /// True if units write into the tree itself.
    pub writes: bool,
    /// A directory of the tree that units may add to. They find it in [`WORK`] under the same name,
    /// with links to the tree's files.
    pub grows: Option<&'static str>,
    /// True if it is prepared within a minute or two, for samples.
    pub quick: bool,
    /// Names of units that take more than five seconds, which samples leave out.
    pub slow: &'static str,
    /// Units in which no predictions are planted, and why: speculation does not hide what they
    /// look at (`docs/design/speculation.md`).
    pub unplanted: &'static [(&'static str, &'static str)],
}

/// A suite without anything of its own.
pub const SUITE: Suite = Suite {
    name: "",
    about: "",
    script: "",
    command: |_, _, _| unreachable!("each suite has its own"),
    limit: 300,
    writes: false,
    grows: None,
    quick: false,
    slow: "",
    unplanted: &[],
};

/// Command of a unit, and the form in which it reports its cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Working directory.
    pub dir: String,
    /// Environment variables besides the usual ones.
    pub env: Vec<(&'static str, String)>,
    pub format: Format,
}

impl Command {
    /// A command without an environment of its own.
    pub fn new(words: &[&str], dir: impl Into<String>, format: Format) -> Self {
        Self { argv: argv(words), dir: dir.into(), env: Vec::new(), format }
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Forces waits into it, by a library of `prepare/waits.c`.
    #[must_use]
    pub fn with_waits(self) -> Self {
        self.env("LD_PRELOAD", format!("{TREE}/waits.so"))
    }
}

/// Words as a command's arguments.
pub fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
