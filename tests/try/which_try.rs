//! Selection of the try that a subcommand without a name is about, and what it reports.

use std::fs;
use std::time::{Duration, SystemTime};

use runahead_tests::{End, Outcome, Run, runahead};

use crate::try_directory::{Place, names};

/// Runs `runahead try` in a directory below the working directory.
fn tried_in(place: &Place, directory: &str, words: &[&str]) -> Outcome {
    let state = place.state.to_str().expect("a plain path");
    let program = runahead().to_str().expect("a plain path");
    let argv: Vec<_> = [program, "try", "--state", state].iter().chain(words).copied().collect();
    Run::new(argv).dir(place.work.join(directory)).run()
}

fn shell_in(place: &Place, directory: &str, script: &str) {
    let outcome = tried_in(place, directory, &["-q", "--", "/bin/sh", "-c", script]);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
}

#[test]
fn tries_of_other_directories_are_not_taken() {
    let place = Place::filled("which");
    shell_in(&place, "d1", "echo new > x");
    let [first] = &names(&place)[..] else { panic!("one: {:?}", names(&place)) };
    for task in ["commit", "undo", "status", "diff", "valid"] {
        let outcome = tried_in(&place, "d0", &[task]);
        assert_eq!(outcome.end, End::Exit(1), "{task}: {outcome:?}");
        assert!(outcome.complaints().contains(first), "{task}: {outcome:?}");
        assert!(outcome.complaints().contains("no try was begun in"), "{task}: {outcome:?}");
    }
    // Nor one that was begun below.
    assert_eq!(place.tried(&["commit"]).end, End::Exit(1));
    // Names are valid anywhere.
    assert_eq!(tried_in(&place, "d0", &["status", first]).end, End::Exit(0));
    // A directory below the one where it was begun.
    assert!(tried_in(&place, "d1/a", &["status"]).text().contains("d1/x"));
    assert_eq!(tried_in(&place, "d1/a", &["commit"]).end, End::Exit(0));
    assert!(place.work.join("d1/x").exists());
}

#[test]
fn the_newest_of_here_or_above_is_taken() {
    let place = Place::filled("newest-here");
    shell_in(&place, ".", "echo above > x");
    shell_in(&place, "d0", "echo here > y");
    shell_in(&place, "d1", "echo elsewhere > z");
    assert_eq!(tried_in(&place, "d0", &["commit"]).end, End::Exit(0));
    assert!(place.work.join("d0/y").exists() && !place.work.join("x").exists());
    assert_eq!(tried_in(&place, "d0", &["commit"]).end, End::Exit(0));
    assert!(place.work.join("x").exists() && !place.work.join("d1/z").exists());
    assert_eq!(names(&place).len(), 1);
}

#[test]
fn directories_are_compared_as_bytes() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Place::filled("bytes");
    let run = |directory: &[u8], words: &[&str]| {
        let directory = place.work.join(OsStr::from_bytes(directory));
        fs::create_dir_all(&directory).expect("it is ours");
        let state = place.state.to_str().expect("a plain path");
        let program = runahead().to_str().expect("a plain path");
        let argv: Vec<_> =
            [program, "try", "--state", state].iter().chain(words).copied().collect();
        Run::new(argv).dir(directory).run()
    };
    assert_eq!(run(b"q\xff", &["-q", "--", "/bin/sh", "-c", "echo > x"]).end, End::Exit(0));
    let other = run(b"q\xfe", &["commit"]);
    assert_eq!(other.end, End::Exit(1), "{other:?}");
    assert!(other.complaints().contains("q\\377"), "{other:?}");
    let json = run(b"q\xff", &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let bytes = status["try"]["directory_bytes"].as_array().expect("an array");
    assert_eq!(bytes.last(), Some(&0xff.into()));
    assert_eq!(run(b"q\xff", &["commit"]).end, End::Exit(0));
    assert!(place.work.join(OsStr::from_bytes(b"q\xff")).join("x").exists());
}

