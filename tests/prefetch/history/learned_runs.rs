//! History that is kept without `--record`: private, bounded, merged, and harmless if it fails.

use std::os::unix::fs::PermissionsExt;

use runahead_history::store::{COMMAND_MAX, TOTAL_MAX};
use runahead_history::{Store, pending_runs};
use runahead_tests::{LEARNING, Seed, apart, available, fixture, installed};

use super::*;

/// A state directory of its own, which is not there yet.
fn state(name: &str) -> PathBuf {
    scratch().join(name).join("state")
}

fn learning(run: &Run, state: &Path) -> Run {
    run.clone().env("XDG_STATE_HOME", state)
}

/// Records of commands in that directory. Records of programs contain one word of the command
/// line.
fn files(state: &Path) -> Vec<PathBuf> {
    let is_command = |path: &PathBuf| {
        let run = runahead_history::run_file::load(path);
        run.map_or(true, |run| run.origin.line.len() > 1)
    };
    all_files(state).into_iter().filter(is_command).collect()
}

/// Records, with the logs of all runs merged into them.
fn all_files(state: &Path) -> Vec<PathBuf> {
    pending_runs::merge_all(&Store::at(&state.join("runahead"), TOTAL_MAX));
    let list = state.join("runahead").read_dir().into_iter().flatten().flatten();
    list.map(|entry| entry.path())
        .filter(|path| path.extension() == Some("history".as_ref()))
        .collect()
}

#[test]
fn the_second_run_foresees_the_reads_of_the_first() {
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
fn a_different_run_replaces_the_history() {
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
        let record = runahead_history::run_file::load(file).expect("a record");
        let dir = fixture.dir().join("src").join(dirs);
        let dir = dir.as_os_str().as_encoded_bytes().to_vec();
        assert!(record.paths.iter().any(|place| place.path.starts_with(&dir)), "of {dirs}");
        stats
    };
    learn("d0");
    learn("d1");
    let third = learn("d1");
    assert!(count(&third, &["history", "replayed", "used"]) > 20, "{third:#}");
}

#[test]
fn concurrent_runs_leave_one_whole_record() {
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
        let record = runahead_history::run_file::load(file).expect("a whole record");
        assert!(record.accesses.len() > 64);
    }
    let (_, stats) = ahead(&fixture, &run, &["--learn"]);
    assert!(count(&stats, &["history", "replayed", "used"]) > 32, "{stats:#}");
}

