//! Tests of how far guesses go, for programs that use them and for programs that do not.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use runahead_abi::hint_record::{DEMAND, Header};
use runahead_abi::{HintKind, Record};

use super::guess_kind::{ALLOWANCE, COST_MIN, GuessKind, cost};
use super::guess_state::{CREDIT, Guesses};
use super::guess_task::{GuessTask, Outcome};
use super::path_keys::suffix;
use super::pattern_state::{ENTRIES_MAX, PLACES_MAX};
use crate::deferred_effects::Effects;
use crate::directory_expansion::Name;
use crate::hint_order::{ClientId, Item};
use crate::read_sizes::EXTEND_MAX_BYTES;
use crate::test_support::TestQueue;

pub(super) const A: ClientId = 1;
const B: ClientId = 2;

/// A directory of files of one size, and what was guessed of it.
pub(super) struct Bench {
    pub guesses: Guesses<()>,
    pub queue: TestQueue,
    fx: Effects<()>,
    names: Vec<String>,
    /// Other entries of the directory `/p`.
    pub directories: Vec<String>,
    size: u64,
    listed: u32,
    /// Names that were looked up.
    pub read: BTreeSet<String>,
    /// Number of lookups.
    looks: usize,
    /// Bytes that were read.
    pub spent: u64,
}

impl Bench {
    pub fn new(files: usize, size: u64) -> Self {
        let queue = TestQueue::of(&[A, B]);
        Bench {
            guesses: Guesses::default(),
            queue,
            fx: Effects::default(),
            names: (0..files).map(|n| format!("{n}.pyc")).collect(),
            directories: Vec::new(),
            size,
            listed: 0,
            read: BTreeSet::new(),
            looks: 0,
            spent: 0,
        }
    }

    pub fn want_as(&mut self, client: ClientId, kind: HintKind, path: &str, flags: u32) {
        let header = Header {
            kind: kind as u32,
            run: 1,
            position: 0,
            key: 1,
            offset: 0,
            length: 100,
            flags,
            path_len: path.len() as u32,
        };
        let record = Record { kind, header, path: path.as_bytes() };
        self.guesses.saw(client, &record, &mut self.queue);
    }

    pub fn demand(&mut self, path: &str) {
        self.want_as(A, HintKind::Data, path, DEMAND);
    }

    /// Does everything that is to be done. How many files were read.
    pub fn run(&mut self) -> usize {
        let before = self.read.len();
        while let Some((_, id, item)) = self.queue.first() {
            assert_eq!(item, Item::Guess);
            let (sent, errand) = self.guesses.pop(id, &mut self.queue).expect("an errand");
            // They have tests of their own.
            if sent.whose().1 == GuessKind::Mentions {
                self.guesses.finish(sent, Outcome::Over, &mut self.queue, &mut self.fx);
                continue;
            }
            let outcome = match &errand {
                GuessTask::List { path } => {
                    self.listed += 1;
                    let entry = |name: &String, directory| Name {
                        name: name.as_bytes().into(),
                        inode: 1,
                        directory,
                    };
                    let directories = self.directories.iter().filter(|_| **path == *b"/p");
                    let directories = directories.map(|name| entry(name, true));
                    let files = self.names.iter().map(|name| entry(name, false));
                    Outcome::Names(directories.chain(files).take(ENTRIES_MAX + 1).collect())
                }
                GuessTask::Look { path } => {
                    let path = String::from_utf8(path.to_vec()).expect("text");
                    self.looks += 1;
                    self.read.insert(path);
                    Outcome::File(Arc::new(()), self.size)
                }
                GuessTask::Browse { .. } => Outcome::Over,
                GuessTask::Read { size, .. } => {
                    self.spent += size;
                    Outcome::Over
                }
                GuessTask::Scan { .. } => Outcome::Tokens(Vec::new()),
            };
            self.guesses.finish(sent, outcome, &mut self.queue, &mut self.fx);
        }
        self.read.len() - before
    }
}

#[test]
fn nothing_is_guessed_before_the_third_file_that_a_target_waits_for() {
    let mut bench = Bench::new(100, 1000);
    bench.demand("/d/0.pyc");
    bench.demand("/d/0.pyc");
    bench.demand("/d/1.pyc");
    bench.demand("/d/x.so");
    bench.demand("/e/2.pyc");
    bench.want_as(B, HintKind::Data, "/d/3.pyc", DEMAND);
    bench.want_as(A, HintKind::Lookup, "/d/4.pyc", DEMAND);
    assert_eq!((bench.run(), bench.listed), (0, 0));
    bench.want_as(A, HintKind::Data, "/d/5.pyc", 0);
    assert_eq!(bench.run(), (ALLOWANCE / COST_MIN) as usize);
    assert_eq!(bench.listed, 1);
    assert!(!bench.read.contains("/d/0.pyc") && bench.read.iter().all(|p| p.starts_with("/d/")));
}

#[test]
fn where_a_shadow_is_ahead_there_are_no_guesses() {
    let mut bench = Bench::new(100, 1000);
    bench.demand("/d/0.pyc");
    for n in 1..50 {
        bench.want_as(A, HintKind::Data, &format!("/d/{n}.pyc"), 0);
    }
    assert_eq!((bench.run(), bench.listed), (0, 0));
}

#[test]
fn guesses_that_are_used_double_until_the_directory_is_read() {
    let mut bench = Bench::new(300, 1000);
    (0..3).for_each(|n| bench.demand(&format!("/d/{n}.pyc")));
    let mut rounds = Vec::new();
    loop {
        let used: Vec<String> = bench.read.iter().cloned().collect();
        let read = bench.run();
        if read == 0 {
            break;
        }
        rounds.push(read);
        let new: Vec<String> = bench.read.iter().filter(|p| !used.contains(p)).cloned().collect();
        new.iter().for_each(|path| bench.want_as(A, HintKind::Data, path, 0));
    }
    assert_eq!(rounds.iter().sum::<usize>(), 297, "{rounds:?}");
    assert!(rounds[1] >= rounds[0] * 3 / 2 && rounds.len() < 8, "{rounds:?}");
}

