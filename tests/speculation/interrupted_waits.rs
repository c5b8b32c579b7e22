//! Signals that interrupt a call, or end the process, while a prediction is open.

use std::path::PathBuf;
use std::sync::OnceLock;

use runahead_tests::{End, Link, Run, apart, bindings, programs};

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let source = programs::source("predicted_signals");
    PROGRAM.get_or_init(|| bindings::compile(&source, &["speculate"], Link::Static))
}

/// Runs the program natively and with predictions, and compares.
fn compare(args: &[&str]) {
    let program = program();
    let run = Run::new(std::iter::once(program.as_os_str()).chain(args.iter().map(|a| a.as_ref())));
    let plain = run.run();
    assert_eq!(plain.end, End::Exit(0), "{plain:?}");
    assert!(!plain.stdout.is_empty(), "{plain:?}");
    assert_eq!(run.ahead(&["--speculate", "--require"]).run(), plain, "{args:?}");
}

/// The prediction is settled long after the signal: the call must return, as it would have.
#[test]
fn a_signal_interrupts_the_call_that_waits_for_an_outcome() {
    let _apart = apart();
    let calls = ["read", "write", "pause", "poll", "select", "wait", "sleep"];
    let of_system_v = ["msgrcv", "msgsnd", "semop", "semop-zero", "semtimedop"];
    for call in calls.into_iter().chain(of_system_v) {
        compare(&["400", call]);
    }
}

#[test]
fn a_call_that_need_not_wait_is_not_interrupted() {
    let _apart = apart();
    compare(&["400", "there"]);
    compare(&["400", "taken"]);
    compare(&["400", "restarts"]);
}

/// No outcome is ever known: a process that waited for one would not end.
#[test]
fn a_signal_without_a_handler_ends_a_process_that_predicts() {
    let _apart = apart();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGALRM, libc::SIGUSR1, libc::SIGVTALRM] {
        compare(&["0", "dies", &signal.to_string()]);
    }
    // Unless the program blocks it.
    compare(&["0", "dies", &libc::SIGTERM.to_string(), "blocked"]);
}
