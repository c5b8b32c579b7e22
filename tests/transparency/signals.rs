//! Signals do what they would have done: to calls that wait, to handlers, to masks, to the end of a
//! program.

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use runahead_harness::write_program;
use runahead_tests::{End, Run, apart, available, fixture, processes, programs, scratch};

same_with_shadow! {
    handlers_may_read_files_while_a_read_waits: "signals" ["files in handler"] =>
        ["caught some: 1"];
    handlers_may_use_much_stack: "signals" ["deep"] => ["caught some: 1"];
    handlers_may_jump_out: "signals" ["jumps"] => ["caught enough: 1"];
    waits_with_their_own_mask_give_native_results: "signals" ["suspend"] =>
        ["sigsuspend(&but_alarm): -1 EINTR", "mask had usr1 1 sys 1 alarm 1"];
    a_handlers_frame_sets_the_mask: "signals" ["frame"] => ["usr1 1 sys 1"];
    programs_recover_from_their_faults: "signals" ["recover"] => ["caught 40"];
    a_descriptor_replaced_by_a_handler_is_used: "signals" ["replaced"] => ["read(30, buf, 100): 5"];
    alternate_stacks_may_lie_above_the_programs_stack: "altstack" ["coroutine"] =>
        ["caught some 1, all on it 1"];
    sigsys_is_kept_in_masks: "sigsys" ["masks"] =>
        ["blocked: sys 1 usr1 0", "child: sys 1 usr1 1", "sa_mask: sys 1 kill 0"];
    sigsys_reaches_the_programs_handler: "sigsys" ["sent"] =>
        ["caught 1, by kill 1", "blocked: caught 2", "pending 1", "unblocked: caught 3"];
}

#[test]
fn signals_do_not_interrupt_file_reads() {
    crate::same_with_shadow("signals", &["files"], &["caught some: 1"]);
    crate::same_with_shadow("signals", &["files restart"], &["caught some: 1"]);
}

#[test]
fn signals_interrupt_pipe_reads() {
    crate::same_with_shadow("signals", &["pipes"], &["got 3, interrupted: 1"]);
    crate::same_with_shadow("signals", &["pipes restart"], &["got 3, interrupted: 0"]);
}

#[test]
fn handlers_may_jump_out_by_checked_longjmp() {
    let Some(fixture) = available(fixture()) else { return };
    let path = programs::compile("signals", &["-O2", "-D_FORTIFY_SOURCE=2"]);
    let path = path.to_str().expect("a plain path");
    fixture.case(&[path, "jumps"]).compare();
}

#[test]
fn alternate_stacks_are_used_and_queried_natively() {
    let marks = ["set: 0, flags 0", "disabled: 0, flags 2", "caught some 1, all on it 1"];
    crate::same_with_shadow("altstack", &[], &marks);
}

#[test]
fn sigsys_is_ignored_or_kills() {
    crate::same_with_shadow("sigsys", &["ignored"], &["ignored here, too", "end"]);
    let Some(fixture) = available(fixture()) else { return };
    let pair = fixture.program("sigsys", &["killed"]);
    assert_eq!(pair.outcome.end, End::Signal(libc::SIGSYS));
}

#[test]
fn seccomp_filters_of_the_program_apply() {
    crate::same_with_shadow("sigsys", &["trap"], &["caught 1, code 1, call 111"]);
    crate::same_with_shadow("sigsys", &["errno"], &["syscall(SYS_getpgrp): -1 ENOTUNIQ"]);
}

#[test]
fn seccomp_filters_may_allow_only_write_and_exit() {
    crate::same_with_shadow("sigsys", &["strict"], &["confined"]);
    crate::same_with_shadow("sigsys", &["strict by prctl"], &["confined"]);
}

#[test]
fn the_signal_that_ends_a_program_is_seen_by_its_parent() {
    let Some(fixture) = available(fixture()) else { return };
    for signal in ["KILL", "TERM", "SEGV", "ABRT", "PIPE", "USR1"] {
        let pair = fixture.script(&format!("cat many/* | md5sum; kill -{signal} $$")).compare();
        assert!(matches!(pair.outcome.end, End::Signal(_)), "{signal}: {:?}", pair.outcome);
    }
    let pair = fixture.case(&["cat", "many/00", "/dev/full/no"]).compare();
    assert_eq!(pair.outcome.end, End::Exit(1));
}

