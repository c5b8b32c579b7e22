//! A policy that logs all calls loses none of other projects' test suites: its counts are compared
//! with strace's. The suites do not make exactly the same calls each time
//! (`runahead_tests::call_counts`); programs that do: `tests/transparency/reported_calls.rs`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use runahead_harness::write_program;
use runahead_tests::call_counts::{PolicyCounts, StraceCounts, discrepancies};
use runahead_tests::{Seed, available, installed, root};

/// Takes the units in `$UNITS`, `$UNIT` being the command of the first. Of each that ends within
/// ten seconds: three times under strace, three times under the policy.
const SCRIPT: &str = "
first=${UNITS%% *}
run() {
    rm -rf /mnt/work/* $OWN/calls; mkdir -p /mnt/work/tmp $OWN
    \"$@\" sh -c \"$line\" >$OWN/out 2>&1 </dev/null
    status=$?
}
counts() {
    if [ -e $OWN/calls ]; then cat $OWN/calls; else tail -n 5 $OWN/out | sed 's/^/! /'; fi
}
for unit in $UNITS; do
    line=$(printf %s \"$UNIT\" | sed \"s|$first|$unit|\")
    run timeout 10
    [ $status = 124 ] && continue
    echo \"= unit $unit\"
    for n in 1 2 3; do run $STRACE $OWN/calls --; echo \"= traced $status\"; counts; done
    for n in 1 2 3; do run \"$PLANT\" logged $OWN/calls; echo \"= logged $status\"; counts; done
done
";

fn possible() -> Result<(), String> {
    root()?;
    for program in ["unshare", "setpriv", "ip", "make", "cc", "apt-get", "strace"] {
        installed(program)?;
    }
    runahead_testbed::Disk::probe().map_err(|missing| missing.to_string())
}

fn suites(arguments: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runahead-suites"));
    command.args(arguments).envs(env.iter().copied());
    command.env("RUNAHEAD_BIN", runahead_tests::runahead());
    command.output().expect("the harness can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns up to `most` units of a suite, at random.
fn chosen(suite: &str, most: usize) -> Result<Vec<String>, String> {
    let prepared = suites(&["prepare", "--suite", suite], &[]);
    if prepared.status.code() == Some(4) {
        // Nothing about runahead: the machine is not connected, or Debian's archive is down.
        return Err(text(&prepared.stderr).lines().last().unwrap_or_default().to_owned());
    }
    assert!(prepared.status.success(), "{}", text(&prepared.stderr));
    let listed = text(&suites(&["list", "--suite", suite], &[]).stdout);
    let units = listed.lines().filter_map(|line| line.strip_prefix("    "));
    let mut units: Vec<String> = units.map(str::to_owned).collect();
    let mut seed = Seed::new();
    let taken = (0..most.min(units.len())).map(|_| {
        let at = seed.below(units.len() as u64) as usize;
        units.swap_remove(at)
    });
    Ok(taken.collect())
}

/// Runs of a unit, with their ends and counts.
struct Runs<'a> {
    unit: &'a str,
    traced: Vec<(&'a str, StraceCounts)>,
    logged: Vec<(&'a str, PolicyCounts)>,
}

/// Reads the output of the script.
fn read(said: &str) -> Vec<Runs<'_>> {
    let mut all: Vec<Runs> = Vec::new();
    for part in said.split("= ").skip(1) {
        let (head, counts) = part.split_once('\n').unwrap_or((part, ""));
        match (head.split_once(' '), all.last_mut()) {
            (Some(("unit", unit)), _) => {
                all.push(Runs { unit, traced: Vec::new(), logged: Vec::new() });
            }
            (Some(("traced", end)), Some(runs)) => {
                runs.traced.push((end, StraceCounts::read(counts)))
            }
            (Some(("logged", end)), Some(runs)) => {
                runs.logged.push((end, PolicyCounts::read(counts)))
            }
            _ => panic!("not of the script: {part}"),
        }
    }
    all
}

/// Returns the faults of a unit's runs.
fn wrong(runs: &Runs) -> Vec<String> {
    let (ends, traced): (Vec<&str>, Vec<_>) = runs.traced.iter().cloned().unzip();
    let (ends_logged, logged): (Vec<&str>, Vec<_>) = runs.logged.iter().cloned().unzip();
    let mut wrong = discrepancies(&traced, &logged);
    if logged.iter().any(|logged| logged.lost > 0) {
        wrong.push("sight was lost".to_owned());
    }
    // Some fail natively, and some only sometimes.
    if !ends_logged.iter().any(|end| ends.contains(end)) {
        wrong.push(format!("exit status {ends_logged:?}, traced {ends:?}"));
    }
    wrong
}

/// Copies the planter to a place where every user may run it.
fn plant(dir: &Path) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_runahead-suites")).with_file_name("plant");
    let program = std::fs::read(&built).expect("built with the workspace");
    let path = dir.join("plant");
    write_program(&path, program, 0o755).expect("the directory is ours");
    path
}

fn compare(suite: &str, most: usize) {
    let Some(units) = available(possible().and_then(|()| chosen(suite, most))) else { return };
    let dir = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir_in("/var/tmp")
        .expect("a directory can be made");
    let plant = plant(dir.path());
    let script = format!(
        "UNITS='{}' OWN='/tmp/{suite}' STRACE='{}' PLANT='{}'\n{SCRIPT}",
        units.join(" "),
        StraceCounts::COMMAND.join(" "),
        plant.display()
    );
    let arguments: [&str; 9] =
        ["shell", "--suite", suite, "--unit", &units[0], "--latency", "20us", "-c", &script];
    let output = suites(&arguments, &[]);
    let said = text(&output.stdout);
    let runs = read(&said);
    assert!(!runs.is_empty(), "nothing was compared: {said}{}", text(&output.stderr));
    let mut report = String::new();
    for one in &runs {
        assert_eq!((one.traced.len(), one.logged.len()), (3, 3), "{said}");
        let calls = one.logged[0].1.all();
        assert!(calls > 50, "{}: only {calls} calls", one.unit);
        eprintln!("{suite} {}: {calls} calls", one.unit);
        for what in wrong(one) {
            let _ = writeln!(report, "{suite} {}: {what}", one.unit);
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn no_call_of_bash_is_lost() {
    compare("bash", 12);
}

#[test]
fn no_call_of_git_is_lost() {
    compare("git", 8);
}

#[test]
fn no_call_of_cpython_is_lost() {
    compare("cpython", 12);
}

/// Three planted faults are found: a policy that missed a tenth of a call, one that lost sight, and
/// another end of a unit.
#[test]
fn lost_calls_are_found() {
    let of = |logged: &str| {
        let said =
            format!("= unit u\n= traced 0\n  200 10 openat\n= traced 0\n  204 10 openat\n{logged}");
        wrong(&read(&said)[0]).len()
    };
    assert_eq!(of("= logged 0\nopenat 202 202 10\nlost 0\n"), 0);
    assert_eq!(of("= logged 0\nopenat 182 180 10\nlost 0\n"), 1);
    assert_eq!(of("= logged 0\nopenat 202 202 10\nlost 1\n"), 1);
    assert_eq!(of("= logged 1\nopenat 202 202 10\nlost 0\n"), 1);
}
