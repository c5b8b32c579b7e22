//! Commits and undoes of chosen changes: which can be chosen, which are refused, and what is said.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use runahead_tests::{End, Run, runahead};

use crate::try_directory::{Place, differences, names, seen, untouched};

/// Changes of all kinds: modified, added, removed, renamed, of another type, of a directory's
/// permissions, and of a file with several names.
const CHANGES: &str = "echo more >> a; rm -r d0/d1; mv d1 e; rm -r d2; echo file > d2; mkdir -p n/m; echo 1 > n/m/f; \
     echo 2 > n/g; ln -s a k; mkfifo p; chmod 700 d0; echo linked >> h1; mv h2 h3; echo 3 > d0/b";

fn place(name: &str) -> Place {
    let place = Place::filled(name);
    prepare(&place);
    assert_eq!(place.shell(CHANGES).end, End::Exit(0));
    place
}

fn prepare(place: &Place) {
    let script = "echo one > h1; ln h1 h2; touch -d 2001-01-01 h1 .";
    assert_eq!(place.run(&["/bin/sh", "-c", script]).end, End::Exit(0));
}

/// Names that the only try changes, below the working directory.
fn changed(place: &Place) -> Vec<String> {
    let status = place.tried(&["status"]).text();
    let lines = status.lines().skip(1).filter_map(|line| line.split_once("work/"));
    lines.map(|(_, name)| name.to_owned()).collect()
}

fn expect(place: &Place, words: &[&str], said: &str) {
    let outcome = place.tried(words);
    assert_eq!(outcome.end, End::Exit(0), "{words:?}: {outcome:?}");
    assert!(outcome.complaints().contains(said), "{words:?}: {outcome:?}");
}

/// Expects that a choice is refused with this text, and that nothing is done.
fn refused(place: &Place, words: &[&str], said: &str) {
    let (before, changes) = (untouched(&place.work), changed(place));
    let outcome = place.tried(words);
    assert_eq!(outcome.end, End::Exit(1), "{words:?}: {outcome:?}");
    assert!(outcome.complaints().contains(said), "{words:?}: {outcome:?}");
    assert_eq!((before, changes), (untouched(&place.work), changed(place)), "{words:?}");
}

#[test]
fn each_choice_says_what_was_done_and_what_stays() {
    let place = place("chosen-said");
    let all = changed(&place).len();
    let id = names(&place).remove(0);
    let stays = |count: usize| format!("{count} changes stay in the try");
    expect(&place, &["commit", "./a"], &format!("committed: 1 modified; {}", stays(all - 1)));
    expect(&place, &["undo", &id, "n/m/"], &format!("undone: 2 added; {}", stays(all - 3)));
    expect(&place, &["undo", &id[..6], "--", "k"], &stays(all - 4));
    expect(&place, &["commit", "-q", "./p"], "");
    let outside = place.work.join("d0").display().to_string();
    expect(&place, &["commit", &outside, "./n"], "committed: 2 added");
    assert_eq!(place.run(&["cat", "a", "n/g", "d0/b"]).text(), "one\nmore\n2\n3\n");
    assert!(!place.work.join("n/m").exists() && !place.work.join("d0/d1").exists());
    assert!(!changed(&place).iter().any(|name| name.starts_with("d0")), "{:?}", changed(&place));
    expect(&place, &["commit", "."], "committed: ");
    assert!(names(&place).is_empty(), "nothing is left");
}