#[test]
fn a_broken_pipe_ends_the_writer() {
    let Some(fixture) = available(fixture()) else { return };
    fixture.script("cat big big big | head -c 5").compare();
}

/// Starts `argv` in the slow tree, waits for its first line, does `then` with the process that we
/// started, and returns what came of it.
fn disturbed(argv: &[&str], ahead: bool, then: impl Fn(i32)) -> (End, String) {
    let fixture = available(fixture()).expect("the caller has asked");
    fixture.reset();
    let run = fixture.run(argv);
    let run = if ahead { run.ahead(&["--require"]) } else { run };
    let out = scratch().join("disturbed");
    let file = std::fs::File::create(&out).expect("the scratch directory is ours");
    let mut command = run.command();
    command.stdout(Stdio::from(file)).stderr(Stdio::null());
    let mut child = command.spawn().expect("runahead starts");
    let read = || std::fs::read_to_string(&out).unwrap_or_default();
    assert!(processes::eventually(|| read().contains('\n')), "no sign of life from {run}");
    then(child.id() as i32);
    use std::os::unix::process::ExitStatusExt;
    let status = child.wait().expect("our child");
    let end = status.code().map_or_else(|| End::Signal(status.signal().unwrap_or(0)), End::Exit);
    (end, read())
}

/// The program that counts signals.
fn counter() -> String {
    programs::program("signals", programs::Link::Dynamic).display().to_string()
}

const SLEEPER: &str = "echo ready; cat many/* > /dev/null; exec sleep 20";

#[test]
fn a_signal_to_runahead_alone_reaches_the_program() {
    if available(fixture()).is_none() {
        return;
    }
    let (end, text) = disturbed(&[&counter(), "counter"], true, |pid| {
        assert!(processes::kill(pid, libc::SIGTERM));
    });
    assert_eq!(end, End::Exit(7), "{text}");
    assert!(text.contains("1 times"), "{text}");
    let (end, _) = disturbed(&["sh", "-c", SLEEPER], true, |pid| {
        assert!(processes::kill(pid, libc::SIGTERM));
    });
    assert_eq!(end, End::Signal(libc::SIGTERM));
}

#[test]
fn no_process_of_ours_outlives_the_program() {
    let Some(fixture) = available(fixture()) else { return };
    let cat = scratch().join("a cat of its own");
    let bytes = std::fs::read("/bin/cat").expect("cat is there");
    write_program(&cat, bytes, 0o755).expect("the scratch directory is ours");
    let cat_name = cat.to_str().expect("a plain path");
    for end in ["", "kill -KILL $$", "kill -INT $$"] {
        fixture.reset();
        let script = format!("'{cat_name}' many/* | md5sum; {end}");
        let run = fixture.run(&["sh", "-c", &script]).ahead(&["--require"]);
        run.run();
        let run = fixture.run(&[cat_name, "big", "data"]).ahead(&["--require"]);
        assert_eq!(run.run().end, End::Exit(0));
        let left =
            || [processes::running(&cat), processes::running(runahead_tests::runahead())].concat();
        assert!(left().is_empty(), "still there after {script}: {:?}", left());
    }
}

/// Handlers run in the target only: a shadow writes nothing, however many signals its group gets.
#[test]
fn handlers_never_run_in_a_shadow() {
    let Some(fixture) = available(fixture()) else { return };
    fixture.reset();
    let run = fixture.run_program("handler_witness", programs::Link::Dynamic, &[]);
    let log = fixture.work().join("log");
    let mut command = run.ahead(&["--require"]).command();
    command.stdout(Stdio::null());
    let mut child = command.spawn().expect("runahead starts");
    let group = child.id() as i32;
    while child.try_wait().expect("our child").is_none() {
        processes::kill(-group, libc::SIGURG);
        std::thread::sleep(Duration::from_micros(30));
    }
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let mut pids: Vec<&str> = text.lines().collect();
    assert!(pids.len() > 10, "no signals came: {text}");
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 1, "the handler ran in several processes: {pids:?}");
}

#[test]
fn an_ignored_sigchld_does_not_lose_the_exit_status() {
    let _apart = apart();
    let run = Run::new(["sh", "-c", "exit 3"]).ahead(&[]);
    let mut command = run.command();
    // SAFETY: only changes the disposition of a signal in the child.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            Ok(())
        })
    };
    assert_eq!(run.finish(command).end, End::Exit(3));
}
