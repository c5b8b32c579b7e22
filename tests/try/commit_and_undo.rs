//! Listing, committing and undoing the changes of a try; conflicts with changes outside of it.

use std::fs;

use runahead_tests::{End, drain};

use crate::try_directory::{Place, untouched};

#[test]
fn undo_leaves_the_tree_untouched() {
    let place = Place::filled("undo");
    let before = untouched(&place.work);
    let outcome = place
        .shell("rm -rf d0; mv d1 x; echo y > a; chmod 600 a; touch -d 2003-03-03 d2; mkfifo p; ls");
    assert_eq!((outcome.end, outcome.text().as_str()), (End::Exit(0), "a\nd2\nl\np\nx\n"));
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
    assert_eq!(before, untouched(&place.work));
    assert!(fs::read_dir(&place.state).expect("it is there").next().is_none(), "nothing is kept");
}

#[test]
fn status_and_diff_list_the_changes() {
    let place = Place::filled("told");
    place.shell("echo more >> a; rm -r d0/d1; mkdir n; echo new > n/f; chmod 700 d2; ln -s a k");
    let json = place.tried(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let changes: Vec<_> = status["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| {
            let path =
                change["path"].as_str().expect("a path").rsplit_once("work/").expect("below it").1;
            format!(
                "{} {} {path}",
                change["change"].as_str().unwrap_or("?"),
                change["type"].as_str().unwrap_or("?")
            )
        })
        .collect();
    let expected = [
        "modified file a",
        "deleted directory d0/d1",
        "deleted file d0/d1/c",
        "attributes directory d2",
        "added symlink k",
        "added directory n",
        "added file n/f",
    ];
    assert_eq!(changes, expected);
    assert_eq!(status["try"]["status"], 0);
    let text = place.tried(&["status"]).text();
    assert!(text.contains(" D ") && text.lines().count() == 1 + expected.len(), "{text}");
    let diff = place.tried(&["diff"]).text();
    assert!(
        diff.contains("\n-three\n") && diff.contains("\n+more\n") && diff.contains("\n+new\n"),
        "{diff}"
    );
    let lines: serde_json::Value =
        serde_json::from_slice(&place.tried(&["diff", "--json"]).stdout).expect("JSON");
    assert_eq!(
        (&lines["files"][0]["added"], &lines["files"][0]["removed"]),
        (&1.into(), &0.into()),
        "{lines}"
    );
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
}

#[test]
fn commit_overwrites_no_change_from_outside() {
    let place = Place::filled("conflict");
    place.shell("echo ours >> a; rm -r d0; echo ours > new; echo fine > other");
    fs::write(place.work.join("a"), "theirs").expect("it is ours");
    fs::write(place.work.join("d0/late"), "theirs").expect("it is ours");
    fs::write(place.work.join("new"), "theirs").expect("it is ours");
    let before = untouched(&place.work);
    let outcome = place.tried(&["commit"]);
    assert_eq!(outcome.end, End::Exit(3), "{outcome:?}");
    for name in ["work/a: it was changed", "d0/late: it was made", "work/new: it was made"] {
        assert!(outcome.complaints().contains(name), "{name}: {outcome:?}");
    }
    assert!(!outcome.complaints().contains("other"), "{outcome:?}");
    assert_eq!(before, untouched(&place.work), "nothing was done");
    assert_eq!(place.tried(&["commit", "--force"]).end, End::Exit(0));
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "one\nours\n");
    assert!(!place.work.join("d0").exists() && place.work.join("other").exists());
}

#[test]
fn a_check_decides_between_commit_and_undo() {
    let place = Place::filled("check");
    let status = |check: &str, script: &str| {
        place.tried(&["-q", "--commit-if", check, "--", "/bin/sh", "-c", script]).end
    };
    let text = || fs::read_to_string(place.work.join("a")).expect("it is there");
    assert_eq!(status("grep -q two a", "echo two > a"), End::Exit(0));
    assert_eq!(text(), "two\n");
    assert_eq!(status("echo dirt > a; grep -q no a; exit 4", "echo three > a"), End::Exit(4));
    assert_eq!(status("true", "echo three > a; exit 7"), End::Exit(7));
    assert_eq!(text(), "two\n");
    assert!(place.tried(&["list"]).stdout.is_empty(), "each is decided");
}

