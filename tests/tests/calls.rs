//! A policy loses no call: one that logs them all, with what came of each, beside what strace counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use runahead_tests::programs::{Link, program};
use runahead_tests::{available, installed, names_of_calls, scratch};

/// Made, returned and failed, by number.
type Counts = BTreeMap<u64, [u64; 3]>;

/// Calls whose number differs from run to run: who waits for whom, and is how often woken.
const VARIES: [&str; 8] = [
    "futex",
    "wait4",
    "rt_sigreturn",
    "restart_syscall",
    "sched_yield",
    "clock_nanosleep",
    "poll",
    "ppoll",
];

fn names() -> BTreeMap<String, u64> {
    names_of_calls().into_iter().map(|(number, name)| (name, number as u64)).collect()
}

/// What a command does under the policy that logs.
fn logged(command: &[&str]) -> (Counts, u64, Vec<u8>) {
    let plant = env!("CARGO_BIN_EXE_plant");
    let output = Command::new(plant).arg("logged").args(command).output().expect("it can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = said.lines().find_map(|line| line.strip_prefix("counted in "));
    let path = Path::new(line.expect("it says where"));
    let bytes = std::fs::read(path).expect("the file is there");
    std::fs::remove_file(path).expect("it is ours");
    let words: Vec<u64> =
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let of = |n: usize| [words[n], words[512 + n], words[1024 + n]];
    let counts = (0..512).map(|n| (n as u64, of(n))).filter(|(_, of)| *of != [0; 3]).collect();
    (counts, words[1536], output.stdout)
}

/// Calls and errors by name, as strace counts them.
fn traced(command: &[&str], dir: &Path) -> (BTreeMap<String, [u64; 2]>, Vec<u8>) {
    let summary = dir.join("strace");
    let output = Command::new("strace")
        .args(["-f", "-c", "-q", "-U", "calls,errors,name", "-o"])
        .arg(&summary)
        .arg("--")
        .args(command)
        .output()
        .expect("strace can be run");
    let text = std::fs::read_to_string(&summary).expect("strace has written it");
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        match words[..] {
            [_, name] if name != "total" => Some((name.to_owned(), [number(0)?, 0])),
            [_, _, name] if name != "total" => Some((name.to_owned(), [number(0)?, number(1)?])),
            _ => None,
        }
    };
    (text.lines().filter_map(row).collect(), output.stdout)
}

/// Where the two counts differ.
fn differences(counts: &Counts, plain: &BTreeMap<String, [u64; 2]>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, number) in &names() {
        let [made, returned, failed] = counts.get(number).copied().unwrap_or_default();
        // Of one in front of which a signal came it is asked again.
        let made = if never_returns(name) { made } else { returned };
        let [calls, errors] = plain.get(name).copied().unwrap_or_default();
        // That of the command itself comes before its agent.
        let calls = if name == "execve" { calls.saturating_sub(1) } else { calls };
        // What never returns strace does not count.
        let is_counted = !name.starts_with("exit") && !VARIES.contains(&name.as_str());
        if is_counted && (made != calls || failed != errors) {
            wrong
                .push(format!("{name}: {made} made, {failed} failed; {calls} and {errors} traced"));
        }
    }
    wrong
}

fn never_returns(name: &str) -> bool {
    ["exit", "exit_group", "execve", "rt_sigreturn"].contains(&name)
}

/// Calls that were made and have not returned.
fn unreturned(counts: &Counts) -> Vec<String> {
    let returns =
        |number: &u64| !names().iter().any(|(name, n)| n == number && never_returns(name));
    let open = counts.iter().filter(|(number, of)| returns(number) && of[0] != of[1]);
    open.map(|(number, of)| format!("{number}: {} made, {} returned", of[0], of[1])).collect()
}

