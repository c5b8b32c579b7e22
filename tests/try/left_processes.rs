//! Processes that the command leaves behind: waited for or ended, and no commit while one runs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use runahead_tests::{End, Run, runahead};

use crate::try_directory::{Place, differences, names, seen};

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("in 30 s not: {what}");
}

/// Runs a script natively, and as a try that is then committed. Fails unless they leave the same.
/// The last step of what the script leaves behind is to make `end`.
fn leaves_the_same(place: &Place, script: &str) {
    place.run(&["/bin/sh", "-c", script]);
    until("the end natively", || place.work.join("end").exists());
    let natively = seen(&place.work);
    place.again();
    let tried = place.shell(script);
    assert_eq!(tried.end, End::Exit(0), "{script}: {tried:?}");
    assert!(!place.work.join("end").exists(), "before it is committed");
    place.commit();
    let differences = differences(&natively, &seen(&place.work));
    assert!(differences.is_empty(), "{script}: natively, and committed: {differences:#?}");
    place.again();
}

#[test]
fn what_left_processes_do_is_committed() {
    let place = Place::filled("left");
    // Writes, makes, removes, and programs that are executed.
    leaves_the_same(
        &place,
        "(sleep 0.3; echo late >> a; rm -r d1; /bin/mkdir new; cat a > new/x; : > end) > out 2>&1 &",
    );
    leaves_the_same(
        &place,
        "setsid sh -c 'sleep 0.2; cat a > x; /bin/touch end' > /dev/null 2>&1 &",
    );
    // The process that has the directory and the descriptors closed, and a new session.
    let daemon = "perl -e 'use POSIX; fork and exit; POSIX::setsid(); fork and exit; POSIX::close($_) for 0..255; \
                  select undef, undef, undef, 0.3; open F, \">x\"; print F \"late\"; close F; unlink \"a\"; open G, \">end\"'";
    leaves_the_same(&place, daemon);
}

#[test]
fn processes_without_an_agent_are_waited_for() {
    let place = Place::filled("left-native");
    // It has inherited a file of the try open.
    let script = "RUNAHEAD=0 /bin/sh -c 'sleep 0.5; echo late' > z 2> /dev/null &";
    assert_eq!(place.shell(script).end, End::Exit(0));
    place.commit();
    assert_eq!(fs::read_to_string(place.work.join("z")).expect("it is there"), "late\n");
}

/// The command ends while a process that it leaves is about to execute a program.
#[test]
fn an_exec_at_the_end_of_the_command_is_waited_for() {
    let place = Place::filled("left-exec");
    for n in 0..20 {
        let outcome = place.shell(&format!("sh -c 'exec /bin/touch x{n}' & "));
        assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        place.commit();
        assert!(place.work.join(format!("x{n}")).exists(), "x{n}");
        let outcome = place.around(&format!(
            "\"$TRY\" try -q -- sh -c 'exec /bin/touch y{n} &'; \"$TRY\" try commit -q; sh -c 'exec cat y{n}'"
        ));
        assert_eq!(outcome.end, End::Exit(0), "y{n}: {outcome:?}");
        place.commit();
    }
}

#[test]
fn left_processes_are_ended_if_asked() {
    let place = Place::filled("left-end");
    let script = "trap 'echo bye > bye; exit' TERM; echo > ready; while :; do sleep 0.05; done";
    fs::write(place.work.join("ends"), script).expect("it is ours");
    let command = "sh ./ends > out & until [ -e ready ]; do sleep 0.05; done; exit 7";
    let outcome = place.tried(&["-q", "--end", "--", "/bin/sh", "-c", command]);
    assert_eq!(outcome.end, End::Exit(7), "that of the command: {outcome:?}");
    assert!(place.tried(&["status"]).text().contains("work/bye"), "SIGTERM first");
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
    // One that does not end.
    let command = "sh -c 'trap : TERM; echo > ready; while :; do sleep 0.05; done' > out & \
                   until [ -e ready ]; do sleep 0.05; done";
    let outcome = place.tried(&["-q", "--end", "--", "/bin/sh", "-c", command]);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
    let conflict = place.tried(&["--end", "--wait", "--", "true"]);
    assert_eq!(conflict.end, End::Exit(2));
    assert_eq!(place.tried(&["-q", "--wait", "--", "true"]).end, End::Exit(0));
}

/// Starts a try that leaves a process, which makes `a` and ends when there is a `b` outside.
fn start_leaving(place: &Place) -> std::process::Child {
    place.until_a_is_there(
        "(echo x > a; until [ -e b ]; do sleep 0.05; done; echo y > a) > out 2>&1 &",
    )
}

#[test]
fn a_signal_to_the_waiting_runahead_ends_left_processes() {
    let place = Place::filled("left-signal");
    let mut running = start_leaving(&place);
    let pid = running.id().to_string();
    until("the end of the command", || {
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
            .is_ok_and(|children| children.is_empty())
    });
    assert_eq!(place.run(&["kill", "-TERM", &pid]).end, End::Exit(0));
    assert_eq!(running.wait().expect("it ends").code(), Some(0), "that of the command");
    assert!(place.tried(&["status"]).text().contains("exit status 0"));
    assert_eq!(place.tried(&["undo"]).end, End::Exit(0));
}