#[test]
fn a_command_runs_without_a_writable_state_directory() {
    let _apart = apart();
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

/// A merge that is killed leaves each record as it was, or as it becomes, and is done by the next.
#[test]
fn killed_merges_leave_the_old_record_or_the_new_one() {
    const KILLS: u64 = 100;
    let _apart = apart();
    let (state, copy) = (state("killed"), state("killed-copy"));
    let many = scratch().join("killed-files");
    std::fs::create_dir_all(&many).expect("ours");
    (0..200).for_each(|n| std::fs::write(many.join(n.to_string()), "x").expect("ours"));
    let script = "cat [0-9]* | cksum; test ! -e more || cat ../killed-files/1*";
    let run = learning(&Run::new(["sh", "-c", script]), &state).dir(&many).ahead(&["--learn"]);
    assert_quiet(&run.run());
    let [file] = &files(&state)[..] else { panic!("{:?}", files(&state)) };
    let load = |file: &Path| runahead_history::run_file::load(file).expect("a whole record");
    let old = load(file);
    std::fs::write(many.join("more"), "").expect("ours");
    assert_quiet(&run.run());
    let restore = |from: &Path, to: &Path| {
        let _ = std::fs::remove_dir_all(to);
        std::fs::create_dir_all(to).expect("ours");
        let copied =
            std::process::Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status();
        assert!(copied.expect("cp is there").success());
    };
    restore(&state, &copy);
    let list = || {
        let mut list = std::process::Command::new(runahead_tests::runahead());
        list.args(["history", "list"]).env("XDG_STATE_HOME", &state);
        list.stdout(std::process::Stdio::null());
        list
    };
    let started = std::time::Instant::now();
    assert!(list().status().expect("it runs").success());
    let whole = started.elapsed().as_micros() as u64;
    let new = load(file);
    assert_ne!(old, new, "there is nothing to merge");
    let (mut seed, mut left_old) = (Seed::new(), 0);
    for _ in 0..KILLS {
        restore(&copy, &state);
        let mut merging = list().spawn().expect("it runs");
        std::thread::sleep(std::time::Duration::from_micros(seed.below(whole)));
        merging.kill().expect("it is ours");
        merging.wait().expect("it is ours");
        let left = load(file);
        assert!(left == old || left == new);
        left_old += u64::from(left == old);
    }
    assert!(left_old > 0, "no merge was killed in time");
    let [file] = &files(&state)[..] else { panic!("{:?}", files(&state)) };
    assert_eq!(load(file), new);
}

/// A home directory that is not there is not made, neither by a record nor by a try.
#[test]
fn a_home_that_is_not_there_is_not_made() {
    let _apart = apart();
    let home = scratch().join("no-home/user");
    let run = Run::new(["sh", "-c", "echo output"]).env("HOME", &home);
    let run = run.env("XDG_STATE_HOME", "");
    let outcome = run.ahead(&["--learn"]).run();
    assert_eq!(outcome.text(), "output\n", "{outcome:?}");
    assert!(outcome.complaints().contains("HOME is not a directory"), "{outcome:?}");
    let tried =
        run.behind([runahead_tests::runahead().as_os_str(), "try".as_ref(), "--".as_ref()]).run();
    assert!(tried.complaints().contains("HOME"), "{tried:?}");
    assert!(!scratch().join("no-home").exists());
}

/// A damaged record is reported once, and then replaced.
#[test]
fn a_damaged_record_is_replaced() {
    let _apart = apart();
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
fn history_is_bounded() {
    let _apart = apart();
    let state = state("bounded");
    let dir = state.join("runahead");
    let run = learning(&Run::new(["cat", "/etc/hostname"]), &state).ahead(&["--learn"]);
    assert_quiet(&run.run());
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(1000);
    for n in 0..70u64 {
        let file = std::fs::File::create(dir.join(format!("{n:032x}.history"))).expect("ours");
        file.set_len(COMMAND_MAX as u64).expect("ours");
        file.set_modified(old + std::time::Duration::from_secs(n)).expect("ours");
    }
    let other = learning(&Run::new(["cat", "/etc/passwd"]), &state).ahead(&["--learn"]);
    assert_quiet(&other.run());
    let sizes = all_files(&state).into_iter().map(|path| path.metadata().expect("there").len());
    let total: u64 = sizes.sum();
    assert!(total <= TOTAL_MAX && total > TOTAL_MAX / 2, "{total}");
    let there = |n: u64| dir.join(format!("{n:032x}.history")).exists();
    assert!(!there(0) && !there(5) && there(69) && there(20), "the oldest go first");
}

#[test]
fn learn_conflicts_with_record_and_replay() {
    let _apart = apart();
    for option in ["--record=x", "--replay=x"] {
        let outcome = Run::new(["true"]).ahead(&["--learn", option]).run();
        assert_eq!(outcome.end, End::Exit(2), "{outcome:?}");
    }
}

#[test]
fn only_runs_that_wait_are_learned_by_default() {
    let Some(fixture) = available(fixture()) else { return };
    let state = state("default");
    let run = learning(&chain(&fixture), &state);
    let expected = plain(&fixture, &run);
    // In memory now.
    for _ in 0..2 {
        let outcome = run.ahead(&[LEARNING]).run();
        assert_eq!(outcome, expected);
        assert!(!state.exists(), "nothing waited, so nothing is kept");
    }
    let (outcome, first) = ahead(&fixture, &run, &[LEARNING]);
    assert_eq!(outcome, expected);
    assert_eq!(all_files(&state).len(), 3, "of the command, the place and the program");
    let (outcome, second) = ahead(&fixture, &run, &[LEARNING]);
    assert_eq!(outcome, expected);
    assert!(unforeseen(&second) * 4 <= unforeseen(&first), "{first:#} {second:#}");
    let (_, third) = ahead(&fixture, &run, &["--no-learn"]);
    assert_eq!(third["history"], Value::Null);
    assert!(unforeseen(&third) > 2 * unforeseen(&second), "{third:#}");
}

#[test]
fn other_arguments_use_the_programs_own_record() {
    let Some(fixture) = available(fixture()) else { return };
    let state = state("arguments");
    let with = |word: &str| {
        let script = "cat many/* | cksum; cat src/d0/* | cksum";
        learning(&fixture.run(&["sh", "-c", script, word]), &state)
    };
    let expected = plain(&fixture, &with("one"));
    let (outcome, _) = ahead(&fixture, &with("one"), &[LEARNING]);
    assert_eq!(outcome, expected);
    let (outcome, other) = ahead(&fixture, &with("two"), &[LEARNING]);
    assert_eq!(outcome, expected);
    assert!(count(&other, &["history", "replayed", "used"]) > 32, "{other:#}");
    // From elsewhere, too.
    let elsewhere = with("three").dir(fixture.dir().join("many"));
    let (_, other) = ahead(&fixture, &elsewhere, &[LEARNING]);
    assert!(count(&other, &["history", "replayed", "accesses"]) > 32, "{other:#}");
}

#[test]
fn excluded_disabled_and_forgotten_history_is_not_used() {
    let Some(fixture) = available(fixture()) else { return };
    let state = state("unwanted");
    let run = learning(&fixture.run(&["sh", "-c", "cat many/* src/d0/* | cksum"]), &state);
    let history = |words: &[&str]| {
        let words = ["history"].iter().chain(words);
        let argv: Vec<_> = std::iter::once(runahead_tests::runahead().display().to_string())
            .chain(words.map(|word| (*word).to_owned()))
            .collect();
        Run::new(&argv).env("XDG_STATE_HOME", &state).run()
    };
    let many = fixture.dir().join("many");
    assert_quiet(&history(&["exclude", &many.display().to_string()]));
    assert_eq!(history(&["exclude"]).text(), format!("{}\n", many.display()));
    let (_, stats) = ahead(&fixture, &run, &[LEARNING]);
    assert!(count(&stats, &["history", "recorded", "accesses"]) > 0);
    for file in all_files(&state) {
        let record = runahead_history::run_file::load(&file).expect("a record");
        let below = |path: &[u8]| path.starts_with(many.as_os_str().as_encoded_bytes());
        assert!(!record.paths.iter().any(|place| below(&place.path)));
        let d0 = fixture.dir().join("src/d0").into_os_string().into_encoded_bytes();
        assert!(record.paths.iter().any(|place| place.path.starts_with(&d0)));
    }
    assert_quiet(&history(&["exclude", "--undo", &many.display().to_string()]));

    let listed = history(&["list"]).text();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(listed.contains("sh -c 'cat many/* src/d0/* | cksum'"), "{listed}");
    let json = history(&["list", "--json"]).text();
    let first: Value = serde_json::from_str(json.lines().next().expect("a line")).expect("JSON");
    let name = first["name"].as_str().expect("a name").to_owned();
    let shown = history(&["show", &name[..8]]).text();
    assert!(shown.contains("look\t") && shown.contains("read "), "{shown}");

    assert_quiet(&history(&["disable"]));
    let (_, stats) = ahead(&fixture, &run, &[LEARNING]);
    assert_eq!(stats["history"], Value::Null, "nothing is replayed or recorded");
    assert!(history(&["list"]).text().starts_with("(disabled"));
    assert_quiet(&history(&["enable"]));
    assert_quiet(&history(&["forget", &name]));
    assert_eq!(all_files(&state).len(), 2);
    let outcome = history(&["forget", &name]);
    assert_eq!((outcome.end, outcome.complaints().lines().count()), (End::Exit(1), 1));
    assert_eq!(history(&["forget"]).end, End::Exit(2));
    assert_quiet(&history(&["forget", "--all"]));
    assert!(all_files(&state).is_empty() && history(&["list"]).text().is_empty());
}

#[test]
fn a_record_beside_the_program_is_used() {
    let Some(fixture) = available(fixture()) else { return };
    let state = state("shipped");
    let program = fixture.dir().join("shipped.sh");
    let record = fixture.dir().join("shipped.sh.runahead");
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
    };
    fixture.change(|_| {
        std::fs::write(&program, "#!/bin/sh\ncat many/* | cksum\n").expect("ours");
        mode(&program, 0o755);
    });
    let run = learning(&fixture.run(&[&program.display().to_string()]), &state);
    let expected = plain(&fixture, &run);
    let kept = record_path("shipped");
    let (outcome, _) = with_file(&fixture, &run, "--record", &kept);
    assert_eq!(outcome, expected);
    fixture.change(|_| _ = std::fs::copy(&kept, &record).expect("ours"));
    for (trusted, bits) in [(true, 0o644), (false, 0o666)] {
        fixture.change(|_| mode(&record, bits));
        let _ = std::fs::remove_dir_all(&state);
        let (outcome, stats) = ahead(&fixture, &run, &[LEARNING]);
        assert_eq!(outcome, expected);
        let replayed = &stats["history"]["replayed"];
        assert_eq!(replayed.is_object(), trusted, "{stats:#}");
        if trusted {
            assert!(count(replayed, &["used"]) > 32, "{stats:#}");
        }
    }
}

/// A record contains the pages of a mapping that were used, also after munmap.
#[test]
fn used_pages_of_a_mapping_are_recorded() {
    let Some(fixture) = available(fixture()) else { return };
    let Some(()) = available(installed("python3")) else { return };
    const MIB: usize = 1 << 20;
    fixture.change(|dir| std::fs::write(dir.join("mapped"), vec![7; 16 * MIB]).expect("room"));
    let script = "import mmap, sys; f = open('mapped', 'rb'); \
                  m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); \
                  print(sum(m[n << 20] for n in range(0, 16, 4))); m.close() if sys.argv[1] else 0";
    for taken_away in ["", "yes"] {
        let state = state(&format!("mapped{taken_away}"));
        let run = fixture.run(&["python3", "-B", "-S", "-c", script, taken_away]);
        let run = learning(&run, &state);
        let expected = plain(&fixture, &run);
        for _ in 0..2 {
            let (outcome, _) = ahead(&fixture, &run, &["--learn"]);
            assert_eq!(outcome, expected);
        }
        let [file] = &files(&state)[..] else { panic!("{:?}", files(&state)) };
        let record = runahead_history::run_file::load(file).expect("a record");
        let used = |at: u64| {
            record.accesses.iter().any(|access| {
                let is_there = |(offset, length)| (offset..offset + length).contains(&at);
                record.path_of(access).path.ends_with(b"/mapped")
                    && access.kind.range().is_some_and(is_there)
            })
        };
        let all: Vec<bool> = (0..16).map(|n| used((n << 20) + (512 << 10))).collect();
        assert!((0..16u64).step_by(4).all(|n| used(n << 20)), "what was used is there");
        assert!(!all.iter().any(|&there| there), "and nothing else: {all:?}");
    }
}
