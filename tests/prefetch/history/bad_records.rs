//! Records that are not what they should be: one line, and the command runs.

use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use runahead_history::{Access, AccessKind, Attributes, RecordedPath, format, run_file};
use runahead_tests::{apart, available, fixture, root};

use super::*;

fn mkfifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo is installed");
    assert!(made.success());
}

/// It runs, and one line says why nothing is replayed.
fn refused(path: &Path, reason: &str) {
    let run = Run::new(["sh", "-c", "echo output; exit 7"]);
    let option = option("--replay", path);
    let outcome = run.ahead(&[&option[0], &option[1]]).run();
    assert_eq!((outcome.end, outcome.text()), (End::Exit(7), "output\n".into()), "{outcome:?}");
    let complaints = outcome.complaints();
    assert!(complaints.lines().count() == 1 && complaints.contains(reason), "{complaints}");
}

#[test]
fn invalid_records_are_refused_with_one_line() {
    let _apart = apart();
    let place = scratch();
    let good = place.join("good");
    let run = Run::new(["cat", "/etc/hostname"]);
    let options = option("--record", &good);
    assert_quiet(&run.ahead(&[&options[0], &options[1]]).run());
    let bytes = std::fs::read(&good).expect("a record");
    let at = |name: &str, bytes: &[u8]| {
        let path = place.join(name);
        std::fs::write(&path, bytes).expect("ours");
        path
    };
    for len in [9, 12, 20, 24, bytes.len() / 2, bytes.len() - 1] {
        refused(&at("short", &bytes[..len]), "truncated or damaged");
    }
    let mut other = bytes.clone();
    *other.last_mut().expect("not empty") ^= 1;
    refused(&at("flipped", &other), "truncated or damaged");
    other[8] = 99;
    refused(&at("version", &other), "version 99");
    refused(&at("text", b"#!/bin/sh\necho rubbish\n"), "not a recorded run");
    refused(&at("empty", b""), "not a recorded run");
    refused(&place.join("none"), "No such file");
    refused(Path::new("/dev/zero"), "not a regular file");
    refused(place, "not a regular file");
    mkfifo(&place.join("fifo-record"));
    refused(&place.join("fifo-record"), "not a regular file");
}

#[test]
fn an_unwritable_record_leaves_the_command_alone() {
    let _apart = apart();
    let place = scratch();
    let link = place.join("to-null");
    std::os::unix::fs::symlink("/dev/null", &link).expect("ours");
    for path in [Path::new("/dev/null"), &link, place, Path::new("/no/such/directory/file")] {
        let run = Run::new(["sh", "-c", "echo output; exit 7"]);
        let options = option("--record", path);
        let outcome = run.ahead(&[&options[0], &options[1]]).run();
        assert_eq!((outcome.end, outcome.text()), (End::Exit(7), "output\n".into()), "{outcome:?}");
        let complaints = outcome.complaints();
        let lines = complaints.lines().count();
        assert!(lines == 1 && complaints.contains("not recorded"), "{complaints}");
    }
    let null = std::fs::metadata("/dev/null").expect("there");
    assert!(null.file_type().is_char_device(), "it is still what it was");
}

