//! Disks do what was asked, and go without a trace.
//!
//! Timing bounds are wide: they tell serial from parallel and delayed from not, on a machine that
//! does other work too.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::test_helpers::{
    alone, assert_nothing_left, our_loops, read_direct, read_parallel, write_blocks,
};
use runahead_testbed::{Disk, DiskOptions, Error, Storage, drop_caches, retry_if_caches_dropped};

const LATENCY: Duration = Duration::from_millis(20);

/// A populated disk with the delay on and all counters at zero.
fn disk(options: DiskOptions) -> Disk {
    let disk = Disk::up(&options.size(64 << 20).delay(false)).unwrap();
    write_blocks(&disk.storage().dir().join("file"), 256);
    disk.set_delay(true).unwrap();
    drop_caches().unwrap();
    // The file's inode, so that only data are counted.
    std::fs::metadata(disk.storage().dir().join("file")).unwrap();
    read_direct(&disk.storage().dir().join("file"), 0);
    disk.reset_stats().unwrap();
    disk
}

#[test]
fn sequential_reads_take_the_latency_each_and_hold_the_right_data() {
    crate::need!(Disk::probe());
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(DiskOptions::new(dir.path()).parallel(LATENCY, 8));
    let file = dir.path().join("file");
    let (mean, stats) = retry_if_caches_dropped(|| {
        read_direct(&file, 0);
        disk.reset_stats().unwrap();
        let start = Instant::now();
        (0..20).for_each(|i| read_direct(&file, i * 7 % 256));
        (start.elapsed() / 20, disk.stats().unwrap())
    })
    .unwrap();
    assert!(mean > LATENCY.mul_f64(0.9) && mean < LATENCY.mul_f64(1.6), "mean {mean:?}");
    assert_eq!((stats.reads, stats.read_bytes), (20, 20 * 4096));
    assert_eq!(stats.max_in_service, 1);
}

#[test]
fn parallel_reads_overlap_up_to_the_parallelism_and_not_beyond() {
    crate::need!(Disk::probe());
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let wide = disk(DiskOptions::new(dir.path()).parallel(LATENCY, 128));
    let took = read_parallel(&file, (0..64).map(|i| i * 3));
    assert!(took < LATENCY * 6, "64 at once took {took:?}");
    let seen = wide.stats().unwrap().max_in_service;
    assert!((32..=128).contains(&seen), "{seen} in service");
    wide.down().unwrap();

    let narrow = disk(DiskOptions::new(dir.path()).parallel(LATENCY, 8));
    let took = read_parallel(&file, (0..64).map(|i| i * 3));
    assert!(took > LATENCY.mul_f64(7.5), "64 by eight took {took:?}");
    let stats = narrow.stats().unwrap();
    assert_eq!(stats.max_in_service, 8);
    assert!(stats.max_outstanding > 8);
}

#[test]
fn spindles_serve_one_request_each() {
    crate::need!(Disk::probe());
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(DiskOptions::new(dir.path()).spindles(4, 64 << 10, LATENCY));
    // Far apart, so that nothing merges; 32 seeks on at most 4 spindles.
    let took = read_parallel(&dir.path().join("file"), (0..32).map(|i| i * 8));
    assert!(took > LATENCY.mul_f64(32.0 / 4.0 * 0.9), "{took:?}");
    assert!(disk.stats().unwrap().max_in_service <= 4);
}

#[test]
fn the_delay_can_be_switched_and_cold_means_requests() {
    crate::need!(Disk::probe());
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let disk = disk(DiskOptions::new(dir.path()).parallel(LATENCY, 8));
    std::fs::read(&file).unwrap();
    disk.reset_stats().unwrap();
    std::fs::read(&file).unwrap();
    assert_eq!(disk.stats().unwrap().reads, 0, "cached");
    drop_caches().unwrap();
    std::fs::read(&file).unwrap();
    assert!(disk.stats().unwrap().read_bytes >= 256 * 4096, "cold");

    disk.set_delay(false).unwrap();
    let start = Instant::now();
    for i in 0..100 {
        read_direct(&file, i);
    }
    assert!(start.elapsed() < LATENCY * 50, "not delayed");
    assert!(!disk.stats().unwrap().delay);
}

