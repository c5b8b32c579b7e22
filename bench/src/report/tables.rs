//! The table, for a terminal and for the document.

use crate::report::results::{Report, RowReport, Section};
use crate::report::summary::{Verdict, bytes_ratio};
use crate::rows::cost_limits::{Cost, Unit};

const COLD: [&str; 12] = [
    "row",
    "plain",
    "runahead",
    "ratio",
    "spread",
    "at least",
    "oracle",
    "oracle's ratio",
    "closeness",
    "replay",
    "bytes",
    "result",
];
const ABLATION: [&str; 5] = ["row", "everything on", "spread", "without", "spread"];
const WARM: [&str; 7] = ["row", "plain", "runahead", "slower", "spread", "at most", "result"];
const COST: [&str; 8] = ["row", "plain", "runahead", "ratio", "spread", "added", "asked", "result"];

/// The headings of a table.
pub fn headings(section: Section) -> Vec<String> {
    let headings: &[&str] = match section {
        Section::Cold => &COLD,
        Section::Ablation => &ABLATION,
        Section::Warm => &WARM,
        Section::Futile | Section::Cost => &COST,
    };
    headings.iter().map(|heading| (*heading).to_owned()).collect()
}

/// One row, in the columns of its table.
pub fn cells(row: &RowReport) -> Vec<String> {
    match &row.cost {
        Some(cost) => cost_cells(row, cost),
        None if row.section() == Section::Ablation => ablation_cells(row),
        None => time_cells(row),
    }
}

fn time_cells(row: &RowReport) -> Vec<String> {
    let s = &row.summary;
    let cold = row.section() == Section::Cold;
    // Ratios near 1 need their second digit.
    let digits = if cold && row.target >= 2.0 { 1 } else { 2 };
    let ratio = |value: Option<f64>| show(value, |v| format!("{v:.digits$}"));
    let seconds = |value| show(value, |v| Unit::Seconds.show(v));
    let mut cells = vec![
        row.name.clone(),
        seconds(s.plain),
        seconds(s.runahead),
        ratio(s.ratio),
        spread(s.spread, digits),
    ];
    cells.push(format!("{}", row.target));
    if cold {
        cells.extend([seconds(s.oracle), ratio(s.oracle_ratio)]);
        cells.push(show(s.closeness, |v| format!("{:.0} %", v * 100.0)));
        cells.push(seconds(s.replay));
        cells.push(show(bytes_ratio(&row.runs), |v| format!("{v:.2}")));
    }
    cells.push(verdict(s.verdict).to_owned());
    cells
}

fn cost_cells(row: &RowReport, cost: &Cost) -> Vec<String> {
    let s = &row.summary;
    let value = |value| show(value, |v| cost.unit.show(v));
    // Limits are as near to 1 as 1.02.
    let ratio = show(s.ratio, |v| format!("{v:.3}"));
    vec![
        row.name.clone(),
        value(s.plain),
        value(s.runahead),
        ratio,
        spread(s.spread, 3),
        show(s.added, |v| cost.difference(v)),
        cost.asked(),
        verdict(s.verdict).to_owned(),
    ]
}

/// Ratios only: the times stand in the row that it is about.
fn ablation_cells(row: &RowReport) -> Vec<String> {
    let s = &row.summary;
    let ratio = |value| show(value, |v| format!("{v:.1}"));
    let last = match s.verdict {
        Verdict::Failed => verdict(s.verdict).to_owned(),
        _ => spread(s.spread, 1),
    };
    vec![
        row.name.clone(),
        ratio(s.whole.map(|whole| whole.median)),
        spread(s.whole.map(|whole| whole.spread), 1),
        ratio(s.ratio),
        last,
    ]
}

fn spread(spread: Option<(f64, f64)>, digits: usize) -> String {
    spread.map_or_else(none, |(a, b)| format!("{a:.digits$} to {b:.digits$}"))
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Miss => "MISS",
        Verdict::Failed => "FAILED",
        Verdict::Open => "-",
    }
}

fn show(value: Option<f64>, format: impl Fn(f64) -> String) -> String {
    value.map_or_else(none, format)
}

fn none() -> String {
    "-".to_owned()
}

/// Everything, in aligned columns.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for section in Section::ALL {
        let rows: Vec<_> = report.rows.iter().filter(|row| row.section() == section).collect();
        if rows.is_empty() {
            continue;
        }
        let lines: Vec<_> =
            [headings(section)].into_iter().chain(rows.iter().map(|row| cells(row))).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: Vec<_> = (0..lines[0].len()).map(|column| width(column).unwrap_or(0)).collect();
        for line in &lines {
            let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            out.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
            out.push('\n');
        }
        out.push('\n');
    }
    for row in &report.rows {
        if let Some(failure) = &row.failure {
            out.push_str(&format!("{}: {failure}\n", row.name));
        }
    }
    out
}
