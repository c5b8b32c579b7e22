//! The benchmark itself, tiny, so that it never rots.
//!
//! Invariant: what is missing on this machine is found out by the testbed's probes and printed.

use std::path::Path;
use std::process::{Command, Output};

use runahead_testbed::{Disk, Share};

const BENCH: &str = env!("CARGO_BIN_EXE_runahead-bench");

/// Runs one row with `--quick`; under runahead too, if that has been built beside this.
fn quick(row: &str, document: &Path) -> Output {
    let mut command = Command::new(BENCH);
    command.args(["run", "--quick", "--row", row, "--write-md"]).arg(document);
    if !Path::new(BENCH).with_file_name("runahead").is_file() {
        println!("runahead is not built beside {BENCH}: plain and oracle only");
        command.arg("--without-runahead");
    }
    command.output().expect("the benchmark starts")
}

/// The row's report.
fn check(row: &str) -> serde_json::Value {
    let dir = tempfile::tempdir().expect("a directory");
    let document = dir.path().join("B.md");
    let output = quick(row, &document);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "--quick --row {row}: {}\n{stderr}", output.status);
    let text = std::fs::read_to_string(&document).expect("a document");
    assert!(text.contains(&format!("| {row} |")), "{text}");
    let json = std::fs::read(document.with_extension("json")).expect("JSON beside it");
    let report: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let row = &report["rows"][0];
    assert!(row["failure"].is_null() && row["summary"]["plain"].as_f64() > Some(0.0), "{row}");
    if row["cache"] == "cold" {
        // Whether perfect knowledge pays is for the figures to say; here, that there was some.
        assert!(row["summary"]["oracle_ratio"].as_f64() > Some(0.0), "{row}");
        assert!(row["oracle"]["accesses"].as_u64() > Some(0), "{row}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains(dir.path().to_str().expect("UTF-8")), "{mounts}");
    row.clone()
}

#[test]
fn a_row_on_a_disk() {
    match Disk::probe() {
        Ok(()) => drop(check("grep-files")),
        Err(missing) => println!("skipped: {missing}"),
    }
}

#[test]
fn a_warm_row() {
    match Disk::probe() {
        Ok(()) => drop(check("warm-du")),
        Err(missing) => println!("skipped: {missing}"),
    }
}

#[test]
fn a_row_on_a_share() {
    match Share::probe() {
        Ok(()) => drop(check("share-grep-r")),
        Err(missing) => println!("skipped: {missing}"),
    }
}

#[test]
fn programs_on_a_share() {
    if let Err(missing) = Share::probe() {
        println!("skipped: {missing}");
        return;
    }
    for (row, starts) in [("share-python", 1), ("share-configure", 200)] {
        let report = check(row);
        assert!(report["starts"].as_u64() >= Some(starts), "{report}");
    }
}

fn source_is_fetched() -> bool {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(Into::into).or(home).unwrap_or_default();
    let entries = std::fs::read_dir(cache.join("runahead")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| {
        let name = name.to_string_lossy();
        name.starts_with("redis_") && name.ends_with(".orig.tar.gz")
    })
}

/// These need no storage, and so no root.
#[test]
fn costs() {
    let mut rows = vec!["true-dash", "resident", "resident-child"];
    for (program, row) in [("redis-benchmark", "redis"), ("make", "build")] {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|dir| dir.join(program).is_file());
        match found {
            true => rows.push(row),
            false => println!("skipped: {row}: {program} is not installed"),
        }
    }
    for row in rows {
        if row == "build" && !source_is_fetched() {
            println!("skipped: build: scripts/setup has not fetched the source of redis");
            continue;
        }
        let report = check(row);
        let runs = report["runs"].as_array().expect("runs");
        let has_figure = |run: &serde_json::Value| run["figure"].as_f64() > Some(0.0);
        // A build's elapsed time is its figure.
        let figures = row != "build";
        assert!(!runs.is_empty() && runs.iter().all(|run| has_figure(run) == figures), "{report}");
        assert!(report["cost"].is_object(), "{report}");
    }
}

#[test]
fn an_unknown_row_is_a_usage_error() {
    let output = quick("grepp", Path::new("B.md"));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no row grepp"));
}
