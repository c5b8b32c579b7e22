//! Results of all suites, as they are kept in JSON.

use serde::{Deserialize, Serialize};

use crate::case_differences::Verdict;
use crate::planted_predictions::Predictions;
use crate::suite_cache::PreparedSuite;
use crate::unit_run::{End, RunaheadStats};

/// Results of all units that were run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this layout.
    pub version: u32,
    /// Version and hash of the runahead under test.
    pub runahead: String,
    /// Kernel and architecture.
    pub machine: String,
    /// Milliseconds of a request to the disk.
    pub latency_ms: f64,
    /// Results by suite.
    pub suites: Vec<SuiteReport>,
}

/// A suite's results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuiteReport {
    pub name: String,
    /// Description for people.
    pub about: String,
    /// Release of the project.
    pub version: String,
    /// Number of units of the suite, run or not.
    #[serde(default)]
    pub of: usize,
    /// Results by unit, sorted by name.
    pub units: Vec<Outcome>,
}

/// A unit's results. Numbers are those of the first native run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub unit: String,
    /// Its end in the first native run.
    pub end: End,
    /// Number of cases that it reported.
    pub cases: usize,
    /// Number of cases that failed, also natively.
    pub failed: usize,
    /// Number of cases that were skipped.
    pub skipped: usize,
    /// Time natively.
    pub native_seconds: f64,
    /// Requests to the disk natively.
    pub native_requests: u64,
    /// Time under runahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_seconds: Option<f64>,
    /// Runahead's own statistics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<RunaheadStats>,
    /// Cases that differ or are flaky.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Reason why it was not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

impl Outcome {
    /// Returns the outcomes of predictions that were planted in it.
    pub fn predictions(&self) -> Option<&Predictions> {
        self.ahead.as_ref()?.predictions.as_ref()
    }
}

impl Report {
    /// Returns the sum of all predictions that were planted.
    pub fn predictions(&self) -> Predictions {
        self.suites.iter().flat_map(|suite| &suite.units).filter_map(Outcome::predictions).sum()
    }

    /// A report without results.
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

    /// Takes over the results of another report of the same runahead.
    pub fn inherit(&mut self, older: Report) {
        if older.runahead == self.runahead && older.version == self.version {
            self.suites = older.suites;
        }
    }

    /// Enters a unit's results in place of older ones.
    pub fn put(&mut self, ready: &PreparedSuite, outcome: Outcome) {
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
}

#[cfg(test)]
mod tests {
    use runahead_harness::{read_json, write_json};

    use super::*;
    use crate::case_differences::Difference;

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
            ahead: Some(RunaheadStats { syncs: 1, hints: 2, native: None, predictions: None }),
            verdict: Verdict { differences: vec![difference], flaky: vec![] },
            left_out: None,
        }
    }

    #[test]
    fn a_report_is_read_as_written_and_new_results_replace_old() {
        let suite = crate::suites::all_suites::find("planted").unwrap();
        let version = "planted 1".to_owned();
        let ready = PreparedSuite { suite, tree: "/".into(), version, units: vec![], of: 5 };
        let mut report = Report::new("runahead 1".into(), std::time::Duration::from_millis(1));
        for (unit, cases) in [("b", 1), ("a", 2), ("b", 3)] {
            report.put(&ready, outcome(unit, cases));
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        write_json(&path, &report).unwrap();
        let read: Report = read_json(&path).unwrap().unwrap();
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
