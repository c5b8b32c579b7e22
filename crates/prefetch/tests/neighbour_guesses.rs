//! Neighbours of small files, on real files.
#![allow(missing_docs, reason = "a test")]

use runahead_abi::HintKind;
use runahead_abi::hint_record::DEMAND;
use runahead_estimators::ChunkIndex;

mod common;

use common::{Bench, Hint, hint, resident};

#[test]
fn neighbours_of_what_a_target_waits_for_come_into_memory() {
    let bench = Bench::new(8);
    std::fs::create_dir(bench.path("cache")).unwrap();
    // They are in memory: a busy disk may be taken for one that serves few requests at once, where
    // guesses multiply more slowly.
    let warm_file = |n| {
        let path = bench.path(&format!("cache/{n}.pyc"));
        std::fs::write(&path, [7; 5000]).unwrap();
        path
    };
    let files: Vec<_> = (0..60).map(warm_file).collect();
    let other = bench.cold_file("cache/other.txt", 5000);
    let other_was_in_memory = resident(&other, 0);
    let demand = |n: usize| {
        bench.hint(Hint { flags: DEMAND, ..hint(HintKind::Data, &files[n]) });
        bench.wait()
    };
    assert_eq!((demand(0).guesses, demand(1).guesses), (0, 0));
    let first = demand(2).guesses;
    assert!(first > 0 && first < 57, "{first}");
    // Each that is used brings more, until there are no more. What is there need not be waited for.
    for (n, file) in files.iter().enumerate().skip(3) {
        let key = common::key(file).chunk(ChunkIndex(0));
        if bench.watch.is_done(key) {
            bench.watch.used.lock().unwrap().insert(key.raw());
        } else {
            demand(n);
        }
    }
    let stats = demand(0);
    assert!(stats.guesses >= 50 && stats.guesses <= 57, "{stats:?}");
    assert!(stats.guessed[0].1 >= 50, "{stats:?}");
    // From the fourth that is waited for on, those are looked through for names.
    let files = stats.unhinted_bytes / 5000;
    assert!((stats.guesses..stats.guesses + 5).contains(&files), "{stats:?}");
    if other_was_in_memory {
        eprintln!("skipped: this file system keeps its files in memory");
        return;
    }
    assert!(!resident(&other, 0), "another suffix");
}

#[test]
fn a_guess_is_announced_when_it_is_there_and_has_no_completion() {
    let bench = Bench::new(8);
    let files: Vec<_> = (0..10).map(|n| bench.cold_file(&format!("{n}.py"), 500)).collect();
    for file in &files[..3] {
        bench.hint(Hint { flags: DEMAND, ..hint(HintKind::Data, file) });
    }
    assert_eq!(bench.wait().guesses, 7);
    assert_eq!(bench.watch.completed.lock().unwrap().len(), 3);
    assert_eq!(bench.prefetcher.stats().completed, 3);
    // Its use is to show in the client's log, where contents go by chunks.
    let key = common::key(&files[9]).chunk(ChunkIndex(0));
    assert!(bench.watch.is_done(key));
    assert!(bench.watch.expected.lock().unwrap().contains(&key.raw()));
    assert_eq!(bench.watch.expected.lock().unwrap().len(), 7);
}