#[test]
fn the_status_of_the_check_is_reported() {
    let place = Place::filled("check-status");
    let said = |check: &str, script: &str| {
        let outcome = place.tried(&["--commit-if", check, "--", "/bin/sh", "-c", script]);
        (outcome.end, outcome.complaints())
    };
    let (end, text) = said("exit 4", "echo x > x");
    assert!(
        end == End::Exit(4) && text.contains("undone: 1 added (CHECK: exit status 4)"),
        "{text}"
    );
    let (end, text) = said("true", "echo x > x; exit 7");
    assert!(end == End::Exit(7) && text.contains("(COMMAND: exit status 7)"), "{text}");
    // Also if the command has changed nothing.
    let (end, text) = said("exit 4", "true");
    assert!(end == End::Exit(4) && text.contains("(CHECK: exit status 4)"), "{text}");
    let (end, text) = said("echo y > y", "true");
    assert!(end == End::Exit(0) && text == "runahead: committed: 1 added\n", "{text}");
    assert!(place.work.join("y").exists());
    assert_eq!(said("true", "true").0, End::Exit(0));
    assert!(place.tried(&["list"]).stdout.is_empty(), "each is decided");
}

#[test]
fn several_tries_start_from_the_same_tree() {
    let place = Place::filled("several");
    for word in ["first", "second"] {
        assert_eq!(
            place.shell(&format!("cat a; echo {word} > a; echo {word} > {word}")).text(),
            "one\n"
        );
    }
    let list = place.tried(&["list"]).text();
    let ids: Vec<_> = list.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(ids.len(), 2, "{list}");
    assert!(place.tried(&["diff", ids[0]]).text().contains("+first"));
    assert!(place.tried(&["diff"]).text().contains("+second"), "the newest");
    assert_eq!(place.tried(&["commit", ids[1]]).end, End::Exit(0));
    assert_eq!(
        place.tried(&["commit", ids[0]]).end,
        End::Exit(3),
        "the other has changed the same"
    );
    assert_eq!(place.tried(&["undo", ids[0]]).end, End::Exit(0));
}

#[test]
fn a_running_try_is_neither_committed_nor_undone() {
    let place = Place::filled("running");
    let mut running = place.until_a_is_there("echo x > a; until [ -e b ]; do sleep 0.05; done");
    assert!(place.tried(&["list"]).text().contains("running"));
    for task in ["commit", "undo"] {
        let outcome = place.tried(&[task]);
        assert_eq!(outcome.end, End::Exit(1), "{outcome:?}");
        assert!(outcome.complaints().contains("still running"), "{outcome:?}");
    }
    // It sees what others make meanwhile.
    fs::write(place.work.join("b"), "").expect("it is ours");
    assert!(running.wait().expect("it is ours").success());
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
}

/// Without runahead the next program would take the lower tree for the view of the try.
#[test]
fn without_its_supervisor_a_try_ends_at_its_next_program() {
    let place = Place::filled("alone");
    let script = "echo x > a; until [ -e b ]; do :; done; cat a; echo went on";
    let mut running = place.until_a_is_there(script);
    running.kill().expect("it is ours");
    let output = running.stdout.take().map(drain).expect("it is piped");
    running.wait().expect("it is ours");
    fs::write(place.work.join("b"), "").expect("it is ours");
    let said = output.recv_timeout(std::time::Duration::from_secs(10)).expect("all have ended");
    assert!(!String::from_utf8_lossy(&said).contains("one"), "the real file's text");
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "one\n");
}

#[test]
fn exit_statuses_follow_the_command_or_the_error() {
    let place = Place::filled("statuses");
    let ended = |words: &[&str]| place.tried(words).end;
    assert_eq!(ended(&["status"]), End::Exit(1), "there is no try");
    assert_eq!(ended(&["-q", "--", "/bin/sh", "-c", "exit 9"]), End::Exit(9));
    assert_eq!(ended(&["-q", "--", "/bin/sh", "-c", "kill -TERM $$"]), End::Signal(15));
    assert_eq!(ended(&["-q", "--", "no-such-program"]), End::Exit(127));
    assert_eq!(ended(&["-q", "--", "/etc/passwd"]), End::Exit(126));
    assert_eq!(ended(&["--", "true"]), End::Exit(0));
    assert_eq!(ended(&["ls"]), End::Exit(2));
    assert_eq!(ended(&["--network", "hold", "--", "true"]), End::Exit(125));
    assert_eq!(ended(&["status"]), End::Exit(0), "the name is kept");
    assert_eq!(ended(&["commit", "x"]), End::Exit(1));
    assert_eq!(place.around("\"$TRY\" try -q -- sh -c 'exit 9'").end, End::Exit(9));
    assert_eq!(place.around("\"$TRY\" try -q -- no-such-program").end, End::Exit(127));
    assert_eq!(place.around("\"$TRY\" try --state /tmp -- true").end, End::Exit(125));
    let unseen = place.around("RUNAHEAD=0 \"$TRY\" try -- true");
    assert_eq!(unseen.end, End::Exit(125));
    assert!(unseen.complaints().contains("without an agent"), "{unseen:?}");
    assert!(place.tried(&["list"]).stdout.is_empty(), "nothing is to be decided");
}
