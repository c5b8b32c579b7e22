//! Programs on real files.
#![allow(missing_docs, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use runahead_abi::HintKind;
use runahead_estimators::Identity;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

mod common;

use common::{Bench, drop_from_memory, hint, key, resident};

/// Compiles a shared library or a program.
fn compile(bench: &Bench, name: &str, code: &str, arguments: &[&str]) -> PathBuf {
    let source = bench.path("source.c");
    fs::write(&source, code).unwrap();
    let path = bench.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut cc = Command::new("cc");
    let status = cc.arg(&source).arg("-o").arg(&path).args(arguments).status();
    assert!(status.unwrap().success(), "cc, which links these tests, failed for {name}");
    path
}

/// A program with two libraries, one of which only the other needs.
fn family(bench: &Bench) -> [PathBuf; 3] {
    let lib = format!("-L{}", bench.path("lib").display());
    let shared = ["-shared", "-fPIC", "-Wl,--no-as-needed"];
    let b = compile(bench, "lib/libb.so", "int b(void) { return 1; }", &shared);
    let needs_b = [&shared[..], &[&lib, "-lb", "-Wl,-rpath,$ORIGIN"]].concat();
    let a = compile(bench, "lib/liba.so", "int b(void); int a(void) { return b(); }", &needs_b);
    let needs_a = [&lib, "-la", "-Wl,--allow-shlib-undefined", "-Wl,-rpath,$ORIGIN/../lib"];
    let main = "int a(void); int main(void) { return a(); }";
    [compile(bench, "bin/program", main, &needs_a), a, b]
}

#[test]
fn a_program_its_libraries_and_those_of_its_libraries_come_into_memory() {
    let bench = Bench::new(8);
    let files = family(&bench);
    let script = bench.path("script");
    fs::write(&script, format!("#!{} x\n", files[0].display())).unwrap();
    let link = bench.path("link");
    std::os::unix::fs::symlink(&script, &link).unwrap();
    files.iter().for_each(|path| drop_from_memory(path));
    if resident(&files[2], 0) {
        eprintln!("skipped: this file system keeps its files in memory");
        return;
    }
    bench.hint(hint(HintKind::Program, &link));
    let stats = bench.wait();
    for path in &files {
        assert!(resident(path, 0), "{}", path.display());
    }
    assert!(bench.watch.is_done(key(&link)));
    let completed = bench.watch.completed.lock().unwrap();
    assert_eq!((completed.len(), completed[0].kind), (1, HintKind::Program));
    assert_eq!(completed[0].bytes, fs::metadata(&script).unwrap().len());
    let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
    assert!(stats.unhinted_bytes >= files.iter().map(size).sum::<u64>() / 2, "{stats:?}");
}

#[test]
fn a_program_that_is_started_again_and_again_is_brought_in_once() {
    let bench = Bench::new(8);
    let [program, ..] = family(&bench);
    bench.hint(hint(HintKind::Program, &program));
    let first = bench.wait();
    for _ in 0..500 {
        bench.hint(hint(HintKind::Program, &program));
    }
    let stats = bench.wait();
    assert_eq!((stats.programs, stats.reads), (first.programs, first.reads));
    assert_eq!((stats.submitted, stats.completed), (501, 501));
}

#[test]
fn fifos_in_the_place_of_programs_and_libraries_are_never_opened() {
    let bench = Bench::new(8);
    let [program, a, _] = family(&bench);
    fs::remove_file(&a).unwrap();
    let script = bench.path("script");
    let fifo = bench.path("fifo");
    fs::write(&script, format!("#!{}\n", fifo.display())).unwrap();
    let fifos = [&a, &fifo];
    for path in fifos {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    }
    let writer = |path: &Path| {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map(drop)
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut tries = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || tries < 100 {
                // ENXIO: no reader has it open.
                fifos.iter().for_each(|path| assert_eq!(writer(path), Err(Errno::NXIO)));
                tries += 1;
            }
        });
        for n in 0..100 {
            // By ever new names, so that none of them is fresh.
            let names = [&program, &script, &fifo].map(|path| {
                let link = bench.path(&format!("{n}-{}", path.file_name().unwrap().display()));
                std::os::unix::fs::symlink(path, &link).unwrap();
                link
            });
            names.iter().for_each(|path| bench.hint(hint(HintKind::Program, path)));
            bench.wait();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        watcher.join().unwrap();
    });
    assert!(bench.prefetcher.stats().programs >= 300);
    // The planted violation: a reader would have been noticed.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let _reader = rustix::fs::open(&a, flags, Mode::empty()).unwrap();
    assert_eq!(writer(&a), Ok(()));
}

#[test]
fn what_is_no_program_is_answered_too() {
    let bench = Bench::new(4);
    let paths = common::zoo(&bench);
    for path in &paths {
        bench.hint(hint(HintKind::Program, path));
    }
    for path in ["/dev/null", "/proc/self/exe", "/proc/self/maps", "/sys/kernel/uevent_seqnum", "/"]
    {
        bench.hint(hint(HintKind::Program, Path::new(path)));
    }
    let stats = bench.wait();
    assert_eq!(stats.completed, paths.len() as u64 + 5);
    let done = |path: &PathBuf| {
        bench.watch.is_done(Identity::ROOT.join(path.as_os_str().as_encoded_bytes()))
    };
    assert!(paths.iter().all(done));
    assert!(bench.watch.forgotten.lock().unwrap().is_empty());
}