#[test]
fn three_files_of_very_many_lead_to_few_or_none() {
    for (files, most) in [(100_000, 0), (ENTRIES_MAX, 16)] {
        let mut bench = Bench::new(files, 1000);
        (0..3).for_each(|n| bench.demand(&format!("/d/{n}.pyc")));
        assert_eq!(bench.run(), most);
    }
}

#[test]
fn large_files_use_up_the_allowance_and_huge_ones_are_not_read() {
    let mut bench = Bench::new(100, 100 << 10);
    (0..3).for_each(|n| bench.demand(&format!("/d/{n}.pyc")));
    bench.run();
    let spent = |bench: &Bench| bench.spent;
    assert_eq!(spent(&bench), 200 << 10, "two files are within the allowance");
    (90..96).for_each(|n| bench.demand(&format!("/d/{n}.pyc")));
    bench.run();
    assert_eq!(spent(&bench), 600 << 10, "each that was missed allows for four of {COST_MIN}");
    let mut bench = Bench::new(100, EXTEND_MAX_BYTES + 1);
    (0..3).for_each(|n| bench.demand(&format!("/d/{n}.pyc")));
    bench.run();
    assert_eq!((spent(&bench), bench.read.len() as u64), (0, ALLOWANCE / COST_MIN));
}

#[test]
fn files_that_are_too_large_are_not_looked_at_with_each_that_is_wanted() {
    const SIZE: u64 = 4 * ALLOWANCE;
    let mut bench = Bench::new(1000, SIZE);
    (0..3).for_each(|n| bench.demand(&format!("/d/{n}.pyc")));
    bench.run();
    let first = bench.looks;
    assert_eq!((bench.spent, first as u64), (0, ALLOWANCE / COST_MIN));
    // Each adds to the allowance, and none makes it large enough.
    (500..510).for_each(|n| {
        bench.demand(&format!("/d/{n}.pyc"));
        bench.run();
    });
    assert_eq!(bench.looks, first);
    (510..700).for_each(|n| {
        bench.demand(&format!("/d/{n}.pyc"));
        bench.run();
    });
    assert!(bench.spent >= SIZE, "at last there is enough for one");
}

#[test]
fn one_that_takes_three_files_of_each_directory_soon_gets_no_more() {
    let mut bench = Bench::new(1000, 1000);
    let (mut guessed, mut wanted) = (0, 0);
    for directory in 0..2000 {
        for n in 0..3 {
            // Names of its own: those that are the same everywhere are another matter.
            bench.demand(&format!("/{directory}/{directory}-{n}.pyc"));
            wanted += 1;
        }
        guessed += bench.run() as u64;
    }
    assert!(guessed * COST_MIN <= CREDIT + wanted * COST_MIN, "{guessed} for {wanted}");
}

#[test]
fn the_files_that_are_missed_carry_the_allowance_on() {
    // The log does not learn of data that the target finds in memory.
    let mut bench = Bench::new(200, 1000);
    let mut missed = 0;
    for n in (0..200).rev() {
        let path = format!("/d/{n}.pyc");
        if !bench.read.contains(&path) {
            bench.demand(&path);
            missed += 1;
            bench.run();
        }
    }
    assert!(missed < 110, "{missed}");
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut bench = Bench::new(100, 1000);
    (0..3).for_each(|n| bench.demand(&format!("/d/{n}.pyc")));
    let (_, id, _) = bench.queue.first().expect("a listing");
    bench.guesses.drop(id, &mut bench.queue, &mut bench.fx);
    bench.guesses.close(A);
    assert!(bench.queue.first().is_none() && bench.guesses.waiting.is_empty());
    assert!(bench.guesses.clients.is_empty());
}

#[test]
fn suffixes() {
    let all = ["a.py", "b.tar.gz", ".hidden", "none", "c."].map(|name| suffix(name.as_bytes()));
    assert_eq!(all, [&b".py"[..], b".gz", b"", b"", b"."]);
}

proptest! {
    #![proptest_config(crate::test_support::config(200))]

    /// Whatever is wanted in whatever order, the waste is bounded by what was wanted.
    #[test]
    fn the_waste_is_bounded(
        wants in prop::collection::vec((0usize..20, 0usize..400, any::<bool>()), 1..600),
        size in 1u64..40_000,
        run_every in 1usize..20,
    ) {
        let mut bench = Bench::new(400, size);
        let mut wanted: BTreeSet<String> = BTreeSet::new();
        for (n, (directory, file, demand)) in wants.into_iter().enumerate() {
            let path = format!("/{directory}/{file}.pyc");
            bench.want_as(A, HintKind::Data, &path, if demand { DEMAND } else { 0 });
            wanted.insert(path);
            if n % run_every == 0 {
                bench.run();
            }
        }
        bench.run();
        let used = wanted.len() as u64 * size;
        let bound = CREDIT + 4 * wanted.len() as u64 * cost(size);
        prop_assert!(bench.spent - used.min(bench.spent) <= bound, "{} of {bound}", bench.spent);
        let patterns = bench.guesses.clients.get(&A);
        let mut places = patterns.iter().flat_map(|patterns| patterns.places.values());
        prop_assert!(places.all(|place| place.spent <= place.allowance));
        let paths = bench.guesses.clients.get(&A).map_or(0, |w| w.places.len());
        prop_assert!(paths <= PLACES_MAX);
    }
}
