//! Children, threads and later programs are those of the program alone, and natively run.

use runahead_tests::{End, Link, Run, available, fixture, number, root};

/// Files of the tree whose attributes `processes lookers` asks for.
const LOOKED_UP: u64 = 12 * 20;

same! {
    children_made_in_every_way_run_natively: "processes" ["ways"] =>
        ["clone vm: 1, status 400", "child clone3, parent is there"];
    threads_read_the_same_data: "processes" ["threads"] => ["main ", "3: "];
    another_thread_gets_the_lowest_free_descriptor: "processes" ["numbers"] => ["wrong numbers: 0"];
    a_descriptor_replaced_by_another_thread_is_used: "processes" ["replaced"] =>
        ["read(30, buf, 100): 5"];
    calls_by_the_32_bit_entry_give_native_results: "processes" ["compat"] =>
        ["getpid 1", "read -9"];
}

#[test]
fn a_shadow_is_no_child_of_the_program() {
    let Some(fixture) = available(fixture()) else { return };
    let pair = fixture.program_with("processes", &["waits"], |case| case.with_shadow());
    let text = pair.outcome.text();
    assert!(text.contains("wait(0): -1 ECHILD") && text.contains("status 900"), "{text}");
}

/// A name cannot be tried in a process with threads; that it was waited for tells of the next.
#[test]
fn lookups_of_threads_are_foreseen() {
    let Some(fixture) = available(fixture()) else { return };
    let used = |_| {
        let case = fixture.program_with("processes", &["lookers"], |case| case.with_shadow());
        number(&case.stats, "hints_used")
    };
    let used: Vec<_> = (0..3).map(used).collect();
    assert!(used.iter().any(|used| *used >= LOOKED_UP / 4), "of {LOOKED_UP} names {used:?}");
}

#[test]
fn programs_execute_others() {
    crate::same("processes", &["exec"], &["exec again"]);
    crate::same("processes", &["exec in thread"], &["exec again"]);
}

#[test]
fn a_shadow_runs_no_sigbus_handler() {
    let Some(fixture) = available(fixture()) else { return };
    // The handler that a shadow must not run leaves a file, which the comparison finds.
    fixture.program_with("processes", &["beyond"], |case| case.with_shadow());
}

#[test]
fn leases_are_not_broken() {
    let Some(fixture) = available(fixture()) else { return };
    // No shadow runs beside it (docs/decisions/0027).
    fixture.program("processes", &["lease"]);
}

#[test]
fn a_file_system_the_program_has_left_can_be_unmounted() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    let pair = fixture.program_with("processes", &["unmount"], |case| case.with_shadow());
    let text = pair.outcome.text();
    assert!(text.contains("umount(at): 0"), "{text}");
}

#[test]
fn a_shell_can_unmount_a_file_system_it_has_left() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    fixture
        .script(
            "mkdir -p $W/mnt; mount -t tmpfs none $W/mnt || exit; cd $W/mnt; \
             for f in $OLDPWD/many/*; do read -r line < $f; done; cd /; umount $W/mnt; echo $?",
        )
        .compare();
}

#[test]
fn a_program_can_be_replaced_once_it_has_executed_another() {
    let Some(fixture) = available(fixture()) else { return };
    let pair = fixture
        .script(
            "cp /bin/dash $W/shell; exec $W/shell -c 'for f in many/*; do read -r line < $f; done; \
             exec sh -c \"echo > $W/shell && echo replaced\"'",
        )
        .compare();
    assert!(pair.outcome.text().contains("replaced"));
}

/// Each attempt leaves a shadow behind, as when a compiler replaces what has just run.
#[test]
fn a_program_that_has_ended_can_be_overwritten() {
    let Some(fixture) = available(fixture()) else { return };
    let pair = fixture
        .script(
            "cp /bin/cat $W/cat; set -- many/*; while [ $# -gt 1 ]; do $W/cat $1 $2 >/dev/null; \
             cat /bin/cat >$W/cat || echo busy; shift 2; done; echo over",
        )
        .with_shadow()
        .compare();
    assert_eq!(pair.outcome.text(), "over\n");
}

