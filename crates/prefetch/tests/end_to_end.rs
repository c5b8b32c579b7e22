//! The prefetcher on real files: what becomes resident, and what must not happen.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use runahead_abi::HintKind;
use runahead_abi::hint_record::{DEMAND, LENGTH_UNKNOWN, NO_FOLLOW, STEERS};
use runahead_estimators::access_identity::ChunkIndex;
use rustix::fs::{CWD, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

mod common;

use common::{Bench, Hint, KINDS, hint, key, resident, zoo};

#[test]
fn hinted_ranges_become_resident_and_others_do_not() {
    let bench = Bench::new(8);
    let path = bench.cold_file("data", 4 << 20);
    if resident(&path, 4096) {
        eprintln!("skipped: this file system keeps its files in memory");
        return;
    }
    bench.hint(Hint { offset: 1 << 20, length: 1 << 20, ..hint(HintKind::Data, &path) });
    let stats = bench.wait();
    assert_eq!((stats.reads, stats.bytes, stats.failed), (2, 1 << 20, 0));
    for page in (1 << 20..2 << 20).step_by(4096) {
        assert!(resident(&path, page), "page at {page}");
    }
    assert!(!resident(&path, 0));
    assert!(!resident(&path, 3 << 20));
    // No readahead beyond what was asked, which is most eager at the start of a file.
    let path = bench.cold_file("start", 1 << 20);
    bench.hint(hint(HintKind::Data, &path));
    bench.wait();
    assert!(resident(&path, 0));
    assert!(!resident(&path, 8192));
}

/// Statistics tell how many requests a hint spares.
#[test]
fn what_lies_in_memory_takes_no_request() {
    let bench = Bench::new(8);
    let path = bench.cold_file("cold", 64 << 10);
    if resident(&path, 4096) {
        eprintln!("skipped: this file system keeps its files in memory");
        return;
    }
    let all = Hint { length: 64 << 10, ..hint(HintKind::Data, &path) };
    bench.hint(all);
    let cold = bench.wait();
    assert_eq!((cold.requests, cold.reads), (1, 1));
    let part = cold.own_requests().expect("it was at work");
    assert!(part <= 512, "{part}: the name was known");
    assert_eq!(cold.own_reads(), Some(1024));
    // The prefetcher does not know that it is in memory: it looks.
    let warm = bench.path("warm");
    fs::write(&warm, [7; 64 << 10]).unwrap();
    bench.hint(Hint { path: &warm, ..all });
    let both = bench.wait();
    assert_eq!((both.requests, both.reads), (1, 2));
    assert_eq!(both.own_reads(), Some(512));
}

#[test]
fn a_small_file_of_unknown_length_is_read_to_its_end() {
    let bench = Bench::new(8);
    let path = bench.cold_file("small", 300_000);
    bench.hint(Hint { flags: LENGTH_UNKNOWN, ..hint(HintKind::Data, &path) });
    assert_eq!(bench.wait().bytes, 300_000);
    for chunk in 0..3 {
        assert!(bench.watch.is_done(key(&path).chunk(ChunkIndex(chunk))));
    }
    assert!(!bench.watch.is_done(key(&path).chunk(ChunkIndex(3))));
}

#[test]
fn every_kind_of_hint_has_its_answer() {
    let bench = Bench::new(8);
    let file = bench.cold_file("file", 10_000);
    let (link, long, missing) = (bench.path("link"), bench.path("long"), bench.path("none"));
    symlink("file", &link).unwrap();
    symlink("x/".repeat(500), &long).unwrap();
    let odd = bench.path("").join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    fs::create_dir(&odd).unwrap();
    let toolong = bench.path(&"n/".repeat(4000));
    for path in [&file, &link, &long, &missing, &odd, &toolong] {
        for kind in [HintKind::Lookup, HintKind::Listing, HintKind::Data, HintKind::Link] {
            for flags in [0, NO_FOLLOW, STEERS] {
                bench.hint(Hint { flags, ..hint(kind, path) });
            }
        }
    }
    let stats = bench.wait();
    assert_eq!(stats.threads.min(8), stats.threads);
    for path in [&file, &link, &long, &missing, &odd, &toolong] {
        for kind in [HintKind::Lookup, HintKind::Listing, HintKind::Data, HintKind::Link] {
            assert!(hint(kind, path).keys().iter().all(|key| bench.watch.is_done(*key)));
        }
    }
    assert!(bench.watch.forgotten.lock().unwrap().is_empty());
    let hints: u64 = bench.watch.completed.lock().unwrap().iter().map(|c| u64::from(c.hints)).sum();
    assert_eq!(hints, stats.completed);
    assert_eq!(stats.submitted, stats.completed + stats.duplicates);
}

#[test]
fn fifos_and_links_to_them_are_never_opened() {
    let bench = Bench::new(8);
    let (fifo, link) = (bench.path("fifo"), bench.path("link"));
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    symlink("fifo", &link).unwrap();
    let writer = || {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(&fifo, flags, Mode::empty()).map(drop)
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut tries = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || tries < 100 {
                // ENXIO: no reader has it open.
                assert_eq!(writer(), Err(Errno::NXIO));
                tries += 1;
            }
        });
        for _ in 0..300 {
            for path in [&fifo, &link] {
                for kind in [HintKind::Lookup, HintKind::Listing, HintKind::Data, HintKind::Link] {
                    bench.hint(hint(kind, path));
                }
            }
            bench.wait();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        watcher.join().unwrap();
    });
    assert!(hint(HintKind::Data, &fifo).keys().iter().all(|key| bench.watch.is_done(*key)));
    // The planted violation: a reader would have been noticed.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let _reader = rustix::fs::open(&fifo, flags, Mode::empty()).unwrap();
    assert_eq!(writer(), Ok(()));
}