#[test]
fn a_choice_of_everything_drops_the_try() {
    for task in ["commit", "undo"] {
        let place = place(&format!("chosen-all-{task}"));
        let words: Vec<_> = changed(&place).iter().map(|name| format!("./{name}")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        expect(&place, &[&[task], &words[..]].concat(), "added");
        assert!(names(&place).is_empty(), "{task}");
        assert_eq!(place.work.join("n").exists(), task == "commit");
    }
}

#[test]
fn what_cannot_be_chosen_alone_is_refused() {
    let place = place("chosen-refused");
    let made = "is in a directory that the try has made; give that instead: ";
    for task in ["commit", "undo"] {
        refused(&place, &[task, "./none"], "nothing in try ");
        refused(&place, &[task, "./none", "./a"], "is at or below ");
        refused(&place, &[task, "d0/d1/c"], "is in a directory that the try has removed");
        refused(&place, &[task, "d1/a"], "give that instead: ");
        refused(&place, &[task, "d2/long name"], "is in a directory that the try has");
        refused(&place, &[task, "./h1"], "is a name of one file with ");
        refused(&place, &[task, "./h2", "./h3"], "work/h1; give these too");
    }
    refused(&place, &["commit", "n/m/f"], made);
    refused(&place, &["commit", "e/a"], made);
    expect(&place, &["undo", "n/m/f"], "undone: 1 added");
    expect(
        &place,
        &["commit", "./h1", "./h2", "./h3"],
        "committed: 1 added, 1 modified, 1 deleted",
    );
    let file = |name: &str| fs::metadata(place.work.join(name)).expect("it is there").ino();
    assert_eq!(file("h1"), file("h3"));
    assert_eq!(fs::read_to_string(place.work.join("h3")).expect("it is there"), "one\nlinked\n");
}

#[test]
fn new_names_of_one_file_are_committed_together() {
    let place = Place::filled("chosen-links");
    place.shell("echo new > x; ln x y; ln x d0/z; echo other > o");
    refused(&place, &["commit", "./x", "d0/z"], "work/y; give these too");
    expect(&place, &["undo", "./y"], "undone: 1 added; 3 changes stay");
    expect(&place, &["commit", "./x", "d0/z"], "committed: 2 added; 1 change stays in the try");
    let found = fs::metadata(place.work.join("x")).expect("it is there");
    assert_eq!((found.nlink(), place.work.join("y").exists()), (2, false));
    expect(&place, &["undo"], "undone: 1 added");
}

#[test]
fn words_that_are_no_plain_choice_are_usage_errors() {
    let place = place("chosen-usage");
    let id = names(&place).remove(0);
    let before = changed(&place);
    for (words, said) in [
        (&["undo", "--"][..], "a PATH must follow `--`"),
        (&["undo", &id, "--", ""], "a PATH is empty"),
        (&["commit", &id, ""], "a PATH is empty"),
    ] {
        let outcome = place.tried(words);
        assert_eq!(outcome.end, End::Exit(2), "{outcome:?}");
        assert!(outcome.complaints().contains(said), "{outcome:?}");
    }
    let text = "nothing in try ";
    refused(&place, &["commit", &id, &id], text);
    refused(
        &place,
        &["commit", "a"],
        "no try is called a; see runahead try list, or write ./a if it is a PATH",
    );
    assert_eq!(before, changed(&place));
    let help = Run::new([runahead().to_str().expect("a plain path"), "try", "undo", "--help"]);
    assert!(help.run().text().contains("at and below the paths"));
}

/// A path leads through the links of the try's view, as its names do.
#[test]
fn paths_lead_through_links() {
    let place = Place::filled("chosen-through");
    place.shell("echo more >> l/b; ln -sfn d1 l; echo new > l/new; echo x > x");
    expect(&place, &["commit", "l/new"], "committed: 1 added; 3 changes stay");
    assert!(place.work.join("d1/new").exists() && !place.work.join("l/new").exists());
    expect(&place, &["commit", "./l"], "committed: 1 modified");
    assert_eq!(fs::read_link(place.work.join("l")).expect("a link"), Path::new("d1"));
    expect(&place, &["undo", "nowhere/../d0"], "undone: 1 modified; 1 change stays");
}

#[test]
fn only_conflicts_of_the_choice_count() {
    let place = place("chosen-conflict");
    fs::write(place.work.join("a"), "theirs").expect("it is ours");
    let outcome = place.tried(&["commit", "--reads", "ignore", "./a", "./k"]);
    assert_eq!(outcome.end, End::Exit(3), "{outcome:?}");
    assert!(!place.work.join("k").exists());
    expect(&place, &["commit", "--reads", "ignore", "./k"], "committed: 1 added");
    let outcome = place.tried(&["commit", "--reads", "ignore"]);
    assert_eq!(outcome.end, End::Exit(3), "{outcome:?}");
    expect(&place, &["commit", "--force", "./a"], "committed: 1 modified");
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("there"), "one\nmore\n");
}

