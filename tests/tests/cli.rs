//! The command line: bad input, exit statuses, statistics, programs that cannot be helped.

use std::path::Path;

use runahead_harness::write_program;
use runahead_tests::{End, Outcome, Run, available, root, runahead, scratch};

fn ours(args: &[&str]) -> Outcome {
    let program = runahead().to_str().expect("a plain path");
    Run::new([&[program], args].concat()).run()
}

#[test]
fn no_command_and_unknown_options_are_usage_errors() {
    let wrong: [&[&str]; 11] = [
        &[],
        &["run"],
        &["run", "--"],
        &["run", "--no-such-option", "--", "true"],
        &["no-such-task"],
        &["run", "--stats=xml", "--", "true"],
        &["run", "--stats=json:", "--", "true"],
        &["run", "--stats=/a/file", "--", "true"],
        &["run", "--stats", "json:file", "true"],
        &["run", "--without", "all", "--", "true"],
        &["run", "--without", "--", "true"],
    ];
    for args in wrong {
        let outcome = ours(args);
        assert_eq!(outcome.end, End::Exit(2), "{args:?}: {outcome:?}");
        assert!(outcome.stdout.is_empty(), "{args:?}: {outcome:?}");
        assert!(outcome.complaints().contains("Usage"), "{args:?}: {outcome:?}");
    }
}

#[test]
fn usage_errors_say_what_was_meant() {
    let outcome = ours(&["ls", "-l"]);
    assert!(outcome.complaints().contains("runahead run -- ls"), "{outcome:?}");
    let outcome = ours(&["run", "--stats", "json:file", "--", "true"]);
    assert!(outcome.complaints().contains("--stats=json:file"), "{outcome:?}");
    let outcome = ours(&["run", "--", "json:file"]);
    assert_eq!(outcome.end, End::Exit(127), "a name like any other: {outcome:?}");
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [&["--help"] as &[_], &["run", "--help"], &["--version"]] {
        let outcome = ours(args);
        assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
        assert!(!outcome.stdout.is_empty() && outcome.stderr.is_empty(), "{outcome:?}");
    }
}

#[test]
fn commands_that_are_not_there() {
    for name in ["no-such-program", "/no/such/program", "", "/dev/null/program", "./no"] {
        let outcome = ours(&["run", "--", name]);
        assert_eq!(outcome.end, End::Exit(127), "{name:?}: {outcome:?}");
        assert_eq!(outcome.complaints().lines().count(), 1, "{outcome:?}");
        assert!(outcome.stdout.is_empty());
    }
}

/// As execvp(3) has it, and so shells, time and strace.
#[test]
fn a_script_that_names_no_interpreter_is_the_shells() {
    let script = scratch().join("unnamed");
    write_program(&script, "echo \"$0\" \"$@\"; exit 7", 0o755).expect("it is ours");
    let script = script.display().to_string();
    let outcome = ours(&["run", "--", &script, "a b", "c"]);
    assert_eq!(outcome.end, End::Exit(7), "{outcome:?}");
    assert_eq!(outcome.text(), format!("{script} a b c\n"), "{outcome:?}");
}

/// Beyond those that have names.
#[test]
fn every_signal_that_ends_the_command_ends_us() {
    for signal in (1..=64).filter(|n| !matches!(n, 17..=23 | 28 | 32 | 33)) {
        let script = format!("ulimit -c 0; kill -{signal} $$; exit 9");
        let plain = Run::new(["/bin/sh", "-c", &script]).run();
        let outcome = ours(&["run", "--", "/bin/sh", "-c", &script]);
        assert_eq!(outcome.end, plain.end, "{signal}: {outcome:?}");
    }
}

