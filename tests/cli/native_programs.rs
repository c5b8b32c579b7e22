//! Programs that run natively, with one line that gives the reason; calls that the kernel refuses.

use std::path::Path;

use runahead_harness::write_program;
use runahead_tests::{End, Run, available, root, runahead, scratch};

/// `program` runs natively with one line that says why, and not at all with `--require`.
fn native_only(program: &Path, args: &[&str], reason: &str) {
    let run = Run::new(std::iter::once(program.as_os_str()).chain(args.iter().map(|a| a.as_ref())));
    native_only_run(&run, reason);
}

/// `run` runs natively in the same way.
fn native_only_run(run: &Run, reason: &str) {
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

/// Lines of `/proc/self/maps` that are the agent's.
const COUNT_AGENT: &str = "grep -c memfd:runahead /proc/self/maps";

#[test]
fn a_command_with_runahead_0_has_no_agent() {
    let run = Run::new(["sh", "-c", COUNT_AGENT]);
    assert_ne!(run.ahead(&[]).run().text(), "0\n", "this test can fail");
    let run = run.env("RUNAHEAD", "0");
    native_only_run(&run, "RUNAHEAD=0");
    for other in ["", "1", "00"] {
        let run = run.clone().env("RUNAHEAD", other);
        assert_ne!(run.ahead(&[]).run().text(), "0\n", "{other:?} is not 0");
    }
}

/// Children are started by fork and exec, in place of a shell, and by posix_spawn(3).
#[test]
fn a_child_with_runahead_0_has_no_agent() {
    let starts = [
        format!("RUNAHEAD=0 {COUNT_AGENT}; true"),
        format!("export RUNAHEAD=0; exec {COUNT_AGENT}"),
        format!("RUNAHEAD=0 sh -c 'unset RUNAHEAD; {COUNT_AGENT}; true'"),
        format!("RUNAHEAD=0 make -s -f - <<'END'\nall:\n\t@{COUNT_AGENT} || true\nEND\n"),
    ];
    for script in starts {
        let run = Run::new(["sh", "-c", &script]);
        assert_eq!(run.run().text(), "0\n", "{script}");
        let outcome = run.ahead(&[]).run();
        assert_eq!(outcome.text(), "0\n", "{script}: {outcome:?}");
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
fn a_32_bit_program_runs_natively_without_our_descriptors() {
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
fn a_command_runs_natively_if_tracing_is_refused() {
    let denied = runahead_tests::programs::program("denied_call", runahead_tests::Link::Static);
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
fn refused_calls_of_ours_change_no_result_of_the_program() {
    let denied = runahead_tests::programs::program("denied_call", runahead_tests::Link::Static);
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

/// Docker before 23 refuses process_vm_readv(2), also on the caller's own memory. The agent reads
/// another way.
#[test]
fn a_program_is_followed_if_process_vm_readv_is_refused() {
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
