//! Programs that may speculate are read ahead for like others, also while predictions are open.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use runahead_tests::{Case, Fixture, Link, Pair, available, bindings, fixture, programs};

/// Keys in the table (`table_lookups.c`).
const KEYS: u64 = 192;
/// Files in which `predicted_reads.c` reads, and their bytes.
const FILES: usize = 200;
const BYTES: usize = 24 << 10;

/// Uses of what was foreseen; the best of some, as on a busy machine a shadow may be late.
fn best(run: impl Fn() -> u64) -> u64 {
    (0..3).map(|_| run()).max().unwrap_or(0)
}

/// Number of hints that were used.
fn used(pair: &Pair) -> u64 {
    pair.stats["hints_used"].as_u64().unwrap_or(0)
}

#[test]
fn reads_of_a_program_without_predictions_are_foreseen() {
    let Some(fixture) = available(fixture()) else { return };
    fixture.change(|_| {
        let made = fixture.run_program("table_lookups", Link::Dynamic, &["make", "table"]).run();
        assert_eq!(made.text(), "");
    });
    let best = best(|| {
        let args = ["read", "table"];
        let pair =
            fixture.program_with("table_lookups", &args, |case| case.with_shadow().speculating());
        assert!(pair.outcome.text().starts_with("sum "), "{:?}", pair.outcome);
        used(&pair)
    });
    assert!(best >= KEYS / 2, "of {KEYS} rows {best} were foreseen");
}

/// `predicted_reads.c`, which is slow because of its disk and of whom it asks.
fn asks<'a>(fixture: &'a Fixture, args: &[&str]) -> Case<'a> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        fixture.change(|dir| {
            let asked = dir.join("asked");
            fs::create_dir(&asked).expect("the disk has room");
            for file in 0..FILES {
                let bytes: Vec<u8> = (0..BYTES).map(|n| (n / 64 * 7 + file) as u8).collect();
                fs::write(asked.join(format!("f{file:03}")), bytes).expect("the disk has room");
            }
        });
        bindings::compile(&programs::source("predicted_reads"), &["speculate"], Link::Static)
    });
    let files = FILES.to_string();
    let program = [program.to_str().expect("a plain path"), &files];
    fixture.case(&[&program[..], args].concat())
}

/// Runs it with so many right and wrong predictions, and demands that reads under them were
/// foreseen.
fn is_foreseen(args: &[&str], [right, wrong]: [u64; 2]) {
    let Some(fixture) = available(fixture()) else { return };
    let best = best(|| {
        let pair = asks(&fixture, args).with_shadow().speculating().compare();
        let of = &pair.stats["speculations"];
        let seen = [&of["committed"], &of["failed"]].map(|count| count.as_u64().unwrap_or(0));
        assert!(seen[0] >= right && seen[1] >= wrong, "{args:?}: {of}");
        used(&pair)
    });
    let files = FILES as u64;
    assert!(best >= files / 2, "{args:?}: of {files} files {best} were foreseen");
}

#[test]
fn reads_under_a_right_prediction_are_foreseen() {
    is_foreseen(&["10", "20", "0"], [20, 0]);
}

/// After a rollback the data is read again, with the same result as without runahead.
#[test]
fn reads_under_a_wrong_prediction_are_foreseen() {
    is_foreseen(&["10", "20", "5"], [16, 4]);
}

/// Each of its calls is reported, and while it speculates it has no shadows.
#[test]
fn reads_of_threads_that_may_speculate_are_foreseen() {
    is_foreseen(&["1", "20", "5", "thread"], [1, 1]);
}