#[test]
fn what_a_choice_has_changed_is_no_stale_read() {
    let place = Place::filled("chosen-reads");
    place.shell("cat a d0/b; ls . d0 d2; [ -e new ] || cp a new; echo more >> a; rm d0/b; echo x > out; echo y > d2/y");
    expect(&place, &["commit", "./a", "./new", "d0"], "committed: ");
    let valid = place.tried(&["valid"]);
    assert_eq!(valid.end, End::Exit(0), "{valid:?}");
    for (name, text) in [("a", "one\nmore\n"), ("new", "one\n")] {
        fs::write(place.work.join(name), "theirs").expect("it is ours");
        let outcome = place.tried(&["commit", "./out"]);
        assert_eq!(outcome.end, End::Exit(3), "{outcome:?}");
        assert!(
            outcome.complaints().contains(&format!("work/{name}: it was changed")),
            "{outcome:?}"
        );
        fs::write(place.work.join(name), text).expect("it is ours");
        expect(
            &place,
            &["commit", "--reads", "ignore", "./out"],
            "committed: 1 added; 1 change stays",
        );
        let undone = place.tried(&["undo"]);
        assert_eq!(undone.end, End::Exit(0), "{undone:?}");
        place.again();
        place.shell("cat a d0/b; [ -e new ] || cp a new; echo more >> a; rm d0/b; echo x > out; echo y > d2/y");
        expect(&place, &["commit", "./a", "./new", "d0"], "committed: ");
    }
}

#[test]
fn inner_tries_are_decided_by_choice_too() {
    let place = Place::filled("chosen-inside");
    let outcome = place.around(
        "echo outer > o; \"$TRY\" try -q -- sh -c 'echo 1 >> a; echo 2 > new; rm d0/b; mv d1 e'; \
         \"$TRY\" try commit -q ./a d0; cat a; ls d0 new; \"$TRY\" try undo -q -- new; \"$TRY\" try commit -q; ls e new",
    );
    assert_eq!(outcome.text(), "one\n1\nd0:\nd1\ne:\na\nl\n", "{outcome:?}");
    let id = names(&place).remove(0);
    expect(&place, &["commit", &id, "./a", "./o"], "committed: 1 added, 1 modified");
    assert_eq!(place.tried(&["commit", &id]).end, End::Exit(0));
    assert!(place.work.join("e/a").exists() && !place.work.join("d0/b").exists());
}

/// An inner try that is left to be decided from outside.
#[test]
fn inner_tries_are_decided_by_choice_from_outside() {
    let place = Place::filled("chosen-outside");
    place.around(
        "echo outer > o; \"$TRY\" try -q -- sh -c 'echo 1 >> a; echo 2 > new; echo 3 > third'",
    );
    let inner = names(&place).pop().expect("the inner one");
    let outer = inner.split('.').next().expect("a name").to_owned();
    refused(&place, &["commit", &outer, "./o"], "has nested tries");
    refused(&place, &["undo", &outer, "./o"], "has nested tries");
    expect(&place, &["undo", &inner, "./new"], "undone: 1 added; 2 changes stay");
    expect(&place, &["commit", &inner, "--", "a"], "committed: 1 modified; 1 change stays");
    expect(&place, &["commit", &inner], "committed: 1 added");
    assert!(
        !place.work.join("a").exists()
            || fs::read(place.work.join("a")).expect("there") == b"one\n"
    );
    expect(&place, &["commit", &outer, "./third"], "committed: 1 added; ");
    assert!(place.work.join("third").exists() && !place.work.join("o").exists());
    expect(&place, &["commit", &outer], "committed: ");
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("there"), "one\n1\n");
}