#[test]
fn status_names_the_processes() {
    let place = Place::filled("left-status");
    let mut running = start_leaving(&place);
    let json = place.tried(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(status["running"], true);
    let processes = status["processes"].as_array().expect("a list");
    assert!(processes.iter().any(|one| one["name"] == "sh"), "{status}");
    let pid = processes[0]["pid"].as_u64().expect("a number");
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    let text = place.tried(&["status"]).text();
    assert!(text.contains("\nrunning: ") && text.contains(" sh"), "{text}");
    let refused = place.tried(&["commit"]);
    assert!(refused.complaints().contains(" sh"), "{refused:?}");
    fs::write(place.work.join("b"), "").expect("it is ours");
    assert!(running.wait().expect("it ends").success());
    let json = place.tried(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&status["running"], &status["processes"]), (&false.into(), &serde_json::json!([])));
    // It has read that there was no `b`.
    assert_eq!(place.tried(&["commit", "--reads", "ignore"]).end, End::Exit(0));
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "y\n");
}

/// Kills the `runahead` of a try and demands that the try is undecided until its process has ended.
fn is_refused_until_the_end(place: &Place, script: &str) {
    let mut running = place.until_a_is_there(script);
    running.kill().expect("it is ours");
    running.wait().expect("it is ours");
    for task in ["commit", "undo"] {
        let outcome = place.tried(&[task]);
        assert_eq!(outcome.end, End::Exit(1), "{script}: {outcome:?}");
        assert!(outcome.complaints().contains("still running ("), "{script}: {outcome:?}");
    }
    let status = place.tried(&["status"]).text();
    assert!(status.contains("\nrunning: "), "{script}: {status}");
    assert_eq!(fs::read_to_string(place.work.join("a")).expect("it is there"), "one\n");
    fs::write(place.work.join("b"), "").expect("it is ours");
    until("the end of the process", || !place.tried(&["status"]).text().contains("\nrunning: "));
    // It has read that there was no `b`.
    let outcome = place.tried(&["commit", "--reads", "ignore"]);
    assert_eq!(outcome.end, End::Exit(0), "{script}: {outcome:?}");
    assert_eq!(
        fs::read_to_string(place.work.join("a")).expect("it is there"),
        "last\n",
        "{script}"
    );
    place.again();
}

#[test]
fn no_commit_while_a_process_runs_without_its_supervisor() {
    let place = Place::filled("left-killed");
    is_refused_until_the_end(&place, "echo x > a; until [ -e b ]; do :; done; echo last > a");
    // Without any descriptor.
    let perl = "perl -e 'use POSIX; fork and exit; POSIX::setsid(); POSIX::close($_) for 0..255; \
                open F, \">a\"; close F; select undef, undef, undef, 0.02 until -e \"b\"; \
                open F, \">a\"; print F \"last\\n\"; close F;'; until [ -e b ]; do :; done";
    is_refused_until_the_end(&place, perl);
    // Without an agent: it has inherited the file open. It sees the real tree.
    let native = "exec 3> a; RUNAHEAD=0 perl -e 'select undef, undef, undef, 0.02 until -e \"b\"; \
                  open F, \">&3\"; print F \"last\\n\"'";
    is_refused_until_the_end(&place, native);
}

#[test]
fn processes_of_inner_tries_are_of_the_outer_one() {
    let place = Place::filled("left-inside");
    let script = "\"$TRY\" try -q -- sh -c '(sleep 0.3; cat a > x; /bin/touch late) > out 2>&1 &'; \"$TRY\" try commit -q; ls";
    let outcome = place.around(script);
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    assert!(outcome.text().contains("late\n"), "{outcome:?}");
    place.commit();
    assert!(place.work.join("late").exists());
    place.again();
    // The inner try is in the background.
    place.around(
        "(\"$TRY\" try -q -- sh -c 'sleep 0.3; cat a > x'; \"$TRY\" try commit -q) > out 2>&1 &",
    );
    assert_eq!(names(&place).len(), 1, "the inner one is decided");
    place.commit();
    assert!(place.work.join("x").exists());
}

#[test]
fn a_check_waits_for_what_it_leaves() {
    let place = Place::filled("left-check");
    let state = place.state.to_str().expect("a plain path");
    let check = "(sleep 0.3; echo late > late) > out 2>&1 &";
    let program = runahead().to_str().expect("a plain path");
    let argv = [
        program,
        "try",
        "-q",
        "--state",
        state,
        "--commit-if",
        check,
        "--",
        "sh",
        "-c",
        "echo > x",
    ];
    let outcome = Run::new(argv).dir(&place.work).run();
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    assert!(place.work.join("late").exists() && place.work.join("x").exists());
}
