//! Comparison of what a try has read, before its changes are committed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use runahead_tests::End;

use crate::try_directory::Place;

/// Runs a script as a try, then `meanwhile`. Fails unless the commit is refused because of `name`.
fn refuses(place: &Place, script: &str, meanwhile: &str, name: &str) {
    let outcome = place.shell(script);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    let valid = place.tried(&["valid"]);
    assert_eq!(valid.end, End::Exit(0), "before: {valid:?}");
    assert_eq!(place.run(&["/bin/sh", "-c", meanwhile]).end, End::Exit(0));
    let valid = place.tried(&["valid"]);
    assert_eq!(valid.end, End::Exit(3), "{script}, {meanwhile}: {valid:?}");
    assert!(valid.text().contains(&format!("work/{name}: ")), "{name}: {valid:?}");
    assert!(place.tried(&["status"]).text().contains("names that it read have changed"));
    let commit = place.tried(&["commit"]);
    assert_eq!(commit.end, End::Exit(3), "{commit:?}");
    assert!(commit.complaints().contains(&format!("work/{name}: ")), "{name}: {commit:?}");
    assert!(!place.work.join("out").exists(), "nothing is committed");
    assert_eq!(place.tried(&["commit", "--reads", "ignore"]).end, End::Exit(0));
    assert!(place.work.join("out").exists());
    place.again();
}

/// Runs a script as a try, then `meanwhile`. Fails unless the try is committed.
fn commits(place: &Place, script: &str, meanwhile: &str) {
    let outcome = place.shell(script);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    assert_eq!(place.run(&["/bin/sh", "-c", meanwhile]).end, End::Exit(0));
    let commit = place.tried(&["commit"]);
    assert_eq!(commit.end, End::Exit(0), "{script}, {meanwhile}: {commit:?}");
    place.again();
}

#[test]
fn changed_reads_are_not_committed() {
    let place = Place::filled("stale");
    refuses(&place, "cat a > out", "echo two > a", "a");
    refuses(&place, "echo 1 > first; cat d0/b > out", "echo other > d0/b", "d0/b");
    refuses(&place, "cat a > out", "cp -p a b; mv b a", "a");
    refuses(&place, "cat d0/b > out", "rm d0/b", "d0/b");
    refuses(&place, "stat a > out", "echo more >> a", "a");
    refuses(&place, "[ -e nope ] || echo none > out", "touch nope", "nope");
    refuses(&place, "[ -e no/such/name ] || echo none > out", "mkdir no", "no");
    refuses(&place, "ls d2 > out", "touch d2/new", "d2");
    refuses(&place, "ls d2 > out", "rm d2/*", "d2");
    refuses(&place, "cat d1/l > out", "echo other > a", "a");
    refuses(&place, "cat l/b > out", "ln -sfn d1 l", "l");
    refuses(&place, "readlink l > out", "ln -sfn d1 l", "l");
}

#[test]
fn changed_programs_and_scripts_are_not_committed() {
    let place = Place::new("executed");
    let fill = || {
        fs::create_dir_all(&place.work).expect("it is ours");
        fs::copy("/bin/cat", place.work.join("program")).expect("it is there");
        let script = place.work.join("script");
        fs::write(&script, format!("#!{}/program\n", place.work.display())).expect("it is ours");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
        symlink("program", place.work.join("named")).expect("it is ours");
    };
    fill();
    refuses(&place, "./script > out", "echo >> script", "script");
    fs::remove_dir_all(&place.work).expect("it is ours");
    fill();
    refuses(&place, "./script > out", "echo >> program", "program");
    fs::remove_dir_all(&place.work).expect("it is ours");
    fill();
    refuses(&place, "./named script > out", "echo >> program", "program");
    fs::remove_dir_all(&place.work).expect("it is ours");
    fill();
    refuses(&place, "./named script > out", "ln -sfn script named", "named");
}

#[test]
fn what_does_not_matter_is_committed() {
    let place = Place::filled("unchanged");
    commits(&place, "cat a > out; ls; stat d1", ":");
    // Of no meaning for what was read: permissions, links, access, and names that came and went.
    commits(&place, "cat a > out", "chmod 600 a; ln a other; cat a > /dev/null");
    commits(&place, "ls d2 > out", "touch d2/x; rm d2/x");
    commits(&place, "cat d0/b > out", "touch unrelated d0/unrelated");
    // What the try has changed or made is not of the lower tree.
    commits(&place, "echo 1 > out; cat out; rm out; [ -e out ] || echo 2 > out; cat out", ":");
    commits(
        &place,
        "cat a; echo 2 > a; cat a; mkdir new; ls new; ls; rm -r d1; [ -e d1/l ]; :",
        ":",
    );
}

