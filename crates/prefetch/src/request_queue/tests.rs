//! The queue as data: merging, order, and what becomes of each log key.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use proptest::prelude::*;
use runahead_abi::hint_record::{DEMAND, EXPAND_NAMES, Header, LENGTH_UNKNOWN, NO_FOLLOW, STEERS};
use runahead_abi::{HintKind, Record};
use runahead_estimators::Identity;
use runahead_predict::{
    ClientId, Effects, FileLead, Located, Name, PIECE_BYTES, Report, Role, StepFailure, Submitted,
    Task, Urgency,
};

use super::*;
use crate::byte_ranges::chunks;

/// A record made of few numbers; files are named by letters and have the letter as their key.
#[derive(Clone, Debug)]
struct Hint {
    kind: HintKind,
    path: String,
    run: u32,
    position: u64,
    flags: u32,
    range: std::ops::Range<u64>,
}

fn hint(kind: HintKind, path: &str) -> Hint {
    Hint { kind, path: path.into(), run: 1, position: 0, flags: 0, range: 0..4096 }
}

impl Hint {
    fn key(&self) -> Identity {
        Identity::ROOT.join(self.path.as_bytes())
    }

    /// The keys that are to be done or forgotten; data beyond `HINT_MAX_BYTES` aside.
    fn keys(&self) -> Vec<Identity> {
        let key = self.key();
        match self.kind {
            HintKind::Lookup | HintKind::Program | HintKind::Cancel => vec![key],
            HintKind::Listing => vec![key, key.listing()],
            HintKind::Link => vec![key, key.link()],
            HintKind::Data => {
                chunks(&self.range).map(|chunk| key.chunk(chunk)).chain([key]).collect()
            }
        }
    }

    fn submit(&self, queue: &mut Queue<()>, fx: &mut Effects<()>) -> Submitted {
        self.submit_as(A, queue, fx)
    }

    fn submit_as(
        &self,
        client: ClientId,
        queue: &mut Queue<()>,
        fx: &mut Effects<()>,
    ) -> Submitted {
        let header = Header {
            kind: self.kind as u32,
            run: self.run,
            position: self.position,
            key: self.key().raw(),
            offset: self.range.start,
            length: self.range.end - self.range.start,
            flags: self.flags,
            path_len: self.path.len() as u32,
        };
        let path = self.path.as_bytes();
        queue.submit(client, &Record { kind: self.kind, header, path }, Duration::ZERO, fx)
    }
}

/// The first clients of every queue.
const A: ClientId = 1;
const B: ClientId = 2;

fn sized(max: usize) -> (Queue<()>, Effects<()>) {
    let mut queue = Queue::new(max);
    assert_eq!([queue.open_client(), queue.open_client()], [A, B]);
    (queue, Effects::default())
}

fn new() -> (Queue<()>, Effects<()>) {
    sized(1000)
}

/// True if all of `keys` are done for `client`.
fn told(client: ClientId, keys: &[Identity], done: &[(ClientId, Identity)]) -> bool {
    keys.iter().all(|key| done.contains(&(client, *key)))
}

fn found(class: Class) -> Result<Found<()>, StepFailure> {
    Ok(Found { file: Arc::new(()), class, place: Place::default() })
}

fn path(job: &Job<()>) -> &str {
    match &job.step {
        Step::Look { path, .. } | Step::Link { path } => {
            std::str::from_utf8(path).expect("test paths are text")
        }
        _ => panic!("not a step that has a path"),
    }
}

#[test]
fn what_the_target_waits_for_comes_first_then_the_nearest() {
    let (mut queue, mut fx) = new();
    for (name, position, flags) in
        [("/a/x", 5, 0), ("/b/x", 3, 0), ("/c/x", 9, DEMAND), ("/d/x", 3, 0)]
    {
        Hint { position, flags, ..hint(HintKind::Lookup, name) }.submit(&mut queue, &mut fx);
    }
    // A newer run expects it elsewhere.
    Hint { position: 1, run: 2, ..hint(HintKind::Lookup, "/a/x") }.submit(&mut queue, &mut fx);
    Hint { position: 8, run: 2, ..hint(HintKind::Lookup, "/b/x") }.submit(&mut queue, &mut fx);
    let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|j| path(&j).to_owned()).collect();
    assert_eq!(order, ["/c/x", "/a/x", "/d/x", "/b/x"]);
}

#[test]
fn a_name_is_not_held_back_once_the_target_waits_for_it() {
    let (mut queue, mut fx) = new();
    for name in ["/d/a", "/d/b", "/d/c", "/e/x"] {
        hint(HintKind::Lookup, name).submit(&mut queue, &mut fx);
    }
    let mut next = || queue.pop().map(|j| path(&j).to_owned());
    assert_eq!(
        [next(), next(), next(), next()].map(Option::unwrap_or_default),
        ["/d/a", "/d/b", "/e/x", ""]
    );
    assert_eq!((queue.ready(), queue.len()), (0, 1));
    Hint { flags: DEMAND, ..hint(HintKind::Lookup, "/d/c") }.submit(&mut queue, &mut fx);
    assert_eq!(queue.pop().map(|j| path(&j).to_owned()).as_deref(), Some("/d/c"));
}