#[test]
fn what_is_written_slowly_is_read_back() {
    crate::need!(Disk::probe());
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let disk =
        disk(DiskOptions::new(dir.path()).parallel(Duration::from_millis(2), 4).jitter(0.2, 7));
    let file = dir.path().join("slow");
    write_blocks(&file, 512);
    drop_caches().unwrap();
    for i in (0..512).step_by(37) {
        read_direct(&file, i);
    }
    assert!(disk.stats().unwrap().written_bytes >= 512 * 4096);
}

#[test]
fn up_fails_cleanly_where_it_cannot_be() {
    crate::need!(Disk::probe());
    let _alone = alone();
    let loops = our_loops();
    let dir = tempfile::tempdir().unwrap();
    let options = DiskOptions::new(dir.path()).size(64 << 20);
    let disk = Disk::up(&options).unwrap();
    assert!(matches!(Disk::up(&options), Err(Error::AlreadyUp(_))));
    disk.down().unwrap();

    std::fs::write(dir.path().join("mine"), "x").unwrap();
    assert!(matches!(Disk::up(&options), Err(Error::NotEmpty(_))));
    std::fs::remove_file(dir.path().join("mine")).unwrap();
    let missing = DiskOptions::new(dir.path().join("none"));
    assert!(matches!(Disk::up(&missing), Err(Error::NotADirectory(_))));
    assert!(matches!(Disk::up(&options.clone().size(5)), Err(Error::Invalid(_))));

    // The server starts and fails: everything before it has to be undone.
    let mut unbacked = options;
    unbacked.backing_dir = dir.path().join("none");
    assert!(matches!(Disk::up(&unbacked), Err(Error::System { .. })));
    assert_nothing_left(dir.path(), &loops);
}

#[test]
fn down_and_drop_leave_nothing() {
    crate::need!(Disk::probe());
    let _alone = alone();
    let loops = our_loops();
    let dir = tempfile::tempdir().unwrap();
    disk(DiskOptions::new(dir.path())).down().unwrap();
    assert_nothing_left(dir.path(), &loops);
    drop(disk(DiskOptions::new(dir.path())));
    assert_nothing_left(dir.path(), &loops);
}

#[test]
fn a_disk_in_use_stays_up_until_it_is_not() {
    crate::need!(Disk::probe());
    let _alone = alone();
    let loops = our_loops();
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(DiskOptions::new(dir.path()).parallel(LATENCY, 8));
    let held = std::fs::File::open(dir.path().join("file")).unwrap();
    assert!(matches!(disk.down(), Err(Error::Busy(_))));
    let storage = Storage::find(dir.path()).unwrap();
    assert!(storage.stats().unwrap().delay, "as before");
    drop(held);
    storage.down().unwrap();
    assert_nothing_left(dir.path(), &loops);
}

#[test]
fn a_killed_server_can_be_taken_down() {
    crate::need!(Disk::probe());
    let _alone = alone();
    let loops = our_loops();
    let dir = tempfile::tempdir().unwrap();
    let storage = disk(DiskOptions::new(dir.path())).keep();
    std::fs::write(dir.path().join("dirty"), vec![1; 1 << 20]).unwrap();
    kill(storage.server_pid().unwrap());
    assert!(matches!(storage.stats(), Err(Error::ServerGone { .. })));
    storage.down().unwrap();
    assert_nothing_left(dir.path(), &loops);
    // And the place is usable again.
    disk(DiskOptions::new(dir.path())).down().unwrap();
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let state = || {
        std::fs::read_to_string(
            Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("stat"),
        )
    };
    while state().is_ok_and(|s| !s.contains(") Z")) {
        std::thread::sleep(Duration::from_millis(1));
    }
}