#[test]
fn devices_and_files_made_up_by_the_kernel_are_not_read() {
    let bench = Bench::new(4);
    for path in
        ["/dev/null", "/dev/zero", "/dev/tty", "/proc/self/maps", "/sys/kernel/uevent_seqnum"]
    {
        let path = Path::new(path);
        bench.hint(Hint { flags: LENGTH_UNKNOWN, length: 1 << 30, ..hint(HintKind::Data, path) });
        bench.wait();
    }
    bench.hint(hint(HintKind::Listing, Path::new("/proc")));
    assert_eq!(bench.wait().bytes, 0);
}

#[test]
fn access_times_stay_as_they_are() {
    let bench = Bench::new(4);
    let (file, dir) = (bench.cold_file("file", 50_000), bench.path("dir"));
    fs::create_dir(&dir).unwrap();
    let long_ago = Timespec { tv_sec: 1_000_000, tv_nsec: 0 };
    let later = Timespec { tv_sec: 2_000_000, tv_nsec: 0 };
    // Older than the last change: a read sets it, under relatime as well.
    let times = Timestamps { last_access: long_ago, last_modification: later };
    for path in [&file, &dir] {
        rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
    }
    bench.hint(Hint { length: 50_000, ..hint(HintKind::Data, &file) });
    bench.hint(hint(HintKind::Listing, &dir));
    assert_eq!(bench.wait().bytes, 50_000);
    assert_eq!(fs::metadata(&file).unwrap().atime(), 1_000_000);
    assert_eq!(fs::metadata(&dir).unwrap().atime(), 1_000_000);
    // The planted violation: a plain read of the same does change it, unless the mount says no.
    File::open(&file).unwrap().read_exact(&mut [0]).unwrap();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    let after = [&file, &dir].map(|path| fs::metadata(path).unwrap().atime());
    if after == [1_000_000; 2] {
        eprintln!("skipped: mounted noatime, so the test shows nothing here");
    } else {
        assert!(after.iter().all(|atime| *atime > 1_000_000));
    }
}

const CHILD_FILE: &str = "PREFETCH_TEST_FILE_OF_ANOTHER_USER";

/// Runs in a process of another user, started by the test below.
#[test]
fn child_prefetches_the_file_of_another_user() {
    let Some(path) = std::env::var_os(CHILD_FILE) else { return };
    let bench = Bench::new(4);
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::CLOEXEC;
    let quietly = rustix::fs::open(&path, flags, Mode::empty());
    assert_eq!(quietly.map(drop), Err(Errno::PERM), "the case that this is about");
    bench.hint(Hint { length: 300_000, ..hint(HintKind::Data, Path::new(&path)) });
    let stats = bench.wait();
    assert_eq!((stats.bytes, stats.failed), (300_000, 0));
}

