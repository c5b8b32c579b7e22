//! Programs that wait for nothing are not followed for a while, and are again when they would
//! wait.

use runahead_testbed::retry_if_caches_dropped;
use runahead_tests::{End, Fixture, Run, available, fixture, number, with_stats};
use serde_json::Value;

/// Starts of a program that finds everything in memory: two seconds or more.
const STARTS: u64 = 1_200;

/// Statistics of a run whose outcome is that of a native one.
fn measured(fixture: &Fixture, run: &Run, options: &[&str]) -> Value {
    let once = |run: &Run| fixture.cold(run);
    let plain = once(run);
    assert_eq!(plain.end, End::Exit(0), "{plain:?}");
    let (ahead, stats) = with_stats(run, options, once);
    assert_eq!(ahead, plain, "{run}");
    stats
}

fn loop_of(command: &str) -> String {
    format!("n=0; while [ $n -lt {STARTS} ]; do {command}; n=$((n+1)); done")
}

#[test]
fn programs_that_wait_for_nothing_are_not_followed() {
    left_alone("/bin/true", 1);
}

#[test]
fn parents_of_such_programs_are_not_followed() {
    left_alone("sh -c '/bin/true; :'", 2);
}

/// `command` makes so many programs of each start.
fn left_alone(command: &str, programs: u64) {
    let Some(fixture) = available(fixture()) else { return };
    let run = fixture.run(&["sh", "-c", &loop_of(command)]);
    // It does wait if another process empties the machine's caches meanwhile.
    let Some((ahead, stats)) =
        available(retry_if_caches_dropped(|| with_stats(&run, &[], Run::run)))
    else {
        return;
    };
    assert_eq!(ahead.end, End::Exit(0), "{ahead:?}");
    assert!(number(&stats, "programs") < STARTS / 2, "{stats:#}");
    let stats = measured(&fixture, &run, &["--without", "unwatched"]);
    assert_eq!(number(&stats, "programs"), programs * STARTS + 1, "{stats:#}");
}

/// A program is followed again when its data is no longer in memory, and enough to be worth
/// it: at the latest a second later, when one of its starts is followed anyway.
#[test]
fn programs_that_wait_again_are_followed_again() {
    let Some(fixture) = available(fixture()) else { return };
    let warm = loop_of("/bin/cat $W/warm");
    let script = format!(
        "echo x >$W/warm; {warm}; sleep 1.1; for n in 1 2 3 4 5 6 7 8 9; do /bin/cat many/*$n*; done | md5sum"
    );
    let stats = measured(&fixture, &fixture.run(&["sh", "-c", &script]), &[]);
    let used = number(&stats, "hints_used");
    assert!(number(&stats, "processes_stalled") > 1 && used > 8, "{stats:#}");
}
