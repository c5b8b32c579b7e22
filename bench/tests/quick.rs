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

fn check(row: &str) {
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
        let oracle = row["summary"]["oracle_ratio"].as_f64();
        // Perfect knowledge that does not pay is a harness that measures nothing.
        assert!(oracle > Some(1.2), "{row}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains(dir.path().to_str().expect("UTF-8")), "{mounts}");
}

#[test]
fn a_row_on_a_disk() {
    match Disk::probe() {
        Ok(()) => check("grep-files"),
        Err(missing) => println!("skipped: {missing}"),
    }
}

#[test]
fn a_warm_row() {
    match Disk::probe() {
        Ok(()) => check("warm-du"),
        Err(missing) => println!("skipped: {missing}"),
    }
}

#[test]
fn a_row_on_a_share() {
    match Share::probe() {
        Ok(()) => check("share-grep-r"),
        Err(missing) => println!("skipped: {missing}"),
    }
}

#[test]
fn an_unknown_row_is_a_usage_error() {
    let output = quick("grepp", Path::new("B.md"));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no row grepp"));
}
