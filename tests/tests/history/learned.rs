//! `--learn`: kept by itself, privately, bounded, and never in the way.

use std::os::unix::fs::PermissionsExt;

use runahead_history::store::{COMMAND_MAX, TOTAL_MAX};
use runahead_tests::{available, fixture};

use super::*;

/// A state directory of its own, which is not there yet.
fn state(name: &str) -> PathBuf {
    scratch().join(name).join("state")
}

fn learning(run: &Run, state: &Path) -> Run {
    run.clone().env("XDG_STATE_HOME", state)
}

/// What is kept there.
fn files(state: &Path) -> Vec<PathBuf> {
    let list = state.join("runahead").read_dir().into_iter().flatten().flatten();
    list.map(|entry| entry.path()).collect()
}

#[test]
fn the_second_run_knows_what_the_first_one_read() {
    let Some(fixture) = available(fixture()) else { return };
    let state = state("second");
    let run = learning(&chain(&fixture), &state);
    let expected = plain(&fixture, &run);
    let (outcome, first) = ahead(&fixture, &run, &["--learn"]);
    assert_eq!(outcome, expected);
    assert_eq!(first["history"]["replayed"], Value::Null);
    let (outcome, second) = ahead(&fixture, &run, &["--learn"]);
    assert_eq!(outcome, expected);
    assert!(unforeseen(&second) * 8 <= unforeseen(&first), "{second:#}");
    let [file] = &files(&state)[..] else { panic!("{:?}", files(&state)) };
    let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(&state.join("runahead"))), (0o600, 0o700));
    // Another command has another memory.
    let other = learning(&fixture.run(&["cat", "data"]), &state);
    let (_, stats) = ahead(&fixture, &other, &["--learn"]);
    assert_eq!(stats["history"]["replayed"], Value::Null);
    assert_eq!(files(&state).len(), 2);
}

#[test]
fn a_run_that_does_other_things_is_remembered_instead() {
    let Some(fixture) = available(fixture()) else { return };
    let state = state("deviates");
    let list = scratch().join("list");
    let run = learning(&fixture.run(&["sh", "-c", "cat $(cat $L)"]).env("L", &list), &state);
    let learn = |dirs: &str| {
        let names: String = (0..20).map(|n| format!("src/{dirs}/f{n}.c\n")).collect();
        std::fs::write(&list, names).expect("ours");
        let expected = plain(&fixture, &run);
        let (outcome, stats) = ahead(&fixture, &run, &["--learn"]);
        assert_eq!(outcome, expected);
        let [file] = &files(&state)[..] else { panic!("{:?}", files(&state)) };
        let record = runahead_history::file::load(file).expect("a record");
        let dir = fixture.dir().join("src").join(dirs);
        let dir = dir.as_os_str().as_encoded_bytes().to_vec();
        assert!(record.places.iter().any(|place| place.path.starts_with(&dir)), "of {dirs}");
        stats
    };
    learn("d0");
    learn("d1");
    let third = learn("d1");
    assert!(count(&third, &["history", "replayed", "used"]) > 20, "{third:#}");
}

#[test]
fn runs_side_by_side_leave_one_whole_record() {
    let Some(fixture) = available(fixture()) else { return };
    let state = state("beside");
    let run = learning(&fixture.run(&["sh", "-c", "cat many/* | cksum"]), &state);
    let expected = plain(&fixture, &run);
    fixture.reset();
    let learning = run.ahead(&["--learn"]);
    for _ in 0..3 {
        let all: Vec<_> = (0..4)
            .map(|_| {
                let run = learning.clone();
                std::thread::spawn(move || run.run())
            })
            .collect();
        for outcome in all {
            assert_eq!(outcome.join().expect("it does not panic"), expected);
        }
        let [file] = &files(&state)[..] else { panic!("{:?}", files(&state)) };
        let record = runahead_history::file::load(file).expect("a whole record");
        assert!(record.accesses.len() > 64);
    }
    let (_, stats) = ahead(&fixture, &run, &["--learn"]);
    assert!(count(&stats, &["history", "replayed", "used"]) > 32, "{stats:#}");
}

#[test]
fn without_a_place_to_learn_it_runs_all_the_same() {
    let file = scratch().join("no-directory");
    std::fs::write(&file, "").expect("ours");
    let open = scratch().join("open");
    std::fs::create_dir_all(open.join("runahead")).expect("ours");
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(open.join("runahead"), all).expect("ours");
    for state in [&file, &open, Path::new("/proc"), Path::new("/sys/none")] {
        let run = Run::new(["sh", "-c", "echo output; exit 7"]).env("XDG_STATE_HOME", state);
        let outcome = run.ahead(&["--learn"]).run();
        assert_eq!((outcome.end, outcome.text()), (End::Exit(7), "output\n".into()), "{outcome:?}");
        let complaints = outcome.complaints();
        let lines = complaints.lines().count();
        assert!(lines == 1 && complaints.contains("nothing is learned"), "{complaints}");
    }
    let outcome = Run::new(["sh", "-c", "echo output"])
        .env("XDG_STATE_HOME", "relative")
        .env("HOME", "")
        .ahead(&["--learn"])
        .run();
    assert!(outcome.complaints().contains("HOME") && outcome.text() == "output\n", "{outcome:?}");
}

/// One that is damaged is said to be so once, and then replaced.
#[test]
fn a_damaged_memory_is_replaced() {
    let state = state("damaged");
    let run = learning(&Run::new(["cat", "/etc/hostname"]), &state).ahead(&["--learn"]);
    assert_quiet(&run.run());
    let [file] = &files(&state)[..] else { panic!("{:?}", files(&state)) };
    std::fs::write(file, "rubbish").expect("ours");
    let outcome = run.run();
    assert_eq!((outcome.end, outcome.complaints().lines().count()), (End::Exit(0), 1));
    assert_quiet(&run.run());
}

#[test]
fn what_is_remembered_is_bounded() {
    let state = state("bounded");
    let dir = state.join("runahead");
    let run = learning(&Run::new(["cat", "/etc/hostname"]), &state).ahead(&["--learn"]);
    assert_quiet(&run.run());
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(1000);
    for n in 0..20u64 {
        let file = std::fs::File::create(dir.join(format!("{n:032x}.history"))).expect("ours");
        file.set_len(COMMAND_MAX as u64).expect("ours");
        file.set_modified(old + std::time::Duration::from_secs(n)).expect("ours");
    }
    let other = learning(&Run::new(["cat", "/etc/passwd"]), &state).ahead(&["--learn"]);
    assert_quiet(&other.run());
    let sizes = files(&state).into_iter().map(|path| path.metadata().expect("there").len());
    let total: u64 = sizes.sum();
    assert!(total <= TOTAL_MAX && total > TOTAL_MAX / 2, "{total}");
    let there = |n: u64| dir.join(format!("{n:032x}.history")).exists();
    assert!(!there(0) && !there(4) && there(19) && there(8), "the oldest go first");
}

#[test]
fn it_cannot_be_asked_for_together_with_a_file() {
    for option in ["--record=x", "--replay=x"] {
        let outcome = Run::new(["true"]).ahead(&["--learn", option]).run();
        assert_eq!(outcome.end, End::Exit(2), "{outcome:?}");
    }
}