/// Everything that a record could name with a bad intent, or that has changed its kind since.
#[test]
fn special_files_in_a_record_are_not_opened() {
    let Some(fixture) = available(fixture()) else { return };
    let place = scratch().join("named");
    std::fs::create_dir(&place).expect("ours");
    let fifo = place.join("fifo");
    mkfifo(&fifo);
    std::os::unix::fs::symlink("fifo", place.join("to-fifo")).expect("ours");
    std::os::unix::fs::symlink("loop", place.join("loop")).expect("ours");
    std::fs::write(place.join("write-only"), "x").expect("ours");
    let no_read = std::fs::Permissions::from_mode(0o200);
    std::fs::set_permissions(place.join("write-only"), no_read).expect("ours");
    let mut run = runahead_history::Run::default();
    let files = ["fifo", "to-fifo", "loop", "loop/x", "write-only", "gone", "gone/x", ""];
    let others = ["/dev/zero", "/dev/tty", "/dev/watchdog", "/proc/self/mem", "/proc/kmsg", "/"];
    let here = files.map(|name| place.join(name).as_os_str().as_encoded_bytes().to_vec());
    for path in here.into_iter().chain(others.map(|path| path.as_bytes().to_vec())) {
        let number = run.paths.len() as u32;
        for attributes in [None, Some(Attributes { size: 1 << 30, mtime: 1, inode: 1 })] {
            run.paths.push(RecordedPath { path: path.clone(), key: 1, attributes });
        }
        let data = AccessKind::Data { offset: 0, length: 1 << 20 };
        for what in [
            AccessKind::Lookup,
            AccessKind::LookupNoFollow,
            AccessKind::List,
            AccessKind::Link,
            AccessKind::Execute,
            data,
        ] {
            run.accesses.push(Access { path: number, kind: what });
            run.accesses.push(Access { path: number + 1, kind: what });
        }
    }
    let path = record_path("named");
    run_file::save(&path, &format::encode(&run)).expect("written");

    let run = fixture.run(&["sh", "-c", "sleep 0.3; cat many/* | cksum"]);
    let expected = plain(&fixture, &run);
    let (opened, (outcome, stats)) =
        opened_during(&fifo, || with_file(&fixture, &run, "--replay", &path));
    assert_eq!(outcome, expected);
    assert!(count(&stats, &["history", "replayed", "asked"]) > 50, "{stats:#}");
    assert_eq!(opened, 0, "a reader had it open");
    // An open by a reader is noticed.
    let (opened, _) = opened_during(&fifo, || {
        let mut reader = std::fs::OpenOptions::new();
        let reader = reader.read(true).custom_flags(libc::O_NONBLOCK).open(&fifo);
        std::thread::sleep(std::time::Duration::from_millis(20));
        reader.expect("a FIFO opens without a writer")
    });
    assert!(opened > 0);
}

/// Counts how often `fifo` was open for reading during `work`: only then can a writer open it.
fn opened_during<T>(fifo: &Path, work: impl FnOnce() -> T) -> (u32, T) {
    let (over, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let watcher = std::thread::spawn({
        let (over, opened, fifo) = (over.clone(), opened.clone(), fifo.to_owned());
        move || {
            let mut tries = 0u64;
            while !over.load(SeqCst) {
                let mut writer = std::fs::OpenOptions::new();
                let writer = writer.write(true).custom_flags(libc::O_NONBLOCK).open(&fifo);
                opened.fetch_add(u32::from(writer.is_ok()), SeqCst);
                tries += 1;
            }
            tries
        }
    });
    let result = work();
    over.store(true, SeqCst);
    assert!(watcher.join().expect("it does not panic") > 100);
    (opened.load(SeqCst), result)
}

/// A user who may read neither the record nor what it names.
#[test]
fn files_of_other_users_in_a_record_are_not_read() {
    const NOBODY: u32 = 65534;
    let Some(fixture) = available(fixture()) else { return };
    let Some(()) = available(root()) else { return };
    let path = record_path("forbidden");
    let run = fixture.run(&["sh", "-c", "cat odd/secret many/*"]);
    let (outcome, _) = with_file(&fixture, &run, "--record", &path);
    assert_quiet(&outcome);
    let option = option("--replay", &path);
    let as_nobody = |run: &Run| {
        fixture.reset();
        let mut command = run.command();
        command.uid(NOBODY).gid(NOBODY);
        run.finish(command)
    };
    std::fs::set_permissions(scratch(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let ahead = run.ahead(&[&option[0], &option[1]]);
    let expected = as_nobody(&run);
    let outcome = as_nobody(&ahead);
    assert_eq!((outcome.end, &outcome.stdout), (expected.end, &expected.stdout), "{outcome:?}");
    let theirs = expected.complaints();
    let complaints = outcome.complaints();
    let ours: Vec<_> = complaints.lines().filter(|l| !theirs.contains(l)).collect();
    assert!(ours.len() == 1 && ours[0].contains("Permission denied"), "{complaints}");
    // Now it may read the record, and still not the secret.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("ours");
    assert_eq!(as_nobody(&ahead), expected);
}
