//! `kill -9` of the supervisor, of shadows, and of both, at random moments: the program's output is
//! right, and nothing of ours survives.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use runahead_tests::{Fixture, Link, Seed, available, fixture, processes, programs, scratch};

/// The processes that are killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Whom {
    Supervisor,
    Shadows,
    Both,
}

/// Output of the program without us.
fn expected(fixture: &Fixture, program: &str) -> String {
    fixture.reset();
    let run = fixture.run_program(program, Link::Dynamic, &[]);
    let text = run.run().text();
    text.lines().skip(1).collect::<Vec<_>>().join("\n")
}

/// Lines of `path` once it has `count` of them; the program may outlive its supervisor.
fn lines(path: &Path, count: usize) -> Vec<String> {
    let read = || -> Vec<String> {
        std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    };
    assert!(processes::eventually(|| read().len() >= count), "only {:?} of {count} lines", read());
    read()
}

/// Runs `program` once, disturbed after `delay`; returns its last line.
fn disturbed(fixture: &Fixture, program: &str, whom: Whom, delay: Duration, times: u64) -> String {
    fixture.reset();
    let out = scratch().join("out");
    let run = fixture.run_program(program, Link::Dynamic, &[]).ahead(&["--require"]);
    let mut command = run.command();
    let file = std::fs::File::create(&out).expect("the scratch directory is ours");
    command.stdout(file).stderr(std::process::Stdio::inherit());
    let mut child = command.spawn().expect("runahead starts");
    let supervisor = child.id() as i32;
    let target: i32 = lines(&out, 1)[0].parse().expect("the program's number");
    for _ in 0..times {
        std::thread::sleep(delay);
        if whom != Whom::Supervisor {
            for shadow in survivors(program).into_iter().filter(|&p| p != target) {
                processes::kill(shadow, libc::SIGKILL);
                KILLED.fetch_add(1, Relaxed);
            }
        }
    }
    if whom != Whom::Shadows {
        processes::kill(supervisor, libc::SIGKILL);
    }
    let last = lines(&out, 2).pop().expect("two lines");
    let _ = child.wait();
    last
}

/// Processes that run `program`, a copy that only this test runs.
fn survivors(program: &str) -> Vec<i32> {
    let path = programs::program(program, Link::Dynamic);
    processes::running(&path).into_iter().filter(|&p| processes::state(p) != Some('Z')).collect()
}

/// Shadows that were killed, in all tests.
static KILLED: AtomicUsize = AtomicUsize::new(0);

/// Ends what a failed test has left, so that the next one starts afresh.
struct Clean(&'static str);

impl Drop for Clean {
    fn drop(&mut self) {
        for pid in survivors(self.0) {
            processes::kill(pid, libc::SIGKILL);
        }
    }
}

fn states(program: &str) -> Vec<(i32, Option<char>)> {
    survivors(program).into_iter().map(|pid| (pid, processes::state(pid))).collect()
}

fn many_times(program: &'static str, whom: Whom, iterations: u64) {
    let Some(fixture) = available(fixture()) else { return };
    let _clean = Clean(program);
    let mut seed = Seed::new();
    let right = expected(&fixture, program);
    for iteration in 0..iterations {
        let delay = Duration::from_micros(seed.below(60_000));
        let times = if whom == Whom::Supervisor { 1 } else { 1 + seed.below(5) };
        let got = disturbed(&fixture, program, whom, delay, times);
        assert_eq!(got, right, "iteration {iteration}, {whom:?} after {delay:?}, {times} times");
        assert!(
            processes::eventually(|| survivors(program).is_empty()),
            "iteration {iteration}, {whom:?} after {delay:?}: still there: {:?}",
            states(program)
        );
    }
}

#[test]
fn a_killed_supervisor_changes_no_result() {
    many_times("announced_reads", Whom::Supervisor, 14);
}

#[test]
fn killed_shadows_change_no_result() {
    let before = KILLED.load(Relaxed);
    many_times("announced_reads", Whom::Shadows, 12);
    let skipped = fixture().is_err();
    assert!(skipped || KILLED.load(Relaxed) > before, "no shadow was there to be killed");
}

#[test]
fn killing_supervisor_and_shadows_changes_no_result() {
    many_times("announced_reads", Whom::Both, 14);
}

/// A shadow that strays into an endless loop is killed by us; who kills it when we are gone?
#[test]
fn an_endless_shadow_ends_with_its_supervisor() {
    many_times("endless_wait", Whom::Supervisor, 6);
}

/// Before the program's first instruction its supervisor holds it stopped: killed then, there must
/// be either the right output or none at all, and no stopped process.
#[test]
fn a_supervisor_killed_at_its_start_leaves_no_process() {
    let Some(fixture) = available(fixture()) else { return };
    let _clean = Clean("announced_reads");
    let mut seed = Seed::new();
    let right = expected(&fixture, "announced_reads");
    let out = scratch().join("out");
    for iteration in 0..60 {
        let file = std::fs::File::create(&out).expect("the scratch directory is ours");
        let run = fixture.run_program("announced_reads", Link::Dynamic, &[]).ahead(&["--require"]);
        let mut command = run.command();
        command.stdout(file).stderr(std::process::Stdio::inherit());
        let mut child = command.spawn().expect("runahead starts");
        let delay = Duration::from_micros(seed.below(2500));
        std::thread::sleep(delay);
        processes::kill(child.id() as i32, libc::SIGKILL);
        let _ = child.wait();
        let gone = processes::eventually(|| survivors("announced_reads").is_empty());
        assert!(
            gone,
            "iteration {iteration} after {delay:?}: still there: {:?}",
            states("announced_reads")
        );
        let text = std::fs::read_to_string(&out).unwrap_or_default();
        let last = text.lines().skip(1).collect::<Vec<_>>().join("\n");
        assert!(
            text.is_empty() || last == right,
            "iteration {iteration} after {delay:?}: {text:?}"
        );
    }
}