#[test]
fn commands_that_cannot_be_executed() {
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
fn the_commands_status_is_ours() {
    for status in [0, 1, 2, 42, 125, 126, 127, 128, 255] {
        let outcome = ours(&["run", "--require", "--", "sh", "-c", &format!("exit {status}")]);
        assert_eq!(outcome.end, End::Exit(status));
        assert!(outcome.stderr.is_empty() && outcome.stdout.is_empty(), "{outcome:?}");
    }
}

#[test]
fn options_behind_the_command_are_the_commands() {
    let outcome = ours(&["run", "echo", "--stats", "--require", "--", "-n"]);
    assert_eq!(outcome.text(), "--stats --require -- -n\n");
    assert!(outcome.stderr.is_empty(), "{outcome:?}");
}

#[test]
fn scripts_run_with_and_without_an_interpreter_line() {
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
fn statistics_go_to_stderr() {
    let outcome = ours(&["run", "--stats", "--", "echo", "output"]);
    assert_eq!(outcome.text(), "output\n");
    for word in ["elapsed", "stalls", "syncs", "hints", "prefetch"] {
        assert!(outcome.complaints().contains(word), "no {word}: {outcome:?}");
    }
}

#[test]
fn statistics_go_to_a_file_as_json() {
    let file = scratch().join("report.json");
    let option = format!("--stats=json:{}", file.display());
    let outcome = ours(&["run", &option, "--", "sh", "-c", "exit 9"]);
    assert_eq!((outcome.end, outcome.stderr.len()), (End::Exit(9), 0), "{outcome:?}");
    let json = std::fs::read(&file).expect("the report");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    for key in [
        "version",
        "elapsed_seconds",
        "native",
        "stalls_foreseen",
        "stalls_unforeseen",
        "syncs",
        "hints_issued",
        "hints_used",
        "hints_wasted",
        "bytes_prefetched",
        "shadow_cpu_seconds",
    ] {
        assert!(json.get(key).is_some(), "no {key} in {json:#}");
    }
    assert_eq!(json["native"], serde_json::Value::Null);
}

/// Which is the command's, and not held open otherwise while it runs.
#[test]
fn statistics_go_to_a_descriptor() {
    let inside = "echo output; exec true";
    for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let text = ours(&["run", &format!("--stats={name}"), "--", "sh", "-c", inside]);
        assert_eq!((text.end, text.stderr.len()), (End::Exit(0), 0), "{name}: {text:?}");
        assert!(text.text().starts_with("output\nrunahead: "), "{name}: {text:?}");
        let json = ours(&["run", &format!("--stats=json:{name}"), "--", "sh", "-c", inside]);
        let report =
            json.text().strip_prefix("output\n").map(serde_json::from_str::<serde_json::Value>);
        assert!(matches!(report, Some(Ok(_))), "{name}: {json:?}");
    }
    let program = runahead().display().to_string();
    let script = format!("'{program}' run --stats=json:/dev/fd/7 -- echo output 7>&1 >&2");
    let outcome = Run::new(["sh", "-c", &script]).run();
    assert_eq!(outcome.complaints(), "output\n", "{outcome:?}");
    assert!(serde_json::from_str::<serde_json::Value>(&outcome.text()).is_ok(), "{outcome:?}");
    let outcome = ours(&["run", "--stats=json:/dev/fd/99", "--", "sh", "-c", "exit 9"]);
    assert_eq!(outcome.end, End::Exit(9));
    assert_eq!(outcome.complaints().lines().count(), 1, "{outcome:?}");
}

#[test]
fn statistics_that_cannot_be_written_leave_the_status_alone() {
    let outcome = ours(&["run", "--stats=json:/no/such/directory/x", "--", "sh", "-c", "exit 9"]);
    assert_eq!(outcome.end, End::Exit(9));
    assert_eq!(outcome.complaints().lines().count(), 1, "{outcome:?}");
}

/// `program` runs natively with one line that says why, and not at all with `--require`.
fn native_only(program: &Path, args: &[&str], reason: &str) {
    let run = Run::new(std::iter::once(program.as_os_str()).chain(args.iter().map(|a| a.as_ref())));
    let plain = run.run();
    let ahead = run.ahead(&[]).run();
    assert_eq!((ahead.end, &ahead.stdout), (plain.end, &plain.stdout), "{ahead:?}");
    let complaints = ahead.complaints();
    let lines: Vec<_> = complaints.lines().filter(|l| l.starts_with("runahead: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains(reason), "{complaints}");
    let required = run.ahead(&["--require"]).run();
    assert_eq!(required.end, End::Exit(125), "{required:?}");
    assert!(required.stdout.is_empty(), "it ran: {required:?}");
    assert_eq!(required.complaints().lines().count(), 1, "{required:?}");
    let with_report = run.ahead(&["--stats"]).run();
    assert!(with_report.complaints().contains("ran natively"), "{with_report:?}");
}

#[test]
fn privileged_programs_run_natively() {
    let Some(()) = available(root()) else { return };
    let echo = std::fs::read("/bin/echo").expect("echo is there");
    for mode in [0o4755, 0o2755] {
        let program = scratch().join(format!("echo-{mode:o}"));
        write_program(&program, &echo, mode).expect("the scratch directory is ours");
        native_only(&program, &["privileged"], "set-user-ID");
    }
}

/// A 32-bit program of three instructions: exit(dup(0)), which tells the lowest free descriptor.
fn tiny_32_bit_program() -> Vec<u8> {
    let code = [
        0xb8, 41, 0, 0, 0, // mov eax, 41 (dup)
        0x31, 0xdb, // xor ebx, ebx
        0xcd, 0x80, // int 0x80
        0x89, 0xc3, // mov ebx, eax
        0xb8, 1, 0, 0, 0, // mov eax, 1 (exit)
        0xcd, 0x80, // int 0x80
    ];
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    let length = HEADERS + code.len() as u32;
    let mut file = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([2u16, 3].iter().flat_map(|n| n.to_le_bytes())); // EXEC, 386
    file.extend([1, BASE + HEADERS, 52, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
    file.extend([52u16, 32, 1, 0, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
    file.extend([1, 0, BASE, BASE, length, length, 5, 4096].iter().flat_map(|n| n.to_le_bytes()));
    file.extend(code);
    file
}

#[test]
fn programs_of_32_bits_run_natively_and_without_our_descriptors() {
    let program = scratch().join("tiny32");
    write_program(&program, tiny_32_bit_program(), 0o755).expect("the scratch directory is ours");
    let plain = Run::new([&program]).run();
    let runs = if plain.end == End::Exit(3) {
        Ok(())
    } else {
        Err(format!("no 32-bit programs: {plain:?}"))
    };
    let Some(()) = available(runs) else { return };
    native_only(&program, &[], "not an x86-64 program");
}

#[test]
fn where_tracing_is_forbidden_the_command_runs_natively() {
    let denied = runahead_tests::programs::program("denied", runahead_tests::Link::Static);
    let denied = denied.to_str().expect("a plain path");
    let ahead = runahead().to_str().expect("a plain path");
    for call in ["ptrace", "landlock_create_ruleset", "seccomp"] {
        let outcome =
            Run::new([denied, call, ahead, "run", "--", "sh", "-c", "echo ran; exit 6"]).run();
        assert_eq!(
            (outcome.end, outcome.text()),
            (End::Exit(6), "ran\n".into()),
            "{call}: {outcome:?}"
        );
        if call != "seccomp" {
            assert_eq!(outcome.complaints().lines().count(), 1, "{call}: {outcome:?}");
            let run =
                Run::new([denied, call, ahead, "run", "--require", "--", "echo", "ran"]).run();
            assert_eq!((run.end, run.text()), (End::Exit(125), String::new()), "{call}: {run:?}");
        }
    }
}

/// A filter that refuses calls which only we make must not change what the program's calls give.
#[test]
fn calls_that_are_refused_to_us_are_not_missed_by_the_program() {
    let denied = runahead_tests::programs::program("denied", runahead_tests::Link::Static);
    let denied = denied.to_str().expect("a plain path");
    let ahead = runahead().to_str().expect("a plain path");
    let mut wrong = Vec::new();
    for call in ["openat2", "preadv2", "cachestat", "process_vm_readv", "madvise"] {
        let script = "cat /etc/passwd | wc -c; trap 'echo caught' USR1; kill -USR1 $$; exit 6";
        let plain = Run::new([denied, call, "sh", "-c", script]).run();
        let outcome = Run::new([denied, call, ahead, "run", "--", "sh", "-c", script]).run();
        if (outcome.end, outcome.text()) != (plain.end, plain.text()) {
            wrong.push((call, outcome));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Docker before 23 lets no process read memory by process_vm_readv(2), not even its own: the agent goes another way.
#[test]
fn who_may_not_read_his_own_memory_by_calls_is_followed_all_the_same() {
    let script = "cat /etc/passwd | wc -c; cd /etc && ls | sort | tail -1; trap 'echo caught' USR1; kill -USR1 $$; exit 6";
    let plain = Run::new(["sh", "-c", script]).run();
    for errno in ["EPERM", "ENOSYS"] {
        let denied = format!("--deny=process_vm:{errno}");
        let ahead = runahead().to_str().expect("a plain path");
        let confine = env!("CARGO_BIN_EXE_confine");
        let run = [confine, &denied, "--", ahead, "run", "--require", "--", "sh", "-c", script];
        let outcome = Run::new(run).run();
        assert_eq!(
            (outcome.end, outcome.text()),
            (plain.end, plain.text()),
            "{errno}: {outcome:?}"
        );
    }
}

#[test]
fn input_reaches_the_command() {
    let text: Vec<u8> = (0..300_000u32).flat_map(|n| n.to_le_bytes()).collect();
    let run = Run::new(["cat"]).stdin(text.clone()).ahead(&["--require"]);
    assert_eq!(run.run().stdout, text);
}

/// Options and targets that the README shows are ones that exist.
#[test]
fn the_readme_shows_commands_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    let help = |args: &[&str]| {
        let output = std::process::Command::new(runahead_tests::runahead()).args(args).output();
        String::from_utf8_lossy(&output.expect("runahead runs").stdout).into_owned()
    };
    let known = help(&["--help"]) + &help(&["run", "--help"]) + &help(&["try", "--help"]);
    let uses =
        readme.lines().filter(|l| l.trim_start().trim_start_matches("$ ").starts_with("runahead "));
    for line in uses {
        let ours = line.split(" -- ").next().unwrap_or(line);
        for word in ours.split_whitespace().filter(|w| w.starts_with("--") && w.len() > 2) {
            let option = word.split('=').next().unwrap_or(word);
            assert!(known.contains(option), "the README shows {option:?} in {line:?}");
        }
    }
    let makefile = std::fs::read_to_string(root.join("Makefile")).unwrap_or_default();
    for target in readme.split('`').filter_map(|code| code.strip_prefix("make ")) {
        let rule = format!("{}:", target.split_whitespace().next().unwrap_or(target));
        let exists = makefile.lines().any(|l| l.starts_with(&rule));
        assert!(exists, "the README shows `make {target}`");
    }
}
