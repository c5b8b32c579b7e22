//! A policy loses no call: the counts of one that logs all calls and results equal those of
//! strace.

use std::path::Path;
use std::process::Command;

use runahead_tests::call_counts::{PolicyCounts, StraceCounts, differences};
use runahead_tests::programs::{Link, program};
use runahead_tests::{apart, available, installed, scratch};

/// Counts and output of a command under the policy that logs.
fn logged(command: &[&str], dir: &Path) -> (PolicyCounts, Vec<u8>) {
    let (plant, file) = (env!("CARGO_BIN_EXE_plant"), dir.join("counts"));
    let output = Command::new(plant).arg("logged").arg(&file).args(command).output();
    let output = output.expect("it can be run");
    let text = std::fs::read_to_string(file).expect("it is written");
    (PolicyCounts::read(&text), output.stdout)
}

/// Counts and output of a command under strace.
fn traced(command: &[&str], dir: &Path) -> (StraceCounts, Vec<u8>) {
    let summary = dir.join("strace");
    let [strace, options @ ..] = StraceCounts::COMMAND;
    let output = Command::new(strace).args(options).arg(&summary).arg("--").args(command).output();
    let text = std::fs::read_to_string(&summary).expect("strace has written it");
    (StraceCounts::read(&text), output.expect("strace can be run").stdout)
}

fn compare(command: &[&str], name: &str) -> PolicyCounts {
    /// Repetitions, since programs vary: git looks again at files that changed within a tick of
    /// the clock. A signal in front of a call makes the agent ask the policy again.
    const TIMES: usize = 6;
    let dir = scratch().join(name);
    std::fs::create_dir_all(&dir).expect("the scratch directory is ours");
    let mut wrong = Vec::new();
    for _ in 0..TIMES {
        let (plain, said) = traced(command, &dir);
        let (counts, says) = logged(command, &dir);
        assert_eq!(counts.lost, 0, "sight was lost");
        assert_eq!(said, says, "the output differs");
        wrong = differences(&plain, &counts);
        wrong.extend(counts.unreturned());
        if wrong.is_empty() {
            let all = counts.all();
            assert!(all > 100, "{name}: only {all} calls");
            eprintln!("{name}: {all} calls, none lost");
            return counts;
        }
    }
    panic!("{name}: {wrong:#?}");
}

#[test]
fn all_calls_of_a_shell_are_reported() {
    let _apart = apart();
    let Some(()) = available(installed("strace")) else { return };
    let script = "i=0; while [ $i -lt 30 ]; do x=$(echo $i | tr 0-9 a-j); (exit 3) || echo $x; i=$((i + 1)); done; \
                  trap 'echo caught' USR1; kill -USR1 $$; sleep 0.05; cat /dev/null /nowhere 2>/dev/null; true";
    let counts = compare(&["/bin/bash", "--norc", "-c", script], "calls-bash");
    assert!(counts.signals > 0, "the trap, and children that end");
}

#[test]
fn all_calls_of_git_are_reported() {
    let _apart = apart();
    let Some(()) = available(installed("strace").and_then(|()| installed("git"))) else { return };
    let script = "set -e; d=$(mktemp -d); cd $d; export HOME=$d GIT_AUTHOR_DATE='2000-01-01 00:00' \
                  GIT_COMMITTER_DATE='2000-01-01 00:00'; git init -q .; git config user.email a@b; git config user.name a; \
                  for i in 1 2 3; do echo $i >f$i; git add .; git commit -q -m $i; done; git log --format=%s; \
                  git diff HEAD~1 --stat; rm -rf $d";
    compare(&["/bin/sh", "-c", script], "calls-git");
}

#[test]
fn all_calls_of_threads_and_children_are_reported() {
    let _apart = apart();
    let Some(()) = available(installed("strace")) else { return };
    let program = "import threading, subprocess, os, signal, json\n\
                   signal.signal(signal.SIGALRM, lambda *a: None); signal.setitimer(signal.ITIMER_REAL, .05); signal.pause()\n\
                   print(subprocess.run(['/bin/echo', 'child'], capture_output=True).stdout)\n\
                   r, w = os.pipe(); t = threading.Thread(target=lambda: os.write(w, b'x')); t.start()\n\
                   print(os.read(r, 1)); t.join()\n";
    let counts = compare(&["/usr/bin/python3", "-I", "-S", "-B", "-c", program], "calls-python");
    assert_eq!((counts.threads, counts.signals), ([1, 1], 1), "one thread, and the timer's signal");
}

#[test]
fn all_calls_on_odd_stacks_are_reported() {
    let _apart = apart();
    let Some(()) = available(installed("strace")) else { return };
    let dir = scratch().join("calls-oddstack-data");
    std::fs::create_dir_all(&dir).expect("the scratch directory is ours");
    std::fs::write(dir.join("data"), [b'x'; 100]).expect("it is ours");
    let program = program("odd_stacks", Link::Dynamic);
    let script = format!("cd {} && exec {} 'no room'", dir.display(), program.display());
    compare(&["/bin/sh", "-c", &script], "calls-oddstack");
}

/// Runs `verdicts` under the policy that does what it asks for.
fn tried(last: &str) -> String {
    let program = program("policy_verdicts", Link::Dynamic);
    let file = scratch().join(format!("verdicts-{last}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_plant"));
    let output = command.arg("tried").arg(program).arg(&file).arg(last).output();
    let output = output.expect("it can be run");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}", output.status);
    String::from_utf8(output.stdout).expect("it says so in words")
}

/// Output that does not depend on stopped threads.
const VERDICTS: &str = "waited: 3 abc, long, with signals\nmade again: 2, 10 bytes\n";

#[test]
fn calls_wait_and_repeat_and_threads_stop() {
    let _apart = apart();
    assert_eq!(tried("stop"), format!("{VERDICTS}stopped: often, none moved\n"));
}

#[test]
fn running_threads_are_seen_to_move() {
    let _apart = apart();
    assert_eq!(tried("go"), format!("{VERDICTS}stopped: often, some moved\n"));
}