#[test]
fn one_lookup_serves_all_that_is_wanted_of_a_path() {
    let (mut queue, mut fx) = new();
    assert_eq!(hint(HintKind::Lookup, "/a").submit(&mut queue, &mut fx), Submitted::Queued);
    assert_eq!(hint(HintKind::Lookup, "/a").submit(&mut queue, &mut fx), Submitted::Duplicate);
    assert_eq!(hint(HintKind::Data, "/a").submit(&mut queue, &mut fx), Submitted::Merged);
    let look = queue.pop().expect("a lookup");
    assert!(queue.pop().is_none(), "the rest is parked");
    // While it is in progress:
    let more = Hint { range: 4096..8192, ..hint(HintKind::Data, "/a") };
    assert_eq!(more.submit(&mut queue, &mut fx), Submitted::Merged);
    assert_eq!(queue.len(), 1);
    let read = queue.looked(look, (found(Class::File { size: 10_000 }), true), &mut fx);
    let read = read.expect("the same worker reads");
    assert!(matches!(&read.step, Step::Read { range, .. } if *range == (0..8192)));
    assert_eq!(fx.done, [(A, more.key())]);
    queue.finish(read, Ok(8192), &mut fx);
    assert_eq!(fx.done.last(), Some(&(A, more.keys()[0])));
    let counts: Vec<_> = fx.completed.iter().map(|(_, c)| (c.kind, c.hints, c.bytes)).collect();
    assert_eq!(counts, [(HintKind::Lookup, 1, 0), (HintKind::Data, 2, 8192)]);
    assert!(queue.entries.is_empty() && queue.paths.is_empty());
}

#[test]
fn a_large_file_is_read_by_several_workers() {
    let (mut queue, mut fx) = new();
    let large = Hint { range: 0..10 * PIECE_BYTES, ..hint(HintKind::Data, "/a") };
    large.submit(&mut queue, &mut fx);
    let look = queue.pop().expect("a lookup");
    let first = queue.looked(look, (found(Class::File { size: 3 * PIECE_BYTES }), true), &mut fx);
    let mut jobs: Vec<_> = first.into_iter().chain(std::iter::from_fn(|| queue.pop())).collect();
    assert_eq!(jobs.len(), 3);
    for job in jobs.drain(..).rev() {
        queue.finish(job, Ok(PIECE_BYTES), &mut fx);
    }
    assert_eq!(fx.completed.len(), 1);
    assert_eq!(fx.completed[0].1.bytes, 3 * PIECE_BYTES);
    // Beyond the end there is nothing to read, which is an answer too.
    let done: HashSet<u64> = fx.done.iter().map(|(_, key)| key.raw()).collect();
    assert!(large.keys().iter().all(|key| done.contains(&key.raw())));
}

#[test]
fn a_missing_file_answers_everything_and_a_shortage_nothing() {
    for (trouble, done) in [(StepFailure::Answer, true), (StepFailure::Ours, false)] {
        let (mut queue, mut fx) = new();
        let all = [HintKind::Lookup, HintKind::Listing, HintKind::Data, HintKind::Link];
        let hints = all.map(|kind| hint(kind, "/a"));
        hints.iter().for_each(|hint| _ = hint.submit(&mut queue, &mut fx));
        let look = queue.pop().expect("a lookup");
        assert!(queue.looked(look, (Err(trouble), true), &mut fx).is_none());
        let forgotten: Vec<_> = fx.forget.iter().map(|&(client, key, _)| (client, key)).collect();
        let (answered, other) = if done { (&fx.done, &forgotten) } else { (&forgotten, &fx.done) };
        assert!(hints.iter().all(|hint| told(A, &hint.keys(), answered)));
        assert!(other.is_empty());
        assert_eq!(fx.completed.iter().filter(|(_, c)| c.failed).count(), 4);
        assert!(queue.entries.is_empty());
    }
}

#[test]
fn a_link_is_looked_up_again_for_a_hint_that_follows_it() {
    let (mut queue, mut fx) = new();
    let still = Hint { flags: NO_FOLLOW, ..hint(HintKind::Lookup, "/l") };
    still.submit(&mut queue, &mut fx);
    let look = queue.pop().expect("a lookup");
    assert!(matches!(look.step, Step::Look { follow: false, .. }));
    hint(HintKind::Data, "/l").submit(&mut queue, &mut fx);
    let again = queue.looked(look, (found(Class::Link), true), &mut fx).expect("a second look");
    assert!(matches!(again.step, Step::Look { follow: true, .. }));
    let read = queue.looked(again, (found(Class::File { size: 100 }), true), &mut fx);
    assert!(matches!(read.map(|job| job.step), Some(Step::Read { .. })));
}

