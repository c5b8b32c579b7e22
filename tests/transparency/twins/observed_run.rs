//! Observations of a run of a case, and the differences of two runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use runahead_tests::Outcome;

/// Place of the case in the tree of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// It is the command.
    Direct,
    /// A shell runs it and says how it ended.
    ChildOfAShell,
}

/// Words in front of the command.
#[derive(Debug, Clone)]
pub enum Launcher {
    /// No words: a native run.
    Native,
    /// These words.
    Wrapped(Vec<OsString>),
}

/// Observations of a run.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its end and output.
    pub outcome: Outcome,
    /// Contents of the directory that it may write to.
    pub files: BTreeMap<PathBuf, String>,
    /// Programs of its own that were still there when it was long over.
    pub left: Vec<String>,
}

impl Seen {
    /// Differences of two runs; each begins with its kind.
    pub fn differences(&self, other: &Seen) -> Vec<String> {
        let mut found = Vec::new();
        if self.outcome.end != other.outcome.end {
            found.push(format!("end: {:?}, {:?}", self.outcome.end, other.outcome.end));
        }
        let mut texts = |kind: &str, a: &[u8], b: &[u8]| {
            if a != b {
                found.push(format!("{kind}:\n{}", Lines(a, b)));
            }
        };
        texts("output", &self.outcome.stdout, &other.outcome.stdout);
        texts("complaints", &self.outcome.stderr, &other.outcome.stderr);
        for path in
            self.files.keys().chain(other.files.keys().filter(|p| !self.files.contains_key(*p)))
        {
            let (a, b) = (self.files.get(path), other.files.get(path));
            if a != b {
                found.push(format!("files: {}\n  - {a:?}\n  + {b:?}", path.display()));
            }
        }
        if self.left != other.left {
            found.push(format!("processes: {:?}, {:?}", self.left, other.left));
        }
        found
    }
}

impl Seen {
    /// Differences of two runs in short: each kind, with the numbers of lines.
    pub fn places(&self, other: &Seen) -> Vec<String> {
        let mut found = Vec::new();
        let [a, b] = [&self.outcome, &other.outcome];
        if a.end != b.end {
            found.push(format!("end: {:?}, {:?}", a.end, b.end));
        }
        for (kind, a, b) in [("output", &a.stdout, &b.stdout), ("complaints", &a.stderr, &b.stderr)]
        {
            let places: Vec<_> = Lines(a, b).places().iter().map(usize::to_string).collect();
            if !places.is_empty() {
                found.push(format!("{kind} {}", places.join(" ")));
            }
        }
        if self.files != other.files {
            found.push("files".to_owned());
        }
        if self.left != other.left {
            found.push("processes".to_owned());
        }
        found
    }
}

/// Lines that only one of two texts has at its place.
struct Lines<'a>(&'a [u8], &'a [u8]);

impl Lines<'_> {
    fn split(&self) -> [Vec<&[u8]>; 2] {
        [self.0, self.1].map(|text| text.split_inclusive(|&c| c == b'\n').collect())
    }

    fn places(&self) -> Vec<usize> {
        let [a, b] = self.split();
        (0..a.len().max(b.len())).filter(|&i| a.get(i) != b.get(i)).collect()
    }
}

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 12;
        let [a, b] = self.split();
        for place in self.places().into_iter().take(SHOWN) {
            for (sign, lines) in [('-', &a), ('+', &b)] {
                if let Some(line) = lines.get(place) {
                    let line: String = line.escape_ascii().to_string().chars().take(300).collect();
                    writeln!(f, "  {sign} {place}: {line}")?;
                }
            }
        }
        Ok(())
    }
}
