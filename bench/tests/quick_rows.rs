//! The benchmark itself, tiny, so that it never rots.
//!
//! Invariant: what is missing on this machine is found out by the testbed's probes and printed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use runahead_testbed::{Disk, Share};

const BENCH: &str = env!("CARGO_BIN_EXE_runahead-bench");
const NUMPY: &str = "/usr/lib/python3/dist-packages/numpy/__init__.py";
/// Rows of commands with little memory, for which there is no oracle.
const LIMITED: [&str; 5] = ["matvec", "mgrid", "fft", "fast-matvec", "spindle-matvec"];

/// Runs one row with `--quick`; under runahead too, if that has been built beside this.
fn quick(row: &str, document: &Path) -> Output {
    command(row, document).output().expect("the benchmark starts")
}

fn command(row: &str, document: &Path) -> Command {
    let mut command = Command::new(BENCH);
    command.args(["run", "--quick", "--row", row, "--write-md"]).arg(document);
    if !Path::new(BENCH).with_file_name("runahead").is_file() {
        println!("runahead is not built beside {BENCH}: plain and oracle only");
        command.arg("--without-runahead");
    }
    command
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
    let gains = row["cache"] == "cold" && row["cost"].is_null() && row["without"].is_null();
    if gains && !LIMITED.iter().any(|name| row["name"] == *name) {
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

/// Rows with data of their own, one of each kind of command: a program of many files, a database
/// that is made by its own shell, a backend of another user, an array, models.
#[test]
fn data_of_their_own() {
    if let Err(missing) = Disk::probe() {
        println!("skipped: {missing}");
        return;
    }
    let module = |name| cache().join("python").join(name).join("__init__.py");
    let (safetensors, duckdb) = (module("safetensors"), module("duckdb"));
    let rows = [
        ("link", "/usr/include/openssl/crypto.h", "libssl-dev"),
        ("sqlite-range", "/usr/bin/sqlite3", "sqlite3"),
        ("sqlite-join", "/usr/bin/sqlite3", "sqlite3"),
        ("postgres-20", "/usr/lib/postgresql", "postgresql"),
        ("postgres-80", "/usr/lib/postgresql", "postgresql"),
        ("slices", "/usr/lib/python3/dist-packages/h5py/__init__.py", "nco and python3-h5py"),
        (
            "recognizer",
            "/usr/share/pocketsphinx/test/data/goforward.raw",
            "pocketsphinx and its models and test data",
        ),
        ("gather", NUMPY, "python3-numpy"),
        ("memmap", NUMPY, "python3-numpy"),
        ("lmdb", "/usr/lib/python3/dist-packages/lmdb/__init__.py", "python3-lmdb"),
        ("safetensors", safetensors.to_str().expect("UTF-8"), "safetensors, by scripts/setup,"),
        ("matvec", "/usr/bin/cc", "gcc"),
        ("mgrid", "/usr/bin/cc", "gcc"),
        ("fft", "/usr/bin/cc", "gcc"),
        ("fast-matvec", "/usr/bin/cc", "gcc"),
        ("spindle-matvec", "/usr/bin/cc", "gcc"),
        ("duckdb", duckdb.to_str().expect("UTF-8"), "duckdb, by scripts/setup,"),
        ("images", "/usr/lib/python3/dist-packages/PIL/__init__.py", "python3-pil"),
        ("pandas", "/usr/lib/python3/dist-packages/pandas/__init__.py", "python3-pandas"),
        ("go-build", "/usr/lib/go/bin/go", "golang-go"),
    ];
    for (row, file, package) in rows {
        if !is_installed(row, file, package) {
            continue;
        }
        let report = check(row);
        assert!(report["content"]["bytes"].as_u64() > Some(0), "{report}");
        let plain = report["runs"].as_array().expect("runs").iter().find(|r| r["kind"] == "plain");
        // What it works on is on the storage, and was cold.
        assert!(plain.expect("a plain run")["requests"].as_u64() > Some(10), "{report}");
    }
}

/// True if `file` of `package` is there, which `row` needs; else says that the row is skipped.
fn is_installed(row: &str, file: &str, package: &str) -> bool {
    let there = Path::new(file).exists();
    if !there {
        println!("skipped: {row}: {package} not installed");
    }
    there
}

/// A mechanism is switched off, and nothing is judged; in the same pair runs runahead with
/// everything on.
#[test]
fn an_ablation() {
    if let Err(missing) = Disk::probe() {
        println!("skipped: {missing}");
        return;
    }
    let runahead = Path::new(BENCH).with_file_name("runahead");
    let knows = Command::new(&runahead).args(["run", "--without", "again", "--", "true"]).output();
    let knows = knows.is_ok_and(|output| output.status.success());
    if runahead.is_file() && !knows {
        println!("skipped: the runahead beside this does not know --without again");
        return;
    }
    let report = check("grep-files-without-again");
    assert_eq!(
        (&report["without"], &report["summary"]["verdict"]),
        (&"again".into(), &"open".into())
    );
    let runs = report["runs"].as_array().expect("runs");
    let kinds: Vec<_> = runs.iter().map(|run| run["kind"].as_str().expect("a kind")).collect();
    match knows {
        true => assert_eq!(kinds, ["plain", "runahead", "whole"]),
        false => assert_eq!(kinds, ["plain"]),
    }
    let ratios = [&report["summary"]["ratio"], &report["summary"]["whole"]["median"]];
    assert!(ratios.iter().all(|ratio| ratio.is_f64() == knows), "{report}");
}

/// Rows from storage with a limit instead of a target: no oracle, and a ratio that grows with the
/// cost.
#[test]
fn nothing_to_gain() {
    if let Err(missing) = Disk::probe() {
        println!("skipped: {missing}");
        return;
    }
    let runahead = Path::new(BENCH).with_file_name("runahead-faulty");
    let plants = Command::new(runahead).args(["run", "--plant", "rubbish", "--", "true"]).output();
    let mut rows = vec!["chase", "cgroup-reread", "beside", "compete-2"];
    let numbers = ["chained", "stores"].into_iter();
    rows.extend(numbers.filter(|row| is_installed(row, NUMPY, "python3-numpy")));
    match plants.is_ok_and(|output| output.status.success()) {
        true => rows.push("rubbish"),
        false => println!("skipped: rubbish: no runahead-faulty beside this, which plants it"),
    }
    for row in rows {
        let report = check(row);
        assert!(report["cost"].is_object() && report["cache"] == "cold", "{report}");
        assert!(report["oracle"].is_null() && report["summary"]["oracle"].is_null(), "{report}");
        let runs = report["runs"].as_array().expect("runs");
        let has_figure = |run: &serde_json::Value| run["figure"].as_f64() > Some(0.0);
        let told = ["cgroup-reread", "beside", "stores"].contains(&row);
        assert!(!runs.is_empty() && runs.iter().all(|run| has_figure(run) == told), "{report}");
        assert!(runs.iter().all(|run| run["requests"].as_u64() > Some(0)), "{report}");
    }
}

/// Two storages, one after the other, with a common dataset that is made once.
#[test]
fn data_on_two_storages() {
    if let Err(missing) = Disk::probe() {
        println!("skipped: {missing}");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let made = dir.path().join("made");
    std::fs::create_dir(&made).expect("a directory");
    let mut command = command("link,spindles-link", &dir.path().join("B.md"));
    let output = command.env("TMPDIR", &made).output().expect("the benchmark starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stderr}", output.status);
    assert_eq!(stderr.matches("making what").count(), 1, "{stderr}");
    assert_eq!(stderr.matches("copying what").count(), 2, "{stderr}");
    let left: Vec<_> = std::fs::read_dir(&made).expect("a list").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Costs of syncs: a line for each size, in which every value to plot is a number.
#[test]
fn syncs() {
    if let Err(missing) = Disk::probe() {
        println!("skipped: {missing}");
        return;
    }
    if !Path::new(BENCH).with_file_name("runahead").is_file() {
        println!("skipped: runahead is not built beside {BENCH}");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("syncs.csv");
    let mut command = Command::new(BENCH);
    command.args(["syncs", "--quick", "--pairs", "1", "--write-csv"]).arg(&file);
    let output = command.output().expect("the benchmark starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(file).expect("a table");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((lines.len(), lines[0][0]), (3, "resident_mib"), "{text}");
    for line in &lines[1..] {
        let numbers = line.iter().filter(|cell| cell.parse::<f64>().is_ok()).count();
        assert_eq!((numbers, line.last()), (line.len() - 1, Some(&"same")), "{text}");
    }
}

/// Directory in which `scripts/setup` puts modules and sources that Debian has no package of.
fn cache() -> PathBuf {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(Into::into).or(home);
    cache.unwrap_or_default().join("runahead")
}

fn source_is_fetched() -> bool {
    let entries = std::fs::read_dir(cache()).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| {
        let name = name.to_string_lossy();
        name.starts_with("redis_") && name.ends_with(".orig.tar.gz")
    })
}

/// Rows that need no storage, and so no root.
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
