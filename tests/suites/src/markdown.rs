//! `docs/guide/compatibility.md`, and its table for a terminal.

use std::fmt::Write;

use crate::predictions::Predictions;
use crate::report::{Outcome, Report, SuiteReport};

const METHOD: &str = include_str!("method.md");

/// Numbers of one suite: of units that were compared.
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

/// The table alone, as `docs/guide/compatibility.md` has it.
pub fn summary(report: &Report) -> String {
    let mut text = String::from(
        "| suite | release | units run | of | with shadows | cases | skipped natively | failing natively \
         | same | different | flaky natively | left out | s natively | s under runahead |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for suite in &report.suites {
        let row = Row::of(suite);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            suite.about,
            suite.version,
            grouped(row.units as u64),
            grouped(suite.of as u64),
            grouped(row.shadowed as u64),
            grouped(row.cases as u64),
            grouped(row.skipped as u64),
            grouped(row.failed as u64),
            grouped(row.same as u64),
            row.different,
            row.flaky,
            row.left_out,
            grouped(row.native_seconds.round() as u64),
            grouped(row.ahead_seconds.round() as u64)
        );
    }
    text
}

/// The same of units in which predictions were planted.
pub fn planted(report: &Report) -> String {
    let mut text = String::from(
        "| suite | units run | of | cases | same | different | flaky natively | left out | programs | predictions right \
         | wrong | no checkpoint | s natively | s with predictions |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for suite in &report.suites {
        let row = Row::of(suite);
        let all: Predictions = suite.units.iter().filter_map(Outcome::predictions).sum();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            suite.version,
            grouped(row.units as u64),
            grouped(suite.of as u64),
            grouped(row.cases as u64),
            grouped(row.same as u64),
            row.different,
            row.flaky,
            row.left_out,
            grouped(all.programs),
            grouped(all.right),
            grouped(all.wrong),
            all.refusals(),
            grouped(row.native_seconds.round() as u64),
            grouped(row.ahead_seconds.round() as u64)
        );
    }
    text
}

/// A number with a comma at every third digit.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let (head, tail) = digits.split_at(first);
    let groups = tail.as_bytes().chunks(3).map(String::from_utf8_lossy);
    let head = (!head.is_empty()).then(|| head.into());
    head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

/// The whole document.
pub fn document(report: &Report) -> String {
    let mut text = METHOD.replace("LATENCY", &format!("{} ms", report.latency_ms));
    let _ = write!(text, "\n{}\n{}; {}.\n", summary(report), report.runahead, report.machine);
    section(&mut text, report, "What differs", "Nothing.", |_, unit| {
        let lines = differences(unit);
        (!lines.is_empty()).then(|| lines.join("; "))
    });
    section(&mut text, report, "Flaky without runahead", "Nothing.", |_, unit| {
        let flaky = &unit.verdict.flaky;
        (!flaky.is_empty()).then(|| shortened(flaky.iter().map(|name| format!("`{name}`"))))
    });
    section(&mut text, report, "Left out", "Nothing.", |_, unit| unit.left_out.clone());
    text
}

fn section(
    text: &mut String,
    report: &Report,
    title: &str,
    empty: &str,
    line: impl Fn(&SuiteReport, &Outcome) -> Option<String>,
) {
    let _ = write!(text, "\n## {title}\n\n");
    let mut any = false;
    for suite in &report.suites {
        for unit in &suite.units {
            if let Some(line) = line(suite, unit) {
                any = true;
                let _ = writeln!(text, "- {} `{}`: {line}", suite.name, unit.unit);
            }
        }
    }
    if !any {
        let _ = writeln!(text, "{empty}");
    }
}

/// What differs in a unit, one line each.
pub fn differences(unit: &Outcome) -> Vec<String> {
    let all = &unit.verdict.differences;
    let line = |d: &crate::compare::Difference| {
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

/// So many of one unit are named.
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
    use crate::compare::Verdict;
    use crate::half::{Ahead, End};
    use crate::prepare::Ready;

    #[test]
    fn numbers_are_grouped() {
        let all = [(0, "0"), (12, "12"), (999, "999"), (1000, "1,000"), (580_632, "580,632")];
        for (number, text) in all {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(grouped(12_345_678), "12,345,678");
    }

    #[test]
    fn a_row_says_how_many_of_how_many_were_run_and_how_long_they_took() {
        let suite = crate::suites::find("planted").unwrap();
        let version = "planted 1".to_owned();
        let ready = Ready { suite, tree: "/".into(), version, units: vec![], of: 1234 };
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
            ahead: Some(Ahead { syncs: 1, hints: 2, native: None, predictions: None }),
            verdict: Verdict::default(),
            left_out: left_out.map(str::to_owned),
        };
        report.put(&ready, outcome("a", None));
        report.put(&ready, outcome("b", None));
        report.put(&ready, outcome("c", Some("takes too long")));
        let row = format!(
            "| {} | planted 1 | 2 | 1,234 | 2 | 1,200 | 4 | 2 | 2 | 0 | 0 | 1 | 3 | 5 |",
            suite.about
        );
        assert_eq!(summary(&report).lines().last(), Some(row.as_str()));
    }
}
