//! Statistics of a run under runahead.

use serde_json::Value;

use crate::{Outcome, Run, scratch};

/// Runs `run` under runahead, with `options`, by `execute`: what it did, and its statistics.
pub fn with_stats(
    run: &Run,
    options: &[&str],
    execute: impl FnOnce(&Run) -> Outcome,
) -> (Outcome, Value) {
    let report = scratch().join("with-stats.json");
    let _ = std::fs::remove_file(&report);
    let stats = format!("--stats=json:{}", report.display());
    let options: Vec<&str> =
        ["--require", &stats].into_iter().chain(options.iter().copied()).collect();
    let outcome = execute(&run.ahead(&options));
    let json = std::fs::read(&report).expect("statistics were written");
    (outcome, serde_json::from_slice(&json).expect("they are JSON"))
}

/// The number at `name`, as in `stalls_foreseen/count`.
pub fn number(stats: &Value, name: &str) -> u64 {
    let value = name.split('/').fold(stats, |at, part| &at[part]);
    value.as_u64().unwrap_or_else(|| panic!("no number {name} in {stats:#}"))
}