#[test]
fn a_check_is_not_followed_by_a_commit_of_stale_reads() {
    let place = Place::filled("stale-check");
    // The file `out` is there when `a` has been read, and `a` is changed outside then.
    let script = "cat a; cat a > out; while [ ! -e a-was-changed ]; do sleep 0.05; done; :";
    for (reads, status) in [("check", 3), ("ignore", 0)] {
        let words = ["-q", "--reads", reads, "--commit-if", "true", "--", "/bin/sh", "-c", script];
        let state = place.state.to_str().expect("a plain path");
        let program = runahead_tests::runahead().to_str().expect("a plain path");
        let argv: Vec<_> = [program, "try", "--state", state].into_iter().chain(words).collect();
        let mut running =
            runahead_tests::Run::new(argv).dir(&place.work).command().spawn().expect("it starts");
        while !place.tried(&["status"]).text().contains("work/out") {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        fs::write(place.work.join("a"), "theirs").expect("it is ours");
        fs::write(place.work.join("a-was-changed"), "").expect("it is ours");
        assert_eq!(running.wait().expect("it ends").code(), Some(status), "{reads}");
        let _ = place.tried(&["undo"]);
        place.again();
    }
}

#[test]
fn reads_of_an_inner_try_become_the_outer_ones() {
    let place = Place::filled("inner");
    let inner = r#"TRY=RUNAHEAD; "$TRY" try -q -- sh -c 'cat d0/b > out; ls d2; [ -e nope ]; :'; "$TRY" try commit"#;
    let inner = inner.replace("RUNAHEAD", runahead_tests::runahead().to_str().expect("plain"));
    refuses(&place, &inner, "echo other > d0/b", "d0/b");
    refuses(&place, &inner, "touch d2/new", "d2");
    refuses(&place, &inner, "touch nope", "nope");
    // What the outer try changes after the inner one has read it.
    let script = r#"TRY=RUNAHEAD; echo 1 > in; "$TRY" try -q -- sh -c 'cat in > out'; echo 2 > in; "$TRY" try commit; echo $?; "$TRY" try undo"#;
    let script = script.replace("RUNAHEAD", runahead_tests::runahead().to_str().expect("plain"));
    let outcome = place.shell(&script);
    assert_eq!(outcome.text(), "3\n", "{outcome:?}");
}

#[test]
fn each_of_ten_thousand_reads_is_compared() {
    let place = Place::new("many");
    fs::create_dir_all(place.work.join("many")).expect("it is ours");
    let names = (0..10_000).map(|n| place.work.join(format!("many/{n}")));
    names.for_each(|name| fs::write(name, "x").expect("it is ours"));
    assert_eq!(place.shell("cat many/* | wc -c > out").end, End::Exit(0));
    let json = place.tried(&["valid", "--json"]);
    let valid: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert!(valid["reads"]["compared"].as_u64() > Some(10_000), "{valid}");
    assert_eq!((&valid["valid"], &valid["reads"]["omitted"]), (&true.into(), &0.into()));
    for n in (0..10_000).step_by(100) {
        fs::write(place.work.join(format!("many/{n}")), "other").expect("it is ours");
    }
    let json = place.tried(&["valid", "--json"]);
    assert_eq!(json.end, End::Exit(3));
    let valid: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(valid["reads"]["stale"].as_array().map(Vec::len), Some(100));
    let commit = place.tried(&["commit"]);
    assert!(commit.complaints().contains("and 80 more"), "{commit:?}");
}

/// Without the recorder, by a planted bug, a stale read is committed.
#[test]
fn a_recorder_that_is_off_is_noticed() {
    let place = Place::filled("no-recorder");
    let script = ["-q", "--plant", "reads", "--", "/bin/sh", "-c", "cat a > out"];
    assert_eq!(place.tried(&script).end, End::Exit(0));
    fs::write(place.work.join("a"), "theirs").expect("it is ours");
    assert_eq!(place.tried(&["valid"]).end, End::Exit(0));
    place.commit();
}