/// A program that is killed by a signal cannot wait for its shadows. Two hundred times; natively
/// none is refused.
#[test]
fn a_program_that_was_killed_can_be_overwritten() {
    const FILES: usize = 800;
    let Some(fixture) = available(fixture()) else { return };
    fixture.change(|dir| {
        std::fs::create_dir(dir.join("killed")).expect("the disk is ours");
        for n in 0..FILES {
            let file = dir.join(format!("killed/{n:03}"));
            std::fs::write(file, [b'x'; 20_000]).expect("the disk has room");
        }
    });
    // It ends by SIGPIPE after the first of its files. The shell, which is followed, writes.
    let script = "cp /bin/cat $W/kept; n=0; cp $W/kept $W/cat; \
         set -- killed/*; while [ $# -gt 3 ]; do \
         $W/cat $1 $2 $3 $4 $1 $2 $3 $4 | head -c 1 >$W/out; n=$((n + 1)); \
         cat $W/kept >$W/cat || echo busy; shift 4; done; echo over $n";
    let pair = fixture.script(script).with_shadow().compare();
    assert_eq!(pair.outcome.text(), "over 200\n");
    fixture.change(|dir| std::fs::remove_dir_all(dir.join("killed")).expect("the disk is ours"));
}

#[test]
fn arguments_environment_and_descriptors_are_native() {
    let Some(fixture) = available(fixture()) else { return };
    let odd = ["", "two words", "new\nline", "--", "-x"];
    let pair =
        fixture.program_with("own_state", &odd, |case| case.env("ODD", "a=b c").stdin("text"));
    assert!(pair.outcome.text().contains("env ODD=a=b c"));
}

#[test]
fn standard_descriptors_may_be_closed_or_redirected() {
    let Some(fixture) = available(fixture()) else { return };
    let path = runahead_tests::programs::program("own_state", Link::Static);
    let path = path.display();
    for redirect in ["<&-", ">&- 2>$W/out", "2>&-", "<&- 2>&-", "<&- >&- 2>&-", "5<data 9>$W/nine"]
    {
        let script = format!("exec {path} {redirect}");
        let plain = fixture.cold(&fixture.run(&["sh", "-c", &script]));
        let ahead =
            format!("exec {} run -- {path} {redirect}", runahead_tests::runahead().display());
        let ahead = fixture.cold(&fixture.run(&["sh", "-c", &ahead]));
        let ours = |text: String| text.replace("group leader 1", "group leader 0");
        assert_eq!(ours(ahead.text()), ours(plain.text()), "{redirect}");
        assert_eq!(
            (ahead.end, ahead.complaints()),
            (End::Exit(0), plain.complaints()),
            "{redirect}"
        );
    }
}

#[test]
fn ignored_signals_and_masks_are_inherited() {
    let Some(fixture) = available(fixture()) else { return };
    let path = runahead_tests::programs::program("own_state", Link::Static);
    let script = format!("trap '' PIPE HUP INT USR1; exec {}", path.display());
    fixture.script(&script).compare();
    // Started by us, with a mask, an ignored signal and a limit of our own.
    let python = format!(
        "import os, signal, resource as r\n\
         signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGCHLD])\n\
         signal.signal(signal.SIGPIPE, signal.SIG_IGN)\n\
         signal.signal(signal.SIGQUIT, signal.SIG_IGN)\n\
         r.setrlimit(r.RLIMIT_NOFILE, (99, 200))\n\
         os.umask(0o27)\n\
         os.nice(3)\n\
         a = os.environ['AHEAD'].split()\n\
         os.execv((a + ['{0}'])[0], a + ['{0}'])\n",
        path.display()
    );
    let ahead = format!("{} run --no-learn --require --", runahead_tests::runahead().display());
    let [plain, ahead] = ["", &ahead].map(|prefix| {
        let run = fixture.run(&["/usr/bin/python3", "-c", &python]).env("AHEAD", prefix).run();
        run.text().lines().filter(|l| !l.starts_with("env AHEAD")).collect::<Vec<_>>().join("\n")
    });
    assert!(plain.contains("limit 7: 63 c8"), "{plain}");
    assert_eq!(ahead, plain);
}

/// A tracer that stops a child for a moment must not hide its end from the parent.
#[test]
fn a_child_killed_during_exec_is_reported() {
    let _apart = runahead_tests::apart();
    let python = "import subprocess, sys, time\n\
        stopped = 0\n\
        for n in range(200):\n\
        \x20   child = subprocess.Popen(['/bin/sleep', '0.05'])\n\
        \x20   with open(f'/proc/{child.pid}/stat', 'rb', buffering=0) as stat:\n\
        \x20       end = time.perf_counter() + 0.01\n\
        \x20       while time.perf_counter() < end:\n\
        \x20           stat.seek(0)\n\
        \x20           if b') t ' in stat.read(): stopped += 1; break\n\
        \x20   child.kill()\n\
        \x20   child.wait(timeout=10)\n\
        print(stopped)\n";
    let program = runahead_tests::runahead().display().to_string();
    let outcome = Run::new([&program, "run", "--", "/usr/bin/python3", "-c", python]).run();
    assert_eq!(outcome.end, End::Exit(0), "{outcome:?}");
    // That it was stopped at all when it was killed.
    assert_ne!(outcome.text().trim(), "0", "none was met at its stop");
}
