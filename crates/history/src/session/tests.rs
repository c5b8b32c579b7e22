//! Tests: reports are recorded, and processes expect what is replayed until it is given up.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::store::TOTAL_MAX;
use crate::{Access, AccessKind, RANGE_MAX, RecordedPath, Run, Store, pending_runs};
use runahead_abi::agent_config::tell;
use runahead_abi::hint_record::{Header, MAPPED, PARTLY, RECORDED, TOUCHED};
use runahead_abi::{HintKind, HintState, Record};
use runahead_admission::process::shared_memory::Mapping;
use runahead_admission::session_admission::RecordListener as _;
use runahead_admission::slow_devices::DeviceWaits;
use runahead_estimators::{Identity, Piece, TickRate};
use runahead_inject::Ended;
use runahead_prefetch::Prefetcher;

use super::mutex_locking::lock;
use super::session_history::History;
use super::{Plan, unchanged_files};

fn record(kind: HintKind, flags: u32, path: &[u8], (offset, length): (u64, u64)) -> Record<'_> {
    let header = Header {
        kind: kind as u32,
        run: 0,
        position: 0,
        key: Identity::ROOT.join(path).raw(),
        offset,
        length,
        flags,
        path_len: path.len() as u32,
    };
    Record { kind, header, path }
}

#[test]
fn only_reported_accesses_are_recorded() {
    let history = History::new(Arc::new(Plan::for_tests(None)));
    assert_eq!(history.plan.report_level(), tell::ALL);
    let hear =
        |flags, path: &[u8], range| history.hear(&record(HintKind::Data, flags, path, range));
    assert!(!hear(0, b"/etc/hint", (0, 1)), "a hint is for the prefetcher");
    assert!(hear(RECORDED, b"/etc/long", (4096, 20 << 20)));
    assert!(hear(RECORDED, b"/proc/self/maps", (0, 100)));
    // No report can keep the supervisor busy for long.
    assert!(hear(RECORDED, b"/etc/nonsense", (1 << 62, i64::MAX as u64 - (1 << 62))));
    assert!(hear(RECORDED, b"/etc/empty", (5, 0)));
    let recorder =
        std::mem::take(&mut lock(history.recording.as_ref().expect("it records")).recorder);
    assert_eq!(recorder.left_out(), 0);
    let run = recorder.finish([0; 16], |_| crate::PathState::Unknown);
    let long: Vec<_> = run
        .accesses
        .iter()
        .filter(|access| run.path_of(access).path == b"/etc/long")
        .map(|access| access.kind)
        .collect();
    let part = |n: u64, length| AccessKind::Data { offset: 4096 + n * RANGE_MAX, length };
    assert_eq!(long, [part(0, RANGE_MAX), part(1, RANGE_MAX), part(2, 4 << 20)]);
    assert!(run.paths.iter().all(|p| !p.path.starts_with(b"/proc") && p.path != b"/etc/empty"));
}

