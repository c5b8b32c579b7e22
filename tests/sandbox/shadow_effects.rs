//! A shadow has no effect: by our own restraint, and by the kernel's refusal when that is taken
//! away. Nothing is opened but regular files and directories, and access times stay.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use runahead_tests::{End, Link, Run, available, fixture, programs, root, tree};

/// Runs in one of which a shadow finds a processor.
const RUNS: usize = 10;

/// The numbers of the last line of `plant`: refused, done, syncs.
fn planted(stderr: &str) -> [u64; 3] {
    let line = stderr.lines().rfind(|l| l.starts_with("planted:")).unwrap_or_default();
    let numbers: Vec<u64> = line.split(['=', ' ']).filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("no account of what was planted: {stderr}"))
}

#[test]
fn effects_happen_once() {
    let Some(fixture) = available(fixture()) else { return };
    let pair = fixture.program_with("single_effects", &[], |case| case.with_shadow());
    let text = pair.outcome.text();
    assert!(text.contains("file 12 12, anonymous 12, sysv 12, signals 12"), "{text}");
    assert!(text.contains("datagrams 12, connections 12"), "{text}");
}

#[test]
fn planted_effects_are_refused_by_the_kernel() {
    let Some(fixture) = available(fixture()) else { return };
    for link in programs::BOTH {
        let run = fixture.run_program("single_effects", link, &[]);
        let plain = fixture.cold(&run);
        let files = tree::snapshot(fixture.work());
        let program = programs::program("single_effects", link);
        let argv = [Path::new(env!("CARGO_BIN_EXE_plant")), Path::new("effects"), &program];
        let refused_something = || {
            fixture.reset();
            let ahead = Run::new(argv).dir(fixture.dir()).env("W", fixture.work()).run();
            let [refused, done, syncs] = planted(&ahead.complaints());
            assert!(syncs > 0, "no shadow was made: {ahead:?}");
            assert_eq!(done, 0, "the kernel let a shadow do something: {ahead:?}");
            assert_eq!((ahead.end, ahead.text()), (plain.end, plain.text()));
            assert_eq!(tree::snapshot(fixture.work()), files);
            refused > 0
        };
        // Shadows run when nothing else wants to: on a busy machine none may come as far as to try.
        assert!((0..RUNS).any(|_| refused_something()), "nothing was planted: {run}");
    }
}

/// Watches a FIFO from the writer's side: an open for writing fails until a reader opens it.
fn reader_seen(fifo: &Path, over: &AtomicBool) -> bool {
    while !over.load(Relaxed) {
        let writer = std::fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(fifo);
        match writer {
            Ok(_) => return true,
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => panic!("cannot watch {}: {e}", fifo.display()),
        }
    }
    false
}

#[test]
fn fifos_sockets_and_devices_are_never_opened() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    fixture.change(|dir| {
        let dir = dir.join("special");
        let script = "mkdir -p $0; cd $0; for i in 0 1 2 3; do mkdir d$i; echo needle > d$i/file; \
                      mkfifo d$i/fifo; mknod d$i/null c 1 3; mknod d$i/block b 240 9; \
                      ln -s fifo d$i/link; done";
        let name = dir.to_str().expect("a plain path");
        assert_eq!(Run::new(["sh", "-c", script, name]).run().end, End::Exit(0));
    });
    // The watch does see a reader: a program's own.
    let over = AtomicBool::new(false);
    let fifo = fixture.dir().join("special/d0/fifo");
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| reader_seen(&fifo, &over));
        fixture.run(&["timeout", "5", "cat", "special/d0/fifo"]).ahead(&["--require"]).run();
        over.store(true, Relaxed);
        assert!(watcher.join().expect("no panic"), "the watch saw no reader");
    });
    let fifos: Vec<_> = (0..4).map(|i| fixture.dir().join(format!("special/d{i}/fifo"))).collect();
    for command in [
        "grep -r -D skip needle special",
        "find special -ls | wc -l",
        "tar cf - special | wc -c",
        "ls -lRL special",
        "du -a special",
        "for f in special/*/*; do if test -f $f; then cat $f; fi; done",
    ] {
        fixture.reset();
        let over = AtomicBool::new(false);
        let report = runahead_tests::scratch().join("stats.json");
        let option = format!("--stats=json:{}", report.display());
        let run = fixture.run(&["sh", "-c", &format!("exec {command}")]);
        let run = if command.contains(';') { fixture.run(&["sh", "-c", command]) } else { run };
        let run = run.ahead(&["--require", &option]);
        std::thread::scope(|scope| {
            let watchers: Vec<_> =
                fifos.iter().map(|fifo| scope.spawn(|| reader_seen(fifo, &over))).collect();
            let outcome = run.run();
            over.store(true, Relaxed);
            let seen: Vec<bool> =
                watchers.into_iter().map(|w| w.join().expect("no panic")).collect();
            assert!(!seen.contains(&true), "a FIFO was opened in {run}: {outcome:?}");
            assert_eq!(outcome.end, End::Exit(0), "{run}: {outcome:?}");
        });
    }
}