/// True if a commit or an undo has begun.
fn has_journal(state: &Path) -> bool {
    let tries = fs::read_dir(state).expect("it is there").flatten();
    tries.into_iter().any(|tried| tried.path().join("journal").exists())
}

const MANY: &str = "for n in $(seq 60); do echo new > c/new$n; echo more >> c/old$n; rm c/gone$n; echo rest > r/$n; done; \
     find . -exec touch -h -d 2002-02-02 {} +";

#[test]
fn a_killed_choice_is_finished_or_as_before() {
    let place = Place::new("chosen-killed");
    let fill = || {
        fs::remove_dir_all(&place.work).expect("it is ours");
        fs::create_dir_all(&place.work).expect("it is ours");
        let script = "mkdir c r; for n in $(seq 60); do echo old > c/old$n; echo gone > c/gone$n; done; \
             find . -exec touch -h -d 2001-01-01 {} +";
        assert_eq!(place.run(&["/bin/sh", "-c", script]).end, End::Exit(0));
    };
    fill();
    let before = seen(&place.work);
    place.run(&["/bin/sh", "-c", MANY]);
    let made = seen(&place.work);
    let mut interrupted = 0;
    for round in 0u64..14 {
        fill();
        assert_eq!(place.shell(MANY).end, End::Exit(0));
        let all = changed(&place).len();
        let task = if round % 3 == 2 { "undo" } else { "commit" };
        let program = runahead().to_str().expect("a plain path");
        let state = place.state.to_str().expect("a plain path");
        let argv = [program, "try", "--state", state, task, "-q", "./c"];
        let mut running: std::process::Child = Command::new(argv[0])
            .args(&argv[1..])
            .current_dir(&place.work)
            .spawn()
            .expect("it starts");
        let mut is_over = || running.try_wait().expect("it is ours").is_some();
        while !has_journal(&place.state) && !is_over() {
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(Duration::from_micros(round * 7919 % 24_000));
        running.kill().expect("it is ours");
        running.wait().expect("it is ours");
        let status = place.tried(&["status"]);
        let is_interrupted = status.text().contains("was interrupted");
        interrupted += u64::from(is_interrupted);
        if task == "undo" {
            assert!(differences(&before, &seen(&place.work)).is_empty(), "round {round}");
            if changed(&place).iter().any(|name| name.starts_with("c/")) || is_interrupted {
                expect(&place, &["undo", "./c"], "undone: ");
            }
            expect(&place, &["commit"], "committed: ");
            let found = seen(&place.work);
            let is_right = |name: &Path| {
                let from = if name.starts_with("c") { &before } else { &made };
                found.get(name) == from.get(name)
            };
            assert!(found.keys().all(|name| is_right(name)), "round {round}");
        } else if is_interrupted {
            let refused = place.tried(&["commit", "./c"]);
            assert_eq!(refused.end, End::Exit(1), "{refused:?}");
            assert!(
                refused.complaints().contains("was interrupted: finish it with"),
                "{refused:?}"
            );
            if round % 2 == 0 || place.tried(&["undo"]).end != End::Exit(0) {
                expect(&place, &["commit"], "stay in the try");
            } else {
                assert_eq!(changed(&place).len(), all, "round {round}");
                assert!(differences(&before, &seen(&place.work)).is_empty(), "round {round}");
            }
        }
        if !names(&place).is_empty() {
            assert_eq!(place.tried(&["commit"]).end, End::Exit(0), "round {round}");
        }
        if task == "commit" {
            let differences = differences(&made, &seen(&place.work));
            assert!(differences.is_empty(), "round {round}: {differences:#?}");
        }
        assert!(names(&place).is_empty());
    }
    assert!(interrupted > 1, "{interrupted} of 14 were met");
}