#[test]
fn words_are_recorded_as_bytes() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Place::filled("word-bytes");
    let state = place.state.as_os_str().as_bytes();
    let program = runahead().as_os_str().as_bytes();
    let words: &[&[u8]] = &[b"/bin/sh", b"-c", b"echo > \"$0\"", b"q\xff"];
    let argv = [program, b"try", b"-q", b"--state", state, b"--"];
    let argv: Vec<_> = argv.iter().chain(words).copied().map(OsStr::from_bytes).collect();
    let mut command = std::process::Command::new(argv[0]);
    assert!(command.args(&argv[1..]).current_dir(&place.work).status().expect("it runs").success());
    for task in [&["status", "--json"][..], &["list", "--json"], &["diff", "--json"]] {
        let outcome = place.tried(task);
        assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        let value: serde_json::Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
        if task[0] != "diff" {
            assert_eq!(value["try"]["command"][3], "q\u{fffd}");
            let expected: Vec<_> = words.iter().map(|word| word.to_vec()).collect();
            assert_eq!(value["try"]["command_bytes"], serde_json::json!(expected));
        }
    }
    let text = place.tried(&["status"]).text();
    assert!(text.contains("\"q\\377\""), "{text}");
    place.commit();
    assert!(place.work.join(OsStr::from_bytes(b"q\xff")).exists());
}