fn compare(command: &[&str], name: &str) {
    /// Programs themselves do not do the same each time: git looks again at what may have changed within a tick of the clock;
    /// and in front of a call a signal may come, after which the policy is asked again.
    const TIMES: usize = 6;
    let dir = scratch().join(name);
    std::fs::create_dir_all(&dir).expect("the scratch directory is ours");
    let mut wrong = Vec::new();
    for _ in 0..TIMES {
        let (plain, said) = traced(command, &dir);
        let (counts, lost, says) = logged(command);
        assert_eq!(lost, 0, "sight was lost");
        assert_eq!(said, says, "the output differs");
        wrong = differences(&counts, &plain);
        wrong.extend(unreturned(&counts));
        if wrong.is_empty() {
            let all: u64 = counts.values().map(|of| of[0]).sum();
            assert!(all > 100, "{name}: only {all} calls");
            return eprintln!("{name}: {all} calls, none lost");
        }
    }
    panic!("{name}: {wrong:#?}");
}

/// One call more than was traced, and one error less, are found.
#[test]
fn a_count_that_is_wrong_is_found() {
    let plain = [("read".to_owned(), [5, 1]), ("close".to_owned(), [2, 0])].into();
    let of = |read, close| [(0, read), (3, close)].into();
    assert_eq!(differences(&of([5, 5, 1], [2, 2, 0]), &plain), [""; 0]);
    // One call more; one that was made and not returned from; an error that was none; calls that nobody saw.
    for counts in [
        of([6, 6, 1], [2, 2, 0]),
        of([5, 4, 1], [2, 2, 0]),
        of([5, 5, 0], [2, 2, 0]),
        of([5, 5, 1], [0, 0, 0]),
    ] {
        assert_eq!(differences(&counts, &plain).len(), 1);
    }
    // One that was asked of twice is one.
    assert_eq!(differences(&of([6, 5, 1], [2, 2, 0]), &plain), [""; 0]);
    assert!(!unreturned(&of([5, 4, 1], [2, 2, 0])).is_empty());
}

#[test]
fn a_shell_and_its_programs() {
    let Some(()) = available(installed("strace")) else { return };
    let script = "i=0; while [ $i -lt 30 ]; do x=$(echo $i | tr 0-9 a-j); (exit 3) || echo $x; i=$((i + 1)); done; \
                  trap 'echo caught' USR1; kill -USR1 $$; sleep 0.05; cat /dev/null /nowhere 2>/dev/null; true";
    compare(&["/bin/bash", "--norc", "-c", script], "calls-bash");
}

#[test]
fn git_in_a_new_repository() {
    let Some(()) = available(installed("strace").and_then(|()| installed("git"))) else { return };
    let script = "set -e; d=$(mktemp -d); cd $d; export HOME=$d GIT_AUTHOR_DATE='2000-01-01 00:00' \
                  GIT_COMMITTER_DATE='2000-01-01 00:00'; git init -q .; git config user.email a@b; git config user.name a; \
                  for i in 1 2 3; do echo $i >f$i; git add .; git commit -q -m $i; done; git log --format=%s; \
                  git diff HEAD~1 --stat; rm -rf $d";
    compare(&["/bin/sh", "-c", script], "calls-git");
}

#[test]
fn python_with_threads_and_children() {
    let Some(()) = available(installed("strace")) else { return };
    let program = "import threading, subprocess, os, signal, json\n\
                   signal.signal(signal.SIGALRM, lambda *a: None); signal.setitimer(signal.ITIMER_REAL, .05); signal.pause()\n\
                   print(subprocess.run(['/bin/echo', 'child'], capture_output=True).stdout)\n\
                   r, w = os.pipe(); t = threading.Thread(target=lambda: os.write(w, b'x')); t.start()\n\
                   print(os.read(r, 1)); t.join()\n";
    compare(&["/usr/bin/python3", "-I", "-S", "-B", "-c", program], "calls-python");
}

#[test]
fn a_program_with_odd_stacks() {
    let Some(()) = available(installed("strace")) else { return };
    let dir = scratch().join("calls-oddstack-data");
    std::fs::create_dir_all(&dir).expect("the scratch directory is ours");
    std::fs::write(dir.join("data"), [b'x'; 100]).expect("it is ours");
    let program = program("oddstack", Link::Dynamic);
    let script = format!("cd {} && exec {} 'no room'", dir.display(), program.display());
    compare(&["/bin/sh", "-c", &script], "calls-oddstack");
}