#[test]
fn touched_blocks_of_a_mapping_are_recorded() {
    let history = History::new(Arc::new(Plan::for_tests(None)));
    let hear = |flags, position, range| {
        let mut record = record(HintKind::Data, flags | RECORDED, b"/etc/mapped", range);
        record.header.position = position;
        assert!(history.hear(&record));
    };
    hear(MAPPED, 0, (0, 1 << 30));
    hear(TOUCHED | PARTLY, 0b1101 | 1 << 63, (1 << 20, 1 << 20));
    hear(TOUCHED | PARTLY, 0, (2 << 20, 1 << 20));
    hear(TOUCHED | PARTLY, u64::MAX, (3 << 20, 1 << 20));
    hear(TOUCHED, 0, (8 << 20, 8 << 20));
    // No report can do harm.
    hear(TOUCHED | PARTLY, u64::MAX, (i64::MAX as u64 - 5, 5));
    let recorder =
        std::mem::take(&mut lock(history.recording.as_ref().expect("it records")).recorder);
    let run = recorder.finish([0; 16], |_| crate::PathState::Unknown);
    let ranges = run.accesses.iter().filter_map(|access| match access.kind {
        AccessKind::Touched { offset, length } => Some((offset >> 14, length >> 14)),
        _ => None,
    });
    let whole = (8..16).map(|n| (n << 6, 64));
    let expected = [(64, 1), (66, 2), (127, 1), (192, 64)].into_iter().chain(whole);
    assert!(ranges.eq(expected), "{run:?}");
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a run of files with a lookup and a read each; the last file has changed.
fn run_over(dir: &Path, files: u32) -> Run {
    let mut run = Run::default();
    for place in 0..files {
        let path = dir.join(place.to_string());
        std::fs::write(&path, "text").expect("ours");
        let mut attributes = unchanged_files::attributes(&path.metadata().expect("there"));
        attributes.size += u64::from(place == files - 1);
        let path = path.as_os_str().as_bytes().to_vec();
        let key = Identity::ROOT.join(&path).raw();
        run.paths.push(RecordedPath { path, key, attributes: Some(attributes) });
        for what in [AccessKind::Lookup, AccessKind::Data { offset: 0, length: 4 }] {
            run.accesses.push(Access { path: place, kind: what });
        }
    }
    run
}

#[test]
fn replayed_accesses_are_expected_by_all_processes_until_given_up() {
    const FILES: u32 = 30;
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let run = run_over(dir.path(), FILES);
    let keys: Vec<_> = run.paths.iter().map(|place| Identity::from_raw(place.key)).collect();
    let history = History::new(Arc::new(Plan::for_tests(Some(run.clone()))));
    assert_eq!(history.plan.report_level(), tell::SOME);
    let (early, _file) = Mapping::new().expect("memory to share");
    let early = Arc::new(early);
    let present = history.process_joined(early.clone());
    let prefetcher = Arc::new(Prefetcher::new(Default::default(), |_, _| ()));
    let file = runahead_admission::process::shared_memory::agent_file().expect("memory for a file");
    let front = runahead_admission::process::shared_memory::fill(&file, &[0; 4096], &[])
        .expect("room in it");
    history.start(&prefetcher, &Arc::new(DeviceWaits::new(front, TickRate::new(1000))), || ());
    wait_until("it is read", || history.followed.get().is_some());
    let followed = history.followed.get().expect("it replays");
    let asked = || followed.listener.asked.load(Relaxed);
    // All but the data of the file that has changed.
    wait_until("all is asked for", || asked() == u64::from(2 * FILES - 1));
    wait_until("it is noticed", || followed.listener.changed.load(Relaxed) == 1);
    let data = |key: &Identity| key.first_piece(0, 4);
    let (last, others) = keys.split_last().expect("not empty");
    let known = |piece: Piece| early.log.state(piece) == HintState::Done;
    assert!(keys.iter().all(|key| known((*key).into())));
    assert!(others.iter().all(|key| known(data(key))));
    assert!(!known(data(last)));

    // The command's accesses are in the record at first, and then no longer.
    for place in &run.paths[..8] {
        assert!(history.hear(&record(HintKind::Lookup, RECORDED, &place.path, (0, 0))));
    }
    for n in 0..128 {
        let strange = format!("/var/strange/{n}");
        history.hear(&record(HintKind::Lookup, RECORDED, strange.as_bytes(), (0, 0)));
    }
    wait_until("it is forgotten", || !known(keys[20].into()) && !known(data(&others[28])));
    assert!(known(keys[0].into()), "the command was there");
    drop(present);
    let stats = history.finish(&Ended::Exited(0), &[]);
    let replayed = stats.replayed.expect("it replays");
    assert_eq!((replayed.used, replayed.files_changed), (8, 1));
    assert!(replayed.given_up_at.is_some() && stats.recorded.is_none());
}

#[test]
fn finish_waits_for_last_reports_and_counts_lost_ones() {
    let history = History::new(Arc::new(Plan::for_tests(None)));
    let (shared, _file) = Mapping::new().expect("memory to share");
    let shared = Arc::new(shared);
    shared.control.untold.store(7, Relaxed);
    let present = history.process_joined(shared);
    let speaker = std::thread::spawn({
        let history = history.clone();
        move || {
            std::thread::sleep(Duration::from_millis(50));
            history.hear(&record(HintKind::Lookup, RECORDED, b"/etc/passwd", (0, 0)));
            drop(present);
        }
    });
    let stats = history.finish(&Ended::Exited(0), &[]);
    speaker.join().expect("it does not panic");
    let recorded = stats.recorded.expect("it records");
    assert_eq!((recorded.accesses, recorded.lost), (1, 7));
}

/// Bytes of the logs below a directory.
fn log_bytes(store: &Store) -> u64 {
    let directories = store.pending_directories();
    let entries = directories.iter().flat_map(std::fs::read_dir).flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|found| found.len()).sum()
}