#[test]
fn files_of_others_are_brought_in_without_counting_as_read() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to be another user");
        return;
    }
    let bench = Bench::new(4);
    fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = bench.cold_file("file", 300_000);
    let times = Timestamps {
        last_access: Timespec { tv_sec: 1_000_000, tv_nsec: 0 },
        last_modification: Timespec { tv_sec: 2_000_000, tv_nsec: 0 },
    };
    rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_prefetches_the_file_of_another_user", "--nocapture"])
        .env(CHILD_FILE, &path)
        .env("TMPDIR", "/tmp")
        .uid(65534)
        .gid(65534)
        .output();
    let child = match child {
        Ok(child) => child,
        Err(error) => return eprintln!("skipped: cannot run this test as another user: {error}"),
    };
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    assert_eq!(fs::metadata(&path).unwrap().atime(), 1_000_000);
    // The I/O was started; it ends within any reasonable time.
    let start = Instant::now();
    while !resident(&path, 299_000) {
        assert!(start.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn hints_wait_behind_the_limit_merge_there_and_can_be_dropped() {
    let bench = Bench::new(1);
    let files = ["a", "b", "c", "d"].map(|name| bench.cold_file(name, 10_000));
    *bench.watch.shut.lock().unwrap() = true;
    // The one worker is held in this hint's completion.
    bench.hint(hint(HintKind::Lookup, &files[0]));
    while bench.watch.completed.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    for _ in 0..10 {
        bench.hint(hint(HintKind::Data, &files[1]));
    }
    bench.hint(Hint { offset: 4096, flags: STEERS, ..hint(HintKind::Data, &files[1]) });
    bench.hint(Hint { run: 2, ..hint(HintKind::Data, &files[2]) });
    bench.hint(Hint { flags: DEMAND, ..hint(HintKind::Data, &files[3]) });
    assert_eq!(bench.prefetcher.queued(), 3);
    assert_eq!(bench.client.drop_queued_before(2), 2);
    assert_eq!(bench.prefetcher.queued(), 2);
    bench.watch.open_gate();
    let stats = bench.wait();
    assert_eq!((stats.duplicates, stats.merged, stats.dropped), (9, 1, 2));
    assert_eq!((stats.peak_in_flight, stats.threads), (1, 1));
    let dropped: HashSet<u64> =
        hint(HintKind::Data, &files[1]).keys().iter().map(|key| key.raw()).collect();
    assert_eq!(*bench.watch.forgotten.lock().unwrap(), dropped);
    let runs: Vec<u32> = bench.watch.completed.lock().unwrap().iter().map(|c| c.run).collect();
    assert_eq!(runs, [1, 1, 2], "what the target waits for is served first");
}

#[test]
fn closing_forgets_what_waits_and_leaves_no_thread() {
    let bench = Bench::new(1);
    let files: Vec<_> = (0..50).map(|n| bench.cold_file(&n.to_string(), 5000)).collect();
    *bench.watch.shut.lock().unwrap() = true;
    files.iter().for_each(|file| bench.hint(hint(HintKind::Data, file)));
    let watch = bench.watch.clone();
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        watch.open_gate();
    });
    assert_eq!(bench.prefetcher.close(), 0);
    opener.join().unwrap();
    let keys = files.iter().flat_map(|file| hint(HintKind::Data, file).keys());
    let (done, forgotten) = (&bench.watch.done.lock().unwrap(), &bench.watch.forgotten);
    let forgotten = forgotten.lock().unwrap();
    assert!(keys.into_iter().all(|k| done.contains(&k.raw()) != forgotten.contains(&k.raw())));
    assert!(forgotten.len() >= 48);
}

#[test]
fn closing_does_not_wait_for_a_worker_that_is_stuck() {
    let bench = Bench::new(1);
    let file = bench.cold_file("a", 5000);
    *bench.watch.shut.lock().unwrap() = true;
    bench.hint(hint(HintKind::Data, &file));
    while bench.watch.completed.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    let start = Instant::now();
    assert_eq!(bench.prefetcher.close(), 1);
    assert!(start.elapsed() < Duration::from_secs(1));
    bench.watch.open_gate();
}

proptest! {
    #![proptest_config(common::config(40))]

    /// Runs with threads and files: every key is done or forgotten, and nothing but a drop forgets.
    #[test]
    fn every_key_is_done_or_forgotten(
        hints in prop::collection::vec(
            (0usize..8, 0usize..5, 1u32..6, 0u32..16, 0u64..4 << 20, 1u64..2 << 20), 1..200),
        drops in prop::collection::vec(0usize..200, 0..4),
        workers in 1usize..12,
    ) {
        let bench = Bench::new(workers);
        let paths = zoo(&bench);
        let mut keys = HashSet::new();
        for (n, &(path, kind, run, flags, offset, length)) in hints.iter().enumerate() {
            let hint = Hint { kind: KINDS[kind], path: &paths[path], run, flags, offset, length };
            bench.hint(hint);
            keys.extend(hint.keys().iter().map(|key| key.raw()));
            if drops.contains(&n) {
                bench.client.drop_queued_before(4);
            }
        }
        let stats = bench.wait();
        let (done, forgotten) = (bench.watch.done.lock().unwrap(), bench.watch.forgotten.lock().unwrap());
        for key in keys {
            prop_assert!(done.contains(&key) || forgotten.contains(&key));
        }
        prop_assert!(!drops.is_empty() || forgotten.is_empty());
        prop_assert_eq!(stats.submitted, stats.completed + stats.duplicates + stats.dropped);
        prop_assert!(stats.peak_in_flight <= workers && stats.threads <= workers);
    }
}
