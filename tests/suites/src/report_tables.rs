//! The document of all suites, and its tables for a terminal.

use std::fmt::Write;

use runahead_harness::markdown::{Table, grouped, wrapped};

use crate::case_differences::Difference;
use crate::planted_predictions::Predictions;
use crate::results_file::{Outcome, Report, SuiteReport};

const METHOD: &str = include_str!("method.md");

/// Numbers of one suite, of units that were compared.
struct Row {
    units: usize,
    shadowed: usize,
    cases: usize,
    skipped: usize,
    failed: usize,
    same: usize,
    different: usize,
    flaky: usize,
    left_out: usize,
    native_seconds: f64,
    ahead_seconds: f64,
}

impl Row {
    fn of(suite: &SuiteReport) -> Self {
        let compared = || suite.units.iter().filter(|unit| unit.left_out.is_none());
        let differs = |unit: &&Outcome| !unit.verdict.differences.is_empty();
        let flaky = |unit: &&Outcome| !unit.verdict.flaky.is_empty();
        Self {
            units: compared().count(),
            cases: compared().map(|unit| unit.cases).sum(),
            skipped: compared().map(|unit| unit.skipped).sum(),
            failed: compared().map(|unit| unit.failed).sum(),
            same: compared().filter(|unit| !differs(unit) && !flaky(unit)).count(),
            different: compared().filter(differs).count(),
            flaky: compared().filter(|unit| flaky(unit) && !differs(unit)).count(),
            left_out: suite.units.len() - compared().count(),
            shadowed: compared()
                .filter(|unit| unit.ahead.as_ref().is_some_and(|ahead| ahead.syncs > 0))
                .count(),
            native_seconds: compared().map(|unit| unit.native_seconds).sum(),
            ahead_seconds: compared().filter_map(|unit| unit.ahead_seconds).sum(),
        }
    }
}

/// Returns the table of all suites.
pub fn summary(report: &Report) -> String {
    let mut table = Table::new([
        "suite",
        "units run",
        "of",
        "with shadows",
        "cases",
        "skipped natively",
        "failing natively",
        "same",
        "different",
        "flaky natively",
        "left out",
        "s natively",
        "s under runahead",
    ]);
    for suite in &report.suites {
        let row = Row::of(suite);
        let counts = [row.units, suite.of, row.shadowed, row.cases, row.skipped, row.failed];
        let rest = [row.same, row.different, row.flaky, row.left_out];
        table.row(cells(&suite.version, counts.into_iter().chain(rest), [], &row));
    }
    table.markdown()
}

/// Returns the table of suites in which predictions were planted.
pub fn planted(report: &Report) -> String {
    let mut table = Table::new([
        "suite",
        "units run",
        "of",
        "cases",
        "same",
        "different",
        "flaky natively",
        "left out",
        "programs",
        "predictions right",
        "wrong",
        "no checkpoint",
        "s natively",
        "s with predictions",
    ]);
    for suite in &report.suites {
        let row = Row::of(suite);
        let all: Predictions = suite.units.iter().filter_map(Outcome::predictions).sum();
        let counts = [row.units, suite.of, row.cases, row.same, row.different, row.flaky];
        let predictions = [all.programs, all.right, all.wrong].map(|n| n as usize);
        let counts = counts.into_iter().chain([row.left_out]).chain(predictions);
        table.row(cells(&suite.version, counts, [all.refusals()], &row));
    }
    table.markdown()
}

/// Returns the cells of a suite: its release, counts, other cells, seconds natively and not.
fn cells<const N: usize>(
    version: &str,
    counts: impl IntoIterator<Item = usize>,
    others: [String; N],
    row: &Row,
) -> Vec<String> {
    let mut cells = vec![version.to_owned()];
    cells.extend(counts.into_iter().map(|count| grouped(count as u64)));
    cells.extend(others);
    let seconds = [row.native_seconds, row.ahead_seconds];
    cells.extend(seconds.map(|seconds| grouped(seconds.round() as u64)));
    cells
}