/// Access times of every file and directory below `dir`, long ago for now.
fn make_old(dir: &Path) {
    let long_ago = SystemTime::now() - Duration::from_secs(10 * 24 * 3600);
    let times = std::fs::FileTimes::new().set_accessed(long_ago);
    for path in tree::snapshot_names(dir).into_iter().map(|name| dir.join(name)) {
        if path.symlink_metadata().is_ok_and(|m| m.is_file()) {
            let file = std::fs::File::open(&path).expect("root opens everything");
            file.set_times(times).expect("root sets times");
        }
    }
}

fn access_times(dir: &Path) -> Vec<(std::path::PathBuf, i64)> {
    let names = tree::snapshot_names(dir);
    let time = |path: &Path| path.symlink_metadata().map_or(0, |m| m.atime());
    names.into_iter().map(|name| (name.clone(), time(&dir.join(&name)))).collect()
}

#[test]
fn access_times_stay_as_they_are() {
    let (Some(fixture), Some(())) = (available(fixture()), available(root())) else { return };
    fixture.change(make_old);
    for command in ["find . -size +5 > $W/out", "ls -lR src > $W/out", "du -s . > $W/out"] {
        fixture.reset();
        let before = access_times(fixture.dir());
        let run = fixture.run(&["sh", "-c", &format!("exec {command}")]);
        assert_eq!(run.ahead(&["--require"]).run().end, End::Exit(0));
        let after = access_times(fixture.dir());
        let changed: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
        assert!(changed.is_empty(), "{command}: {changed:?}");
    }
    // A program that reads half of them, in an order by which shadows read ahead.
    let programs = [("cat many/[0-4]* > $W/out", "many/5"), ("head -c 1 big > $W/out", "data")];
    for (command, untouched) in programs {
        fixture.reset();
        let run = fixture.run(&["sh", "-c", &format!("exec {command}")]);
        assert_eq!(run.ahead(&["--require"]).run().end, End::Exit(0));
        let now = std::time::SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let recently = now.expect("after 1970").as_secs() as i64 - 24 * 3600;
        for (name, time) in access_times(fixture.dir()) {
            let ours = name.to_str().is_some_and(|n| n.starts_with(untouched));
            assert!(!ours || time < recently, "{command} touched {}", name.display());
        }
    }
}

#[test]
fn a_shadow_of_a_static_program_has_no_effect() {
    let Some(fixture) = available(fixture()) else { return };
    let run = fixture.run_program("single_effects", Link::Static, &[]).ahead(&["--require"]);
    assert_eq!(fixture.cold(&run).end, End::Exit(0));
    let log = std::fs::read_to_string(fixture.work().join("log")).expect("the program's log");
    assert_eq!(log.lines().filter(|l| *l == "once").count(), 12);
}
