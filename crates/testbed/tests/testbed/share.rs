//! Shares behave as a network file system with cached attributes, and go without a trace.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::test_helpers::{alone, assert_nothing_left};
use runahead_testbed::{Error, Share, ShareOptions, Storage, retry_if_caches_dropped};

const LATENCY: Duration = Duration::from_millis(20);

struct Place {
    _temp: tempfile::TempDir,
    source: PathBuf,
    dir: PathBuf,
}

fn place() -> Place {
    let temp = tempfile::tempdir().unwrap();
    let (source, dir) = (temp.path().join("source"), temp.path().join("share"));
    std::fs::create_dir(&source).unwrap();
    std::fs::create_dir(&dir).unwrap();
    Place { _temp: temp, source, dir }
}

fn up(place: &Place) -> Share {
    Share::up(&ShareOptions::new(&place.source, &place.dir).parallel(LATENCY, 32)).unwrap()
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

#[test]
fn names_attributes_and_data_cost_a_message_each_and_then_nothing() {
    crate::need!(Share::probe());
    let _alone = alone();
    let place = place();
    std::fs::write(place.source.join("file"), "content").unwrap();
    let share = up(&place);
    let file = place.dir.join("file");
    let (cold, text) = timed(|| std::fs::read_to_string(&file).unwrap());
    assert_eq!(text, "content");
    // A lookup, a read, and at most the root's attributes; opening is free.
    assert!(cold > LATENCY.mul_f64(1.9) && cold < LATENCY * 6, "{cold:?}");
    let stats = share.stats().unwrap();
    assert_eq!((stats.operations["lookup"], stats.reads, stats.read_bytes), (1, 1, 7));
    assert!(!stats.operations.contains_key("open"));

    let kept = retry_if_caches_dropped(|| {
        std::fs::read(&file).unwrap();
        share.reset_stats().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "content");
        share.stats().unwrap().reads
    });
    assert_eq!(kept, Ok(0), "pages are kept across opens");

    let mut names = (0..).map(|n| place.dir.join(format!("none{n}")));
    let lookups = retry_if_caches_dropped(|| {
        let name = names.next().unwrap();
        share.reset_stats().unwrap();
        for _ in 0..3 {
            assert_eq!(std::fs::metadata(&name).unwrap_err().kind(), ErrorKind::NotFound);
        }
        share.stats().unwrap().operations["lookup"]
    });
    assert_eq!(lookups, Ok(1), "absence is cached");
}

#[test]
fn many_requests_are_in_flight_up_to_the_parallelism() {
    crate::need!(Share::probe());
    let _alone = alone();
    let place = place();
    for i in 0..64 {
        std::fs::write(place.source.join(format!("f{i}")), i.to_string()).unwrap();
    }
    let share = up(&place);
    let (took, ()) = timed(|| {
        std::thread::scope(|scope| {
            for i in 0..64 {
                let file = place.dir.join(format!("f{i}"));
                scope.spawn(move || {
                    assert_eq!(std::fs::read_to_string(file).unwrap(), i.to_string())
                });
            }
        });
    });
    assert!(took < LATENCY * 24, "{took:?}");
    let seen = share.stats().unwrap().max_in_service;
    assert!((8..=32).contains(&seen), "{seen} in service");
}