#[test]
fn a_try_that_changed_nothing_keeps_its_name() {
    let place = Place::filled("nothing");
    place.shell("echo older > x");
    let older = names(&place);
    let said = place.tried(&["--", "true"]).complaints();
    let name = said.strip_prefix("runahead: try ").and_then(|rest| rest.split_once(':'));
    let id = name.expect("a name").0.to_owned();
    assert!(said.contains("has changed nothing"), "{said}");
    assert_eq!(names(&place), older, "nothing is to be decided on it");
    let status = place.tried(&["status"]);
    assert!(
        status.text().starts_with(&id) && status.text().contains("changed nothing"),
        "{status:?}"
    );
    let json = place.tried(&["status", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        (&value["try"]["id"], &value["try"]["unchanged"]),
        (&id.clone().into(), &true.into())
    );
    assert_eq!(place.tried(&["valid"]).end, End::Exit(0));
    assert!(place.tried(&["diff"]).stdout.is_empty());
    let commit = place.tried(&["commit"]);
    assert_eq!(commit.end, End::Exit(0), "{commit:?}");
    assert!(commit.complaints().contains(&format!("try {id} of ")), "{commit:?}");
    assert!(commit.complaints().contains("has changed nothing"), "{commit:?}");
    assert!(!place.work.join("x").exists(), "the older try was not taken");
    assert_eq!(place.tried(&["commit", &id]).end, End::Exit(1), "it is gone");
    assert_eq!(place.tried(&["undo", &older[0]]).end, End::Exit(0));
}

#[test]
fn an_entry_made_and_removed_again_gives_its_directory_a_time() {
    let place = Place::filled("made-and-removed");
    let directory = place.work.join("inner");
    fs::create_dir(&directory).expect("it is ours");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let opened = fs::File::open(&directory).expect("it is ours");
    opened.set_modified(old).expect("it is ours");
    place.shell("echo > inner/x; rm inner/x");
    let modified = || fs::metadata(&directory).and_then(|found| found.modified()).expect("it is");
    assert_eq!(modified(), old);
    let commit = place.tried(&["commit"]);
    assert!(commit.complaints().contains("has changed nothing"), "{commit:?}");
    assert!(modified() > old, "as without the try");
}

#[test]
fn names_of_unchanged_tries_are_kept_for_a_day() {
    let place = Place::filled("a-day");
    place.tried(&["-q", "--", "true"]);
    place.shell("echo > x");
    // As if both had been there for two days.
    for entry in fs::read_dir(&place.state).expect("it is there") {
        let old = entry.expect("it is there").path();
        let name = old.file_name().and_then(|name| name.to_str()).expect("a plain name");
        let (aged, meta) = (old.with_file_name(format!("0{}", &name[1..])), old.join("meta.json"));
        let text = fs::read_to_string(&meta).expect("it is there");
        let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        value["id"] = aged.file_name().and_then(|name| name.to_str()).into();
        let ended = value["ended"].as_u64().expect("it has ended");
        value["ended"] = (ended - 2 * 24 * 60 * 60).into();
        fs::write(&meta, value.to_string()).expect("it is ours");
        fs::rename(&old, &aged).expect("it is ours");
    }
    let kept = || fs::read_dir(&place.state).expect("it is there").count();
    assert_eq!(kept(), 2);
    place.shell("echo > y");
    assert_eq!((kept(), names(&place).len()), (2, 2), "one was dropped, and one is new");
}

#[test]
fn inner_tries_without_changes_do_not_keep_the_outer_one() {
    let place = Place::filled("nothing-inside");
    let outcome = place.around(
        "echo > x; \"$TRY\" try -q -- true; \"$TRY\" try status; \"$TRY\" try list; \"$TRY\" try -q -- cat a",
    );
    assert!(outcome.text().contains("changed nothing"), "{outcome:?}");
    assert_eq!(outcome.text().lines().count(), 2, "{outcome:?}");
    place.commit();
    assert!(place.work.join("x").exists());
    // Nor is an outer one kept because of them.
    place.around("\"$TRY\" try -q -- true");
    assert!(place.tried(&["list"]).stdout.is_empty());
}

#[test]
fn tries_of_one_second_have_different_names() {
    let place = Place::filled("one-second");
    let words = ["first", "second", "third"];
    words.iter().for_each(|word| _ = place.shell(&format!("echo > {word}")));
    let ids = names(&place);
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(ids.is_sorted() && ids.iter().all(|id| id.len() == 9), "{ids:?}");
    for (id, word) in ids.iter().zip(words) {
        assert!(place.tried(&["status", id]).text().contains(&format!("work/{word}")));
    }
    // A name of an earlier version has no milliseconds, and is older than all of its second.
    let (new, old) = (place.state.join(&ids[2]), place.state.join(&ids[0][..7]));
    let meta = fs::read_to_string(new.join("meta.json")).expect("it is there");
    fs::write(new.join("meta.json"), meta.replace(&ids[2], &ids[0][..7])).expect("it is ours");
    fs::rename(&new, &old).expect("it is ours");
    assert_eq!(names(&place), [&ids[0][..7], &ids[0], &ids[1]]);
    assert_eq!(place.tried(&["commit", &ids[0][..7]]).end, End::Exit(0));
    assert!(place.work.join("third").exists());
}

#[test]
fn commit_and_undo_say_what_was_done() {
    let place = Place::filled("said");
    let change = "echo > new; echo more >> a; rm -r d1";
    for (task, done) in [("undo", "undone"), ("commit", "committed")] {
        place.shell(change);
        let id = names(&place).remove(0);
        let outcome = tried_in(&place, "d0", &[task]);
        assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        let expected = format!(
            "runahead: try {id} of {} {done}: 1 added, 1 modified, 4 deleted\n",
            place.work.display()
        );
        assert_eq!(outcome.complaints(), expected);
    }
    for task in ["undo", "commit"] {
        place.again();
        place.shell(change);
        let outcome = place.tried(&[task, "-q"]);
        assert_eq!((outcome.end, outcome.complaints().as_str()), (End::Exit(0), ""));
    }
}

#[test]
fn undo_without_any_try_succeeds() {
    let place = Place::filled("no-try");
    let outcome = place.tried(&["undo"]);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    assert!(outcome.complaints().contains("there is no try"), "{outcome:?}");
    assert_eq!(place.tried(&["undo", "-q"]).complaints(), "");
    assert_eq!(place.tried(&["commit"]).end, End::Exit(1));
    assert_eq!(place.tried(&["undo", "x"]).end, End::Exit(1));
}
