//! Limits of getrlimit(2), for runahead and the program alike.

use runahead_tests::{Link, available, fixture, full};

use crate::confined_runs::{Failures, Fault, compare, grep, lost, program, script};

/// Every command with every limit; what was said to be lost is shown.
fn limited(options: &[String], commands: &[Vec<String>]) {
    let Some(fixture) = available(fixture()) else { return };
    let mut failures = Failures::default();
    for option in options {
        for argv in commands {
            let compared = compare(&fixture, &Fault::new(option), argv);
            if let Some(stats) = failures.note(option, compared) {
                eprintln!("{option} {}: {}", argv[0], lost(&stats));
            }
        }
    }
    failures.none();
}

/// Every one of `all`, or every `step`th.
fn sample(all: impl IntoIterator<Item = String>, step: usize) -> Vec<String> {
    all.into_iter().step_by(if full() { 1 } else { step }).collect()
}

/// Below four descriptors no dynamically linked program starts, and runahead is one.
#[test]
fn few_descriptors_change_no_result() {
    let soft = (4..24).map(|n| format!("--limit=NOFILE:{n}:1024"));
    let hard = (4..24).map(|n| format!("--limit=NOFILE:{n}:{n}"));
    limited(&sample(soft.chain(hard), 7), &[grep(), script()]);
}

#[test]
fn few_processes_change_no_result() {
    let few = (1..24).map(|n| format!("--limit=NPROC:{n}:{n} --user=65533"));
    limited(&sample(few, 6), &[grep(), script()]);
}

#[test]
fn little_address_space_changes_no_result() {
    let mebibytes = [5u64, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 20, 24, 32, 64, 512];
    let limits = mebibytes.map(|n| format!("--limit=AS:{0}:{0}", n << 20));
    let data = [0u64, 1, 2, 4, 8, 64].map(|n| format!("--limit=DATA:{0}:{0}", n << 20));
    limited(&sample(limits.into_iter().chain(data), 4), &[grep(), script()]);
}

/// Programs that use their address space up find as much of it as without us.
#[test]
fn a_program_finds_the_same_free_address_space() {
    let Some(fixture) = available(fixture()) else { return };
    let filler = program("filled_address_space", Link::Dynamic, &[]).remove(0);
    let script =
        format!("ulimit -S -v 40000; {filler}; ulimit -H -v 30000; {filler}; exec {filler}");
    let argv = ["sh".to_owned(), "-c".to_owned(), script];
    let stats = compare(&fixture, &Fault::default(), &argv).unwrap();
    assert!(lost(&stats).contains("address space"), "not said: {stats:#}");
    for limit in ["AS:40000000:40000000", "DATA:20000000:20000000"] {
        let fault = Fault::new(&format!("--limit={limit}"));
        compare(&fixture, &fault, &program("filled_address_space", Link::Static, &[])).unwrap();
    }
}

#[test]
fn limits_of_stack_and_signals_change_no_result() {
    let mut limits: Vec<String> =
        ["STACK:65536:65536", "STACK:200000:max", "MEMLOCK:0:0", "SIGPENDING:0:0", "STACK:max:max"]
            .map(|l| format!("--limit={l}"))
            .into();
    limits.push("--limit=SIGPENDING:0:0 --limit=MEMLOCK:0:0 --user=65533".to_owned());
    let ways = program("processes", Link::Dynamic, &["ways"]);
    limited(&limits, &[grep(), script(), ways]);
}

#[test]
fn a_file_size_limit_changes_no_result() {
    let limits = ["0", "1", "4096", "65536", "4194304"].map(|n| format!("--limit=FSIZE:{n}:{n}"));
    limited(&limits, &[grep(), script()]);
}