#[test]
fn inodes_are_the_sources() {
    crate::need!(Share::probe());
    let _alone = alone();
    let place = place();
    std::fs::write(place.source.join("a"), "x").unwrap();
    std::fs::hard_link(place.source.join("a"), place.source.join("b")).unwrap();
    symlink("a", place.source.join("l")).unwrap();
    let share = up(&place);
    share.set_delay(false).unwrap();
    let number = |path: PathBuf| std::fs::metadata(path).unwrap().ino();
    for name in ["a", "b", "l", "."] {
        assert_eq!(number(place.dir.join(name)), number(place.source.join(name)), "{name}");
    }
    assert_eq!(std::fs::metadata(place.dir.join("b")).unwrap().nlink(), 2);
    assert_eq!(std::fs::read_link(place.dir.join("l")).unwrap(), PathBuf::from("a"));
    let mut listed: Vec<_> =
        std::fs::read_dir(&place.dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    listed.sort();
    assert_eq!(listed, ["a", "b", "l"]);
}

#[test]
fn changes_reach_the_source() {
    crate::need!(Share::probe());
    let _alone = alone();
    let place = place();
    let share = up(&place);
    share.set_delay(false).unwrap();
    let (dir, source) = (&place.dir, &place.source);
    std::fs::create_dir(dir.join("d")).unwrap();
    std::fs::write(dir.join("d/f"), "one").unwrap();
    std::fs::write(dir.join("d/f"), "two").unwrap();
    assert_eq!(std::fs::read_to_string(source.join("d/f")).unwrap(), "two");
    std::fs::rename(dir.join("d/f"), dir.join("g")).unwrap();
    std::fs::set_permissions(dir.join("g"), PermissionsExt::from_mode(0o400)).unwrap();
    assert_eq!(std::fs::metadata(source.join("g")).unwrap().mode() & 0o777, 0o400);
    std::fs::hard_link(dir.join("g"), dir.join("h")).unwrap();
    symlink("h", dir.join("s")).unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("s")).unwrap(), "two");
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
    std::fs::File::open(dir.join("h")).unwrap().set_modified(old).unwrap();
    assert_eq!(std::fs::metadata(source.join("g")).unwrap().mtime(), 1_000_000);
    for name in ["g", "h", "s"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    std::fs::remove_dir(dir.join("d")).unwrap();
    assert_eq!(std::fs::read_dir(source).unwrap().count(), 0);
}

#[test]
fn large_directories_list_completely() {
    crate::need!(Share::probe());
    let _alone = alone();
    let place = place();
    for i in 0..3000 {
        std::fs::write(place.source.join(format!("a-rather-long-name-{i}")), "").unwrap();
    }
    let share = up(&place);
    share.set_delay(false).unwrap();
    let names: std::collections::HashSet<_> =
        std::fs::read_dir(&place.dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3000);
}

#[test]
fn cold_means_messages_again() {
    crate::need!(Share::probe());
    let _alone = alone();
    let place = place();
    std::fs::create_dir(place.source.join("d")).unwrap();
    std::fs::write(place.source.join("d/f"), "x").unwrap();
    let share = up(&place);
    let work = || {
        std::fs::read(place.dir.join("d/f")).unwrap();
        std::fs::metadata(place.dir.join("d/none")).unwrap_err();
        share.stats().unwrap()
    };
    let first = work();
    let kept = retry_if_caches_dropped(|| {
        work();
        share.reset_stats().unwrap();
        work().reads
    });
    assert_eq!(kept, Ok(0));
    share.make_cold().unwrap();
    share.reset_stats().unwrap();
    let again = work();
    assert_eq!(again.operations["lookup"], first.operations["lookup"]);
    assert_eq!(again.reads, 1);
}

#[test]
fn up_fails_cleanly_where_it_cannot_be() {
    crate::need!(Share::probe());
    let _alone = alone();
    let place = place();
    let options = |source: &PathBuf, dir: &PathBuf| ShareOptions::new(source, dir);
    let inside = place.source.join("inside");
    std::fs::create_dir(&inside).unwrap();
    assert!(matches!(Share::up(&options(&place.source, &inside)), Err(Error::Nested { .. })));
    assert!(matches!(Share::up(&options(&place.dir, &place.source)), Err(Error::NotEmpty(_))));
    let none = place.source.join("none");
    assert!(matches!(Share::up(&options(&none, &place.dir)), Err(Error::NotADirectory(_))));
    let share = up(&place);
    assert!(matches!(Share::up(&options(&place.source, &place.dir)), Err(Error::AlreadyUp(_))));
    share.down().unwrap();
    assert_nothing_left(&place.dir, &crate::test_helpers::our_loops());
}

#[test]
fn a_share_in_use_stays_up_and_a_killed_one_goes() {
    crate::need!(Share::probe());
    let _alone = alone();
    let place = place();
    std::fs::write(place.source.join("file"), "x").unwrap();
    let share = up(&place);
    let held = std::fs::File::open(place.dir.join("file")).unwrap();
    assert!(matches!(share.down(), Err(Error::Busy(_))));
    let storage = Storage::find(&place.dir).unwrap();
    storage.stats().unwrap();
    drop(held);
    let pid = rustix::process::Pid::from_raw(storage.server_pid().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    storage.down().unwrap();
    assert_nothing_left(&place.dir, &crate::test_helpers::our_loops());
}
