//! Results, as they are kept: one line of JSON for each unit, so that a change of one is one line's.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::compare::Verdict;
use crate::error::Error;
use crate::half::{Ahead, End};
use crate::predictions::Predictions;
use crate::prepare::Ready;

/// Everything that was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this layout.
    pub version: u32,
    /// What was tested.
    pub runahead: String,
    /// Where.
    pub machine: String,
    /// Milliseconds of a request to the disk.
    pub latency_ms: f64,
    /// By suite.
    pub suites: Vec<SuiteReport>,
}

/// A suite's results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuiteReport {
    /// Its name.
    pub name: String,
    /// What it is.
    pub about: String,
    /// The project's release.
    pub version: String,
    /// How many units the suite has, whether run or not.
    #[serde(default)]
    pub of: usize,
    /// By unit, sorted by name.
    pub units: Vec<Outcome>,
}

/// A unit's results. Numbers are those of the first native half.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name.
    pub unit: String,
    /// How it ended natively.
    pub end: End,
    /// Cases reported.
    pub cases: usize,
    /// Of those, failed, also natively.
    pub failed: usize,
    /// Of those, skipped.
    pub skipped: usize,
    /// Time natively.
    pub native_seconds: f64,
    /// Requests to the disk natively.
    pub native_requests: u64,
    /// Time under runahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_seconds: Option<f64>,
    /// What runahead says it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<Ahead>,
    /// What differed.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Why it was not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

impl Outcome {
    /// What became of predictions that were planted in it.
    pub fn predictions(&self) -> Option<&Predictions> {
        self.ahead.as_ref()?.predictions.as_ref()
    }
}

impl Report {
    /// What became of all predictions that were planted.
    pub fn predictions(&self) -> Predictions {
        self.suites.iter().flat_map(|suite| &suite.units).filter_map(Outcome::predictions).sum()
    }

    /// One without results.
    pub fn new(runahead: String, latency: std::time::Duration) -> Self {
        let uname = rustix::system::uname();
        let machine = format!(
            "Linux {}, {}",
            uname.release().to_string_lossy(),
            uname.machine().to_string_lossy()
        );
        Self {
            version: 1,
            runahead,
            machine,
            latency_ms: latency.as_secs_f64() * 1e3,
            suites: vec![],
        }
    }

    /// Takes over what another report has of the same runahead.
    pub fn inherit(&mut self, older: Report) {
        if older.runahead == self.runahead && older.version == self.version {
            self.suites = older.suites;
        }
    }

    /// Enters a unit's results in place of older ones.
    pub fn put(&mut self, ready: &Ready, outcome: Outcome) {
        let at = match self.suites.iter().position(|suite| suite.name == ready.suite.name) {
            Some(at) => at,
            None => {
                self.suites.push(SuiteReport {
                    name: ready.suite.name.into(),
                    about: ready.suite.about.into(),
                    version: ready.version.clone(),
                    of: ready.of,
                    units: vec![],
                });
                self.suites.len() - 1
            }
        };
        let suite = &mut self.suites[at];
        suite.of = ready.of;
        if suite.version != ready.version {
            suite.units.clear();
            suite.version.clone_from(&ready.version);
        }
        match suite.units.binary_search_by(|unit| unit.unit.cmp(&outcome.unit)) {
            Ok(at) => suite.units[at] = outcome,
            Err(at) => suite.units.insert(at, outcome),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is not there, or not of this version.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let json = fs::read(path).map_err(Error::system("read", path))?;
        serde_json::from_slice(&json).map_err(|source| Error::Format { path: path.into(), source })
    }

    /// Writes it, at once or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let beside = path.with_extension("json.new");
        fs::write(&beside, self.json()).map_err(Error::system("write", &beside))?;
        fs::rename(&beside, path).map_err(Error::system("rename to", path))
    }

    fn json(&self) -> String {
        let mut text = format!(
            "{{\"version\":{},\"runahead\":{},\"machine\":{},\"latency_ms\":{},\"suites\":[",
            self.version,
            json(&self.runahead),
            json(&self.machine),
            self.latency_ms
        );
        for (n, suite) in self.suites.iter().enumerate() {
            text += if n == 0 { "\n" } else { ",\n" };
            text += &format!(
                "{{\"name\":{},\"about\":{},\"version\":{},\"of\":{},\"units\":[",
                json(&suite.name),
                json(&suite.about),
                json(&suite.version),
                suite.of
            );
            let units: Vec<_> =
                suite.units.iter().map(|unit| format!("\n{}", json(unit))).collect();
            text += &units.join(",");
            text += "\n]}";
        }
        text + "\n]}\n"
    }
}

fn json(value: &impl Serialize) -> String {
    // Strings and numbers only: there is nothing in them that JSON cannot hold.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Difference;

    fn outcome(unit: &str, cases: usize) -> Outcome {
        let difference = Difference {
            case: "it's \"quoted\"".into(),
            native: "passes".into(),
            ahead: vec!["fails".into()],
        };
        Outcome {
            unit: unit.into(),
            end: End::Exit(0),
            cases,
            failed: 0,
            skipped: 1,
            native_seconds: 0.25,
            native_requests: 9,
            ahead_seconds: Some(0.5),
            ahead: Some(Ahead { syncs: 1, hints: 2, native: None, predictions: None }),
            verdict: Verdict { differences: vec![difference], flaky: vec![] },
            left_out: None,
        }
    }

    #[test]
    fn what_is_written_is_read_and_new_results_replace_old() {
        let suite = crate::suites::find("planted").unwrap();
        let version = "planted 1".to_owned();
        let ready = Ready { suite, tree: "/".into(), version, units: vec![], of: 5 };
        let mut report = Report::new("runahead 1".into(), std::time::Duration::from_millis(1));
        for (unit, cases) in [("b", 1), ("a", 2), ("b", 3)] {
            report.put(&ready, outcome(unit, cases));
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        report.write(&path).unwrap();
        let read = Report::read(&path).unwrap();
        assert_eq!(read, report);
        let units: Vec<_> =
            read.suites[0].units.iter().map(|u| (u.unit.as_str(), u.cases)).collect();
        assert_eq!(units, [("a", 2), ("b", 3)]);

        let mut same = Report::new("runahead 1".into(), std::time::Duration::from_millis(1));
        same.inherit(read.clone());
        assert_eq!(same.suites, report.suites);
        let mut other = Report::new("runahead 2".into(), std::time::Duration::from_millis(1));
        other.inherit(read);
        assert!(other.suites.is_empty());
    }
}