/// Bytes that are written, at most, when a command has ended that made no access lately.
const LAST_BYTES: u64 = 64 << 10;

#[test]
fn the_end_of_a_long_run_writes_little() {
    const ACCESSES: u64 = 1_000_000;
    const PATHS: u64 = 100_000;
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let store = Store::at(dir.path(), TOTAL_MAX);
    let history = History::new(Arc::new(Plan::that_learns(store.clone())));
    let (shared, _file) = Mapping::new().expect("memory to share");
    let present = history.process_joined(Arc::new(shared));
    for n in 0..ACCESSES {
        let path = format!("/etc/no/such/{}", n % PATHS);
        let range = ((n / PATHS) << 21, 1 << 14);
        assert!(history.hear(&record(HintKind::Data, RECORDED, path.as_bytes(), range)));
    }
    let mut before = 0;
    wait_until("it is written", || {
        std::thread::sleep(Duration::from_millis(500));
        let is_all = log_bytes(&store) == before;
        before = log_bytes(&store);
        is_all && before > LAST_BYTES
    });
    drop(present);
    let stats = history.finish(&Ended::Exited(0), &[]);
    assert_eq!(stats.recorded.expect("it records").accesses, ACCESSES);
    let after = log_bytes(&store);
    assert!(after - before <= LAST_BYTES, "{before} {after}");
    pending_runs::merge_all(&store);
    assert!(store.pending_directories().is_empty());
    // Data of files that are not there is left out, and of the rest as much as a record holds.
    let run = store.load(&[1; 16]).expect("it is sound").expect("it is there");
    assert!(run.paths.len() > 10_000, "{}", run.paths.len());
}

#[test]
fn a_log_has_the_states_of_its_paths() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    std::fs::write(&old, "text").expect("ours");
    std::thread::sleep(Duration::from_millis(20));
    let store = Store::at(&dir.path().join("store"), TOTAL_MAX);
    let history = History::new(Arc::new(Plan::that_learns(store.clone())));
    let (shared, _file) = Mapping::new().expect("memory to share");
    let present = history.process_joined(Arc::new(shared));
    std::fs::write(&new, "text").expect("ours");
    for path in [&old, &new] {
        let path = path.as_os_str().as_bytes();
        for kind in [HintKind::Lookup, HintKind::Data] {
            history.hear(&record(kind, RECORDED, path, (0, 1 << 14)));
        }
    }
    drop(present);
    let stats = history.finish(&Ended::Exited(0), &[]);
    assert!(stats.complaints.is_empty(), "{:?}", stats.complaints);
    pending_runs::merge_of_program(&store, &[3; 16]);
    let run = store.load(&[1; 16]).expect("it is sound").expect("it is there");
    let of = |path: &Path| {
        let bytes = path.as_os_str().as_bytes();
        let data = run.accesses.iter().filter(|access| run.path_of(access).path == bytes);
        data.filter_map(|access| access.kind.range()).collect::<Vec<_>>()
    };
    assert_eq!(of(&old), [(0, 4)], "as long as the file");
    assert_eq!(of(&new), [], "it is written by this run");
    let known = unchanged_files::attributes(&old.metadata().expect("there"));
    let place = run.paths.iter().find(|place| place.path == old.as_os_str().as_bytes());
    assert_eq!(place.expect("it is there").attributes, Some(known));
}

#[test]
fn a_run_without_a_wait_leaves_no_log() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let store = Store::at(&dir.path().join("store"), TOTAL_MAX);
    let history = History::new(Arc::new(Plan::that_learns(store.clone())));
    history.program_started();
    let logger = history.logger.as_ref().expect("it learns");
    assert!(logger.complete(false, false).is_none());
    assert!(!store.dir().exists());
}
