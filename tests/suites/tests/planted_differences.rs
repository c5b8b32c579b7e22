//! The harness finds what a runahead breaks: a false one, which runs the command in a changed
//! environment, against units that look for it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use runahead_harness::write_program;
use runahead_tests::available;
use serde_json::Value;

const FALSE: &str = "#!/bin/sh
[ \"$1\" = --version ] && echo 'runahead false' && exit
while [ \"$1\" != -- ]; do shift; done
shift
RUNAHEAD_PLANTED=1 exec \"$@\"
";

/// A false planter of predictions, which changes the environment, too.
const FALSE_PLANTER: &str = "#!/bin/sh
[ \"$1\" = speculated ] || exit 125
echo \"7 5 3 0 1 2 3 11=2\" >\"$3\"
shift 3
RUNAHEAD_PLANTED=1 exec \"$@\"
";

struct Found {
    status: Option<i32>,
    said: String,
    report: Value,
    dir: tempfile::TempDir,
}

impl Found {
    fn unit(&self, name: &str) -> &Value {
        let units = self.report["suites"][0]["units"].as_array().expect("a suite was run");
        let unit = units.iter().find(|unit| unit["unit"] == name);
        unit.unwrap_or_else(|| panic!("{name} is not in the report\n{}", self.said))
    }

    /// Cases that differ in a unit, with what became of them.
    fn differences(&self, name: &str) -> Vec<(String, Vec<String>)> {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let all = self.unit(name)["differences"].as_array().cloned().unwrap_or_default();
        all.iter()
            .map(|d| {
                let ahead = d["ahead"].as_array().cloned().unwrap_or_default();
                (text(&d["case"]), ahead.iter().map(text).collect())
            })
            .collect()
    }

    fn kept(&self, path: &str) -> PathBuf {
        self.dir.path().join("keep").join(path)
    }
}

/// Runs the planted suite with the false runahead. A cache of its own: what is tested includes the
/// preparing.
fn run(options: &[&str]) -> Found {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let (fake, json) = (dir.path().join("false"), dir.path().join("report.json"));
    let plant = dir.path().join("plant");
    write_program(&fake, FALSE, 0o755).expect("the directory is ours");
    write_program(&plant, FALSE_PLANTER, 0o755).expect("the directory is ours");
    let output = Command::new(env!("CARGO_BIN_EXE_runahead-suites"))
        .args(["run", "--suite", "planted", "--json"])
        .arg(&json)
        .arg("--keep")
        .arg(dir.path().join("keep"))
        .arg("--plant")
        .arg(plant)
        .args(options)
        .env("RUNAHEAD_BIN", &fake)
        .env("XDG_CACHE_HOME", dir.path().join("cache"))
        .output()
        .expect("the harness can be run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let report = fs::read(&json).unwrap_or_else(|e| panic!("no report: {e}\n{said}"));
    let report = serde_json::from_slice(&report).expect("the report is JSON");
    Found { status: output.status.code(), said, report, dir }
}

/// Fails with the name of a missing precondition.
fn possible() -> Result<(), String> {
    runahead_tests::root()?;
    runahead_tests::installed("unshare")?;
    runahead_tests::installed("ip")?;
    runahead_testbed::Disk::probe().map_err(|missing| missing.to_string())
}

#[test]
fn every_planted_difference_is_found_and_nothing_else() {
    let Some(()) = available(possible()) else { return };
    let found = run(&["--all", "--limit", "3"]);
    assert_eq!(found.status, Some(1), "{}", found.said);

    let three = |outcome: &str| vec![outcome.to_owned(); 3];
    assert_eq!(
        found.differences("differs"),
        [("000002".to_owned(), three("fails")), ("000003".to_owned(), three("is absent"))],
    );
    let end = "(the unit's end)".to_owned();
    assert_eq!(found.differences("ends"), [(end.clone(), three("signal 11"))]);
    assert_eq!(found.differences("hangs"), [(end, three("no end within its time limit"))]);
    for unit in ["passes", "fails", "writes", "leaves", "changes", "cold"] {
        assert_eq!(found.differences(unit), [], "{unit}: {}", found.said);
    }
    assert_eq!(found.unit("fails")["failed"], 1, "a failure natively is counted");
    assert!(found.unit("slow")["left_out"].is_string(), "{}", found.said);
    assert!(found.said.contains("run --suite planted --unit ends"), "{}", found.said);
    assert!(found.kept("planted/differs/ahead-3/stdout").exists(), "{}", found.said);
}

#[test]
fn the_disk_is_cold_in_both_halves() {
    let Some(()) = available(possible()) else { return };
    let found = run(&["--unit", "cold", "--unit", "passes", "--jobs", "1"]);
    assert_eq!(found.status, Some(0), "{}", found.said);
    let requests = |unit| found.unit(unit)["native_requests"].as_u64().expect("a number");
    assert!(requests("passes") > 0, "the script itself is read: {}", found.said);
    assert!(requests("cold") > requests("passes"), "its data, too: {}", found.said);
    let seconds = |unit: &str| found.unit(unit)["ahead_seconds"].as_f64();
    assert!(seconds("cold").is_some(), "both halves ran: {}", found.said);
}

#[test]
fn a_budget_bounds_what_is_run_and_a_seed_says_what_that_is() {
    let Some(()) = available(possible()) else { return };
    let one = |seed: u64| {
        let found = run(&["--all", "--budget", "1ms", "--seed", &seed.to_string(), "--jobs", "1"]);
        assert_eq!(found.status, Some(0), "{}", found.said);
        let suite = &found.report["suites"][0];
        assert_eq!(suite["of"], 10, "{}", found.said);
        let units = suite["units"].as_array().cloned().unwrap_or_default();
        assert_eq!(units.len(), 1, "one is begun, and then there is no time left: {}", found.said);
        // Nor does one unit take longer than all should.
        assert!(units[0]["left_out"].is_string(), "{}", found.said);
        units[0]["unit"].clone()
    };
    let first = one(7);
    assert_eq!(first, one(7));
    assert!((0..8).any(|seed| one(seed) != first));
}

#[test]
fn what_predictions_break_is_found_in_outputs_and_files_too() {
    let Some(()) = available(possible()) else { return };
    let units = ["passes", "differs", "writes", "cold"].map(|unit| ["--unit", unit]).concat();
    let found = run(&[&["--speculate", "--seed", "3"], units.as_slice()].concat());
    assert_eq!(found.status, Some(1), "{}", found.said);
    let cases =
        |unit| found.differences(unit).into_iter().map(|(case, _)| case).collect::<Vec<_>>();
    assert_eq!(cases("passes"), [""; 0]);
    assert_eq!(cases("differs"), ["(its output)", "000002", "000003"]);
    assert_eq!(cases("writes"), ["(its files)", "(its output)"]);
    assert_eq!(found.unit("passes")["ahead"]["predictions"]["wrong"], 5, "{}", found.said);
    // One that is left out is said to be, and why.
    assert!(found.unit("cold")["left_out"].is_string(), "{}", found.said);
    assert!(found.said.contains("21 predictions right, 15 wrong, in 9 programs"), "{}", found.said);
    assert!(found.said.contains("no checkpoint: EAGAIN 6"), "{}", found.said);
    assert!(
        found.said.contains("--unit writes --latency 1000us --speculate --seed 3"),
        "{}",
        found.said
    );
}

#[test]
fn a_run_against_itself_differs_in_nothing() {
    let Some(()) = available(possible()) else { return };
    let found = run(&["--native-twice", "--unit", "differs", "--unit", "changes"]);
    assert_eq!(found.status, Some(0), "{}", found.said);
}

#[test]
fn wrong_command_lines_are_told_apart_from_differences() {
    let harness = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runahead-suites"));
        command.args(args).env("RUNAHEAD_BIN", "/bin/true").output().expect("it can be run")
    };
    assert_eq!(harness(&["run"]).status.code(), Some(2));
    assert_eq!(harness(&["list", "--suite", "nonesuch"]).status.code(), Some(2));
    let help = harness(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("--sample 24 --seed 7"));
}
