//! Panics: a bug in the agent costs speed, nothing else.

use std::path::Path;

use runahead_tests::{Run, available, fixture, programs};

/// Runs `argv` with a panic of the agent at `access`, and plainly.
fn panics_at(access: u64, argv: &[&str]) {
    let Some(fixture) = available(fixture()) else { return };
    let plain = fixture.cold(&fixture.run(argv));
    let at = access.to_string();
    let head = [env!("CARGO_BIN_EXE_plant"), "panic", &at];
    fixture.reset();
    let ahead = Run::new(head.iter().chain(argv)).dir(fixture.dir()).env("W", fixture.work()).run();
    let first = format!("a panic at access {access} of {argv:?}");
    assert_eq!((ahead.end, ahead.text()), (plain.end, plain.text()), "{first}: {ahead:?}");
    let complaints = ahead.complaints();
    let complaints: Vec<_> = complaints.lines().filter(|l| !l.starts_with("planted:")).collect();
    assert_eq!(complaints.join("\n").trim(), plain.complaints().trim(), "{first}");
}

#[test]
fn a_panic_at_any_access_changes_no_result() {
    for access in [1, 2, 3, 5, 8, 17, 40, 100, 101] {
        panics_at(access, &["grep", "-rc", "needle", "src"]);
    }
}

/// Number of an access that the supervisor takes for *at the first stall, while signals wait*.
const IN_STALL: u64 = u64::MAX;

/// The program goes on with the mask that it had.
#[test]
fn a_panic_while_signals_are_held_releases_them() {
    let signals = programs::program("signals", programs::Link::Static);
    let path = signals.to_str().expect("a plain path");
    panics_at(IN_STALL, &[path, "files in handler"]);
    // Without a child, before which a shell would set its mask anew.
    let script = "for f in src/d?/f*.c; do read -r x <$f; done
        while read -r key value; do case $key in SigBlk:) echo $value; esac; done </proc/$$/status";
    panics_at(IN_STALL, &["sh", "-c", script]);
    panics_at(IN_STALL, &["grep", "-rc", "needle", "src"]);
}

#[test]
fn a_panic_changes_no_result_of_handlers_and_children() {
    let work = programs::program("processes", programs::Link::Static);
    let signals = programs::program("signals", programs::Link::Static);
    let path = |p: &Path| p.to_str().expect("a plain path").to_owned();
    for access in [1, 7, 30] {
        panics_at(access, &[&path(&work), "ways"]);
        panics_at(access, &[&path(&signals), "files in handler"]);
    }
}
