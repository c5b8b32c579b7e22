//! The table, for a terminal and for the document.

use crate::figures::Verdict;
use crate::report::{Report, RowReport};
use crate::rows::Cache;

const COLD: [&str; 10] = [
    "row",
    "plain",
    "runahead",
    "ratio",
    "spread",
    "at least",
    "oracle",
    "oracle's ratio",
    "closeness",
    "result",
];
const WARM: [&str; 7] = ["row", "plain", "runahead", "slower", "spread", "at most", "result"];

/// The headings of the table of one state.
pub fn headings(cache: Cache) -> Vec<String> {
    let headings: &[&str] = match cache {
        Cache::Cold => &COLD,
        Cache::Warm => &WARM,
    };
    headings.iter().map(|heading| (*heading).to_owned()).collect()
}

/// One row, in the columns of its state.
pub fn cells(row: &RowReport) -> Vec<String> {
    let s = &row.summary;
    let cold = row.cache == Cache::Cold;
    // Ratios near 1 need their second digit.
    let digits = if cold { 1 } else { 2 };
    let ratio = |value: Option<f64>| show(value, |v| format!("{v:.digits$}"));
    let spread = s.spread.map_or_else(none, |(a, b)| format!("{a:.digits$} to {b:.digits$}"));
    let mut cells =
        vec![row.name.clone(), seconds(s.plain), seconds(s.runahead), ratio(s.ratio), spread];
    cells.push(format!("{}", row.target));
    if cold {
        cells.extend([seconds(s.oracle), ratio(s.oracle_ratio)]);
        cells.push(show(s.closeness, |v| format!("{:.0} %", v * 100.0)));
    }
    cells.push(verdict(s.verdict).to_owned());
    cells
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Miss => "MISS",
        Verdict::Failed => "FAILED",
        Verdict::Open => "-",
    }
}

fn seconds(value: Option<f64>) -> String {
    show(value, |s| if s < 1.0 { format!("{:.1} ms", s * 1e3) } else { format!("{s:.2} s") })
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
    for cache in [Cache::Cold, Cache::Warm] {
        let rows: Vec<_> = report.rows.iter().filter(|row| row.cache == cache).collect();
        if rows.is_empty() {
            continue;
        }
        let lines: Vec<_> =
            [headings(cache)].into_iter().chain(rows.iter().map(|row| cells(row))).collect();
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
