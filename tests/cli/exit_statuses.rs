//! Exit statuses: that of the command, or one that says why the command did not run.

use runahead_harness::write_program;
use runahead_tests::{End, Run, scratch};

use crate::ours;

#[test]
fn a_missing_command_exits_127() {
    for name in ["no-such-program", "/no/such/program", "", "/dev/null/program", "./no"] {
        let outcome = ours(&["run", "--", name]);
        assert_eq!(outcome.end, End::Exit(127), "{name:?}: {outcome:?}");
        assert_eq!(outcome.complaints().lines().count(), 1, "{outcome:?}");
        assert!(outcome.stdout.is_empty());
    }
}

/// execvp(3), shells, time and strace do the same.
#[test]
fn a_script_without_interpreter_runs_in_the_shell() {
    let script = scratch().join("unnamed");
    write_program(&script, "echo \"$0\" \"$@\"; exit 7", 0o755).expect("it is ours");
    let script = script.display().to_string();
    let outcome = ours(&["run", "--", &script, "a b", "c"]);
    assert_eq!(outcome.end, End::Exit(7), "{outcome:?}");
    assert_eq!(outcome.text(), format!("{script} a b c\n"), "{outcome:?}");
}

/// Beyond those that have names.
#[test]
fn a_signal_that_ends_the_command_ends_runahead() {
    for signal in (1..=64).filter(|n| !matches!(n, 17..=23 | 28 | 32 | 33)) {
        let script = format!("ulimit -c 0; kill -{signal} $$; exit 9");
        let plain = Run::new(["/bin/sh", "-c", &script]).run();
        let outcome = ours(&["run", "--", "/bin/sh", "-c", &script]);
        assert_eq!(outcome.end, plain.end, "{signal}: {outcome:?}");
    }
}

#[test]
fn a_command_that_cannot_be_executed_exits_126() {
    let plain = scratch().join("plain");
    std::fs::write(&plain, "text").expect("the scratch directory is ours");
    let names = [plain, "/etc".into()];
    for name in names {
        let outcome = ours(&["run", "--", &name.display().to_string()]);
        assert_eq!(outcome.end, End::Exit(126), "{}: {outcome:?}", name.display());
        assert_eq!(outcome.complaints().lines().count(), 1, "{outcome:?}");
    }
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    for status in [0, 1, 2, 42, 125, 126, 127, 128, 255] {
        let outcome = ours(&["run", "--require", "--", "sh", "-c", &format!("exit {status}")]);
        assert_eq!(outcome.end, End::Exit(status));
        assert!(outcome.stderr.is_empty() && outcome.stdout.is_empty(), "{outcome:?}");
    }
}

#[test]
fn scripts_run_as_execvp_runs_them() {
    for (name, text) in
        [("with", "#!/bin/sh\necho $0 $1; exit 4\n"), ("without", "echo x; exit 4\n")]
    {
        let path = scratch().join(format!("script-{name}"));
        write_program(&path, text, 0o755).expect("the scratch directory is ours");
        let run = Run::new([path.as_os_str(), "an argument".as_ref()]);
        let plain = match name {
            // Executed by a shell, as execvp(3) does.
            "without" => Run::new(["sh", "-c", &path.display().to_string()]).run(),
            _ => run.run(),
        };
        assert_eq!(run.ahead(&["--require"]).run(), plain);
    }
}

#[test]
fn input_reaches_the_command() {
    let text: Vec<u8> = (0..300_000u32).flat_map(|n| n.to_le_bytes()).collect();
    let run = Run::new(["cat"]).stdin(text.clone()).ahead(&["--require"]);
    assert_eq!(run.run().stdout, text);
}
