//! Several clients of one prefetcher, on real files.
#![allow(missing_docs, reason = "a test")]

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use runahead_abi::HintKind;
use runahead_abi::hint_record::DEMAND;
use runahead_estimators::Identity;
use runahead_prefetch::Client;

mod common;

use common::{Bench, Hint, RecordingSink, hint, key};

/// Has the one worker held in a completion of the first client.
fn held(bench: &Bench) {
    *bench.watch.shut.lock().unwrap() = true;
    bench.hint(hint(HintKind::Lookup, &bench.path("none")));
    while bench.watch.completed.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
}

fn second(bench: &Bench) -> (Client, Arc<RecordingSink>) {
    let watch = Arc::new(RecordingSink::default());
    (bench.prefetcher.client(watch.clone()), watch)
}

#[test]
fn a_file_that_two_want_is_read_once_and_done_for_both() {
    let bench = Bench::new(1);
    let (other, watch) = second(&bench);
    let file = bench.cold_file("file", 10_000);
    held(&bench);
    bench.hint(hint(HintKind::Data, &file));
    // The other knows it by another name.
    let odd = Hint { run: 7, length: 10_000, ..hint(HintKind::Data, &file) };
    odd.send_as(Identity::START_CWD, &other);
    bench.watch.open_gate();
    let stats = bench.wait();
    // What is more of the second hint is a read of its own.
    assert!(stats.reads <= 2 && stats.lookups == 2, "{stats:?}");
    assert!(bench.watch.is_done(key(&file)) && !watch.is_done(key(&file)));
    assert!(watch.is_done(Identity::START_CWD));
    let runs: Vec<u32> = watch.completed.lock().unwrap().iter().map(|c| c.run).collect();
    assert_eq!((runs, stats.clients), (vec![7], 2));
}

#[test]
fn a_client_that_leaves_drops_its_own_hints_and_no_other_clients() {
    let bench = Bench::new(1);
    let (other, watch) = second(&bench);
    let files: Vec<PathBuf> = (0..50).map(|n| bench.cold_file(&n.to_string(), 5000)).collect();
    held(&bench);
    for file in &files {
        hint(HintKind::Data, file).send(&other);
        bench.hint(hint(HintKind::Data, file));
    }
    assert_eq!((other.queued(), bench.client.queued()), (50, 50));
    assert_eq!(bench.prefetcher.queued(), 100);
    drop(other);
    let keys = files.iter().flat_map(|file| hint(HintKind::Data, file).keys());
    let keys: HashSet<u64> = keys.map(|key| key.raw()).collect();
    assert_eq!(*watch.forgotten.lock().unwrap(), keys);
    assert_eq!(bench.prefetcher.queued(), 50);
    bench.watch.open_gate();
    let stats = bench.wait();
    assert_eq!((stats.dropped, stats.clients, stats.bytes), (50, 1, 50 * 4096));
    assert!(watch.done.lock().unwrap().is_empty() && watch.completed.lock().unwrap().is_empty());
    assert!(keys.iter().all(|key| bench.watch.done.lock().unwrap().contains(key)));
}

#[test]
fn runs_are_each_clients_own() {
    let bench = Bench::new(1);
    let (other, watch) = second(&bench);
    let file = bench.cold_file("file", 5000);
    held(&bench);
    bench.hint(Hint { run: 3, ..hint(HintKind::Data, &file) });
    Hint { run: 3, ..hint(HintKind::Data, &file) }.send(&other);
    assert_eq!(other.drop_queued_before(9), 1);
    assert_eq!((other.queued(), bench.client.queued()), (0, 1));
    bench.watch.open_gate();
    bench.wait();
    assert!(bench.watch.is_done(key(&file)) && !watch.is_done(key(&file)));
}

#[test]
fn what_is_hinted_after_the_end_is_forgotten() {
    let bench = Bench::new(1);
    let (other, watch) = second(&bench);
    assert_eq!(bench.prefetcher.close(), 0);
    let file = bench.cold_file("file", 5000);
    for kind in [HintKind::Data, HintKind::Program] {
        Hint { flags: DEMAND, ..hint(kind, &file) }.send(&other);
    }
    let forgotten = watch.forgotten.lock().unwrap();
    assert!(hint(HintKind::Data, &file).keys().iter().all(|key| forgotten.contains(&key.raw())));
    let stats = bench.prefetcher.stats();
    assert_eq!((stats.refused, stats.threads, stats.queued), (2, 0, 0));
}

#[test]
fn clients_can_outlive_the_prefetcher() {
    let bench = Bench::new(2);
    let (other, watch) = second(&bench);
    let file = bench.cold_file("file", 5000);
    let Bench { prefetcher, client, dir, .. } = bench;
    drop((client, prefetcher));
    hint(HintKind::Lookup, &file).send(&other);
    assert_eq!(watch.forgotten.lock().unwrap().len(), 1);
    drop((other, dir));
}

/// Path, kind, run, flags and offset of a hint.
type Random = (usize, usize, u32, u32, u64);

/// Returns the number of `keys` that are neither done nor forgotten.
fn open(watch: &RecordingSink, keys: &HashSet<u64>) -> usize {
    let done = watch.done.lock().unwrap();
    let forgotten = watch.forgotten.lock().unwrap();
    keys.iter().filter(|key| !done.contains(key) && !forgotten.contains(key)).count()
}

proptest! {
    #![proptest_config(common::config(25))]

    /// Threads that hint, stray and go while others do: each key of each client is done or
    /// forgotten. (One that goes may be told both: a worker tells what it had settled before.)
    #[test]
    fn every_key_of_every_client_is_done_or_forgotten(
        clients in prop::collection::vec(
            (prop::collection::vec((0usize..8, 0usize..5, 1u32..6, 0u32..16, 0u64..4 << 20), 1..80),
                prop::collection::vec(0usize..80, 0..3), any::<bool>()),
            1..6),
        workers in 1usize..8,
    ) {
        let bench = Bench::new(workers);
        let paths = common::zoo(&bench);
        let stay = Arc::new(Mutex::new(Vec::new()));
        let unsettled: usize = std::thread::scope(|scope| {
            let each = |(hints, drops, goes): &(Vec<Random>, Vec<usize>, bool)| {
                let sink = Arc::new(RecordingSink::default());
                let client = bench.prefetcher.client(sink.clone());
                let mut keys = HashSet::new();
                for (n, &(path, kind, run, flags, offset)) in hints.iter().enumerate() {
                    let kind = common::KINDS[kind];
                    let hint = Hint { kind, path: &paths[path], run, flags, offset, length: 1 << 18 };
                    hint.send(&client);
                    keys.extend(hint.keys().iter().map(|key| key.raw()));
                    if drops.contains(&n) {
                        client.drop_queued_before(4);
                    }
                }
                if !goes {
                    stay.lock().unwrap().push((client, sink, keys));
                    return 0;
                }
                drop(client);
                // All but what workers are just about to tell.
                let start = Instant::now();
                while open(&sink, &keys) > 0 && start.elapsed() < Duration::from_secs(10) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                open(&sink, &keys)
            };
            let all: Vec<_> = clients.iter().map(|c| scope.spawn(move || each(c))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        prop_assert_eq!(unsettled, 0);
        let stats = bench.wait();
        for (_client, sink, keys) in stay.lock().unwrap().iter() {
            prop_assert_eq!(open(sink, keys), 0);
        }
        prop_assert_eq!(stats.submitted, stats.completed + stats.duplicates + stats.dropped);
    }
}
