//! `docs/compatibility.md`, and its table for a terminal.

use std::fmt::Write;

use crate::report::{Outcome, Report, SuiteReport};

const METHOD: &str = include_str!("method.md");

/// Numbers of one suite.
struct Row {
    units: usize,
    cases: usize,
    failed: usize,
    same: usize,
    different: usize,
    flaky: usize,
    left_out: usize,
    shadowed: usize,
}

impl Row {
    fn of(suite: &SuiteReport) -> Self {
        let compared = || suite.units.iter().filter(|unit| unit.left_out.is_none());
        let differs = |unit: &&Outcome| !unit.verdict.differences.is_empty();
        let flaky = |unit: &&Outcome| !unit.verdict.flaky.is_empty();
        Self {
            units: compared().count(),
            cases: compared().map(|unit| unit.cases).sum(),
            failed: compared().map(|unit| unit.failed).sum(),
            same: compared().filter(|unit| !differs(unit) && !flaky(unit)).count(),
            different: compared().filter(differs).count(),
            flaky: compared().filter(|unit| flaky(unit) && !differs(unit)).count(),
            left_out: suite.units.len() - compared().count(),
            shadowed: compared()
                .filter(|unit| unit.ahead.as_ref().is_some_and(|ahead| ahead.syncs > 0))
                .count(),
        }
    }
}

/// The table alone.
pub fn summary(report: &Report) -> String {
    let mut text = String::from(
        "| suite | release | units | with shadows | cases | failing natively | same | different | flaky natively | left out |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for suite in &report.suites {
        let row = Row::of(suite);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            suite.about,
            suite.version,
            row.units,
            row.shadowed,
            row.cases,
            row.failed,
            row.same,
            row.different,
            row.flaky,
            row.left_out
        );
    }
    text
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