/// Returns the whole document.
pub fn document(report: &Report) -> String {
    let mut text = METHOD.replace("LATENCY", &format!("{} ms", report.latency_ms));
    let _ = write!(text, "\n{}\n", summary(report));
    for suite in &report.suites {
        let _ = writeln!(text, "- {}: {}", suite.version, suite.about);
    }
    let _ = write!(text, "\n{}; {}.\n", report.runahead, report.machine);
    section(&mut text, report, "What differs", |unit| {
        let lines = differences(unit);
        (!lines.is_empty()).then(|| lines.join("; "))
    });
    section(&mut text, report, "Flaky without runahead", |unit| {
        let flaky = &unit.verdict.flaky;
        (!flaky.is_empty()).then(|| shortened(flaky.iter().map(|name| format!("`{name}`"))))
    });
    section(&mut text, report, "Left out", |unit| unit.left_out.clone());
    text
}

fn section(
    text: &mut String,
    report: &Report,
    title: &str,
    line: impl Fn(&Outcome) -> Option<String>,
) {
    let _ = write!(text, "\n## {title}\n\n");
    let units = report.suites.iter().flat_map(|suite| suite.units.iter().map(move |u| (suite, u)));
    let lines = units.filter_map(|(suite, unit)| {
        let line = line(unit)?;
        Some(wrapped(&format!("- {} `{}`: {line}", suite.name, unit.unit), "  ") + "\n")
    });
    let lines: String = lines.collect();
    *text += if lines.is_empty() { "Nothing.\n" } else { &lines };
}

/// Returns the differences of a unit, one line each.
pub fn differences(unit: &Outcome) -> Vec<String> {
    let all = &unit.verdict.differences;
    let line = |d: &Difference| {
        let (times, runs) = d.times();
        let mut ahead = d.ahead.clone();
        ahead.retain(|outcome| *outcome != d.native);
        ahead.dedup();
        format!(
            "`{}`: natively {}, under runahead {} ({times} of {runs} runs)",
            d.case,
            d.native,
            ahead.join(" or ")
        )
    };
    let mut lines: Vec<_> = all.iter().take(SHOWN).map(line).collect();
    if all.len() > SHOWN {
        lines.push(format!("and {} more", all.len() - SHOWN));
    }
    lines
}

/// Names that are shown of one unit.
const SHOWN: usize = 8;

fn shortened(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let mut text = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::case_differences::Verdict;
    use crate::suite_cache::PreparedSuite;
    use crate::unit_run::{End, RunaheadStats};

    #[test]
    fn a_row_has_the_units_run_of_all_and_their_seconds() {
        let suite = crate::suites::all_suites::find("planted").unwrap();
        let version = "planted 1".to_owned();
        let ready = PreparedSuite { suite, tree: "/".into(), version, units: vec![], of: 1234 };
        let mut report = Report::new("runahead 1".into(), Duration::from_millis(1));
        let outcome = |unit: &str, left_out: Option<&str>| Outcome {
            unit: unit.into(),
            end: End::Exit(0),
            cases: 600,
            failed: 1,
            skipped: 2,
            native_seconds: 1.25,
            native_requests: 9,
            ahead_seconds: Some(2.5),
            ahead: Some(RunaheadStats { syncs: 1, hints: 2, native: None, predictions: None }),
            verdict: Verdict::default(),
            left_out: left_out.map(str::to_owned),
        };
        report.put(&ready, outcome("a", None));
        report.put(&ready, outcome("b", None));
        report.put(&ready, outcome("c", Some("takes too long")));
        let row = "| planted 1 | 2 | 1,234 | 2 | 1,200 | 4 | 2 | 2 | 0 | 0 | 1 | 3 | 5 |";
        assert_eq!(summary(&report).lines().last(), Some(row));
        let text = document(&report);
        assert!(text.contains(&format!("- planted 1: {}\n", suite.about)), "{text}");
        assert!(text.contains("## Left out\n\n- planted `c`: takes too long\n"), "{text}");
        assert!(text.contains("## What differs\n\nNothing.\n"), "{text}");
    }
}