#[test]
fn special_files_are_answered_without_a_further_step() {
    let (mut queue, mut fx) = new();
    hint(HintKind::Data, "/fifo").submit(&mut queue, &mut fx);
    hint(HintKind::Listing, "/fifo").submit(&mut queue, &mut fx);
    let look = queue.pop().expect("a lookup");
    assert!(queue.looked(look, (found(Class::Other), true), &mut fx).is_none());
    assert_eq!(fx.completed.iter().filter(|(_, c)| c.failed).count(), 2);
}

#[test]
fn hints_of_strayed_runs_are_dropped_unless_started_or_demanded() {
    let (mut queue, mut fx) = new();
    hint(HintKind::Data, "/started").submit(&mut queue, &mut fx);
    let look = queue.pop().expect("a lookup");
    let old = hint(HintKind::Data, "/old");
    old.submit(&mut queue, &mut fx);
    Hint { run: 2, ..hint(HintKind::Data, "/new") }.submit(&mut queue, &mut fx);
    Hint { flags: DEMAND, ..hint(HintKind::Data, "/demanded") }.submit(&mut queue, &mut fx);
    let again = Hint { run: 1, ..hint(HintKind::Lookup, "/again") };
    again.submit(&mut queue, &mut fx);
    Hint { run: 2, ..again }.submit(&mut queue, &mut fx);
    assert_eq!(queue.drop_stale(A, Some(2), &mut fx), 2);
    let forgotten: HashSet<u64> = fx.forget.iter().map(|(_, key, _)| key.raw()).collect();
    assert!(fx.forget.iter().all(|&(.., before)| before == 2));
    let started = hint(HintKind::Data, "/started").keys()[0];
    let expect = old.keys().into_iter().chain([started]);
    assert_eq!(forgotten, expect.map(Identity::raw).collect());
    // Its data was given up, its lookup was under way.
    assert!(queue.looked(look, (found(Class::File { size: 1 }), true), &mut fx).is_none());
    assert_eq!(fx.done, [(A, hint(HintKind::Data, "/started").key())]);
    assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 3);
}

#[test]
fn a_full_queue_refuses_and_forgets_but_not_what_the_target_waits_for() {
    let (mut queue, mut fx) = sized(3);
    hint(HintKind::Lookup, "/a").submit(&mut queue, &mut fx);
    hint(HintKind::Lookup, "/b").submit(&mut queue, &mut fx);
    let refused = hint(HintKind::Data, "/c");
    assert_eq!(refused.submit(&mut queue, &mut fx), Submitted::Refused);
    let forgotten: Vec<_> = fx.forget.iter().map(|&(client, key, _)| (client, key)).collect();
    assert!(told(A, &refused.keys(), &forgotten));
    let other = hint(HintKind::Data, "/d");
    assert_eq!(other.submit_as(B, &mut queue, &mut fx), Submitted::Refused, "that is full, too");
    let demanded = Hint { flags: DEMAND, ..refused };
    assert_eq!(demanded.submit(&mut queue, &mut fx), Submitted::Queued);
}

#[test]
fn every_name_of_a_path_is_marked() {
    let (mut queue, mut fx) = new();
    let header = |key| Header {
        kind: HintKind::Lookup as u32,
        run: 1,
        position: 0,
        key,
        offset: 0,
        length: 0,
        flags: 0,
        path_len: 2,
    };
    for key in 1..=4 {
        let record = Record { kind: HintKind::Lookup, header: header(key), path: b"/a" };
        assert_ne!(queue.submit(A, &record, Duration::ZERO, &mut fx), Submitted::Refused);
    }
    let fifth = Record { kind: HintKind::Lookup, header: header(5), path: b"/a" };
    assert_eq!(queue.submit(A, &fifth, Duration::ZERO, &mut fx), Submitted::Refused);
    let look = queue.pop().expect("a lookup");
    queue.looked(look, (found(Class::Other), true), &mut fx);
    assert_eq!(fx.done.len(), 4);
}

#[test]
fn programs_that_are_switched_off_are_refused_and_their_keys_forgotten() {
    let (mut queue, mut fx) = new();
    queue.allow(&crate::Options { programs: false, ..crate::Options::default() });
    let program = hint(HintKind::Program, "/a");
    assert_eq!(program.submit(&mut queue, &mut fx), Submitted::Refused);
    assert_eq!(fx.forget.len(), 1);
    assert_eq!(queue.len(), 0);
}

#[path = "tests_cancel.rs"]
mod cancel;
#[path = "tests_clients.rs"]
mod clients;
#[path = "tests_random.rs"]
mod random;
#[path = "tests_sweep.rs"]
mod sweep;
