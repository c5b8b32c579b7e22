//! The queue as data: merging, order, and what becomes of each log key.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use runahead_abi::identity::CHUNK_BYTES;
use runahead_abi::record::{Header, STEERS};

use super::*;
use crate::ranges::PIECE_BYTES;

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
            HintKind::Lookup => vec![key],
            HintKind::Listing => vec![key, key.listing()],
            HintKind::Link => vec![key, key.link()],
            HintKind::Data => {
                chunks(&self.range).map(|chunk| key.chunk(chunk)).chain([key]).collect()
            }
        }
    }

    fn submit(&self, queue: &mut Queue<()>, fx: &mut Effects<()>) -> Submitted {
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
        queue.submit(&Record { kind: self.kind, header, path: self.path.as_bytes() }, fx)
    }
}

fn new() -> (Queue<()>, Effects<()>) {
    (Queue::new(1000), Effects::default())
}

fn found(class: Class) -> Result<Found<()>, Trouble> {
    Ok(Found { file: Arc::new(()), class })
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
    let read = queue.looked(look, found(Class::File { size: 10_000 }), &mut fx);
    let read = read.expect("the same worker reads");
    assert!(matches!(&read.step, Step::Read { range, .. } if *range == (0..8192)));
    assert_eq!(fx.done, [more.key()]);
    queue.finish(read, Ok(8192), &mut fx);
    assert_eq!(fx.done.last(), more.keys().first());
    let counts: Vec<_> = fx.completed.iter().map(|c| (c.kind, c.hints, c.bytes)).collect();
    assert_eq!(counts, [(HintKind::Lookup, 1, 0), (HintKind::Data, 2, 8192)]);
    assert!(queue.entries.is_empty() && queue.paths.is_empty());
}

#[test]
fn a_large_file_is_read_by_several_workers() {
    let (mut queue, mut fx) = new();
    let large = Hint { range: 0..10 * PIECE_BYTES, ..hint(HintKind::Data, "/a") };
    large.submit(&mut queue, &mut fx);
    let look = queue.pop().expect("a lookup");
    let first = queue.looked(look, found(Class::File { size: 3 * PIECE_BYTES }), &mut fx);
    let mut jobs: Vec<_> = first.into_iter().chain(std::iter::from_fn(|| queue.pop())).collect();
    assert_eq!(jobs.len(), 3);
    for job in jobs.drain(..).rev() {
        queue.finish(job, Ok(PIECE_BYTES), &mut fx);
    }
    assert_eq!(fx.completed.len(), 1);
    assert_eq!(fx.completed[0].bytes, 3 * PIECE_BYTES);
    // Beyond the end there is nothing to read, which is an answer too.
    let done: HashSet<u64> = fx.done.iter().map(|key| key.raw()).collect();
    assert!(large.keys().iter().all(|key| done.contains(&key.raw())));
}

#[test]
fn a_missing_file_answers_everything_and_a_shortage_nothing() {
    for (trouble, done) in [(Trouble::Answer, true), (Trouble::Ours, false)] {
        let (mut queue, mut fx) = new();
        let all = [HintKind::Lookup, HintKind::Listing, HintKind::Data, HintKind::Link];
        let hints = all.map(|kind| hint(kind, "/a"));
        hints.iter().for_each(|hint| _ = hint.submit(&mut queue, &mut fx));
        let look = queue.pop().expect("a lookup");
        assert!(queue.looked(look, Err(trouble), &mut fx).is_none());
        let forgotten: Vec<Identity> = fx.forget.iter().map(|(key, _)| *key).collect();
        let (told, other) = if done { (&fx.done, &forgotten) } else { (&forgotten, &fx.done) };
        assert!(hints.iter().flat_map(Hint::keys).all(|key| told.contains(&key)));
        assert!(other.is_empty());
        assert_eq!(fx.completed.iter().filter(|c| c.failed).count(), 4);
        assert!(queue.entries.is_empty());
    }
}

#[test]
fn a_link_is_looked_up_again_when_somebody_follows_it() {
    let (mut queue, mut fx) = new();
    let still = Hint { flags: NO_FOLLOW, ..hint(HintKind::Lookup, "/l") };
    still.submit(&mut queue, &mut fx);
    let look = queue.pop().expect("a lookup");
    assert!(matches!(look.step, Step::Look { follow: false, .. }));
    hint(HintKind::Data, "/l").submit(&mut queue, &mut fx);
    let again = queue.looked(look, found(Class::Link), &mut fx).expect("a second look");
    assert!(matches!(again.step, Step::Look { follow: true, .. }));
    let read = queue.looked(again, found(Class::File { size: 100 }), &mut fx);
    assert!(matches!(read.map(|job| job.step), Some(Step::Read { .. })));
}

#[test]
fn special_files_are_answered_without_a_further_step() {
    let (mut queue, mut fx) = new();
    hint(HintKind::Data, "/fifo").submit(&mut queue, &mut fx);
    hint(HintKind::Listing, "/fifo").submit(&mut queue, &mut fx);
    let look = queue.pop().expect("a lookup");
    assert!(queue.looked(look, found(Class::Other), &mut fx).is_none());
    assert_eq!(fx.completed.iter().filter(|c| c.failed).count(), 2);
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
    assert_eq!(queue.drop_stale(Some(2), &mut fx), 2);
    let forgotten: HashSet<u64> = fx.forget.iter().map(|(key, _)| key.raw()).collect();
    assert!(fx.forget.iter().all(|&(_, before)| before == 2));
    let started = hint(HintKind::Data, "/started").keys()[0];
    let expect = old.keys().into_iter().chain([started]);
    assert_eq!(forgotten, expect.map(Identity::raw).collect());
    // Its data was given up, its lookup was under way.
    assert!(queue.looked(look, found(Class::File { size: 1 }), &mut fx).is_none());
    assert_eq!(fx.done, [hint(HintKind::Data, "/started").key()]);
    assert_eq!(std::iter::from_fn(|| queue.pop()).count(), 3);
}

#[test]
fn a_full_queue_refuses_and_forgets_but_not_what_the_target_waits_for() {
    let (mut queue, mut fx) = (Queue::new(2), Effects::default());
    hint(HintKind::Lookup, "/a").submit(&mut queue, &mut fx);
    hint(HintKind::Lookup, "/b").submit(&mut queue, &mut fx);
    let refused = hint(HintKind::Data, "/c");
    assert_eq!(refused.submit(&mut queue, &mut fx), Submitted::Refused);
    let forgotten: Vec<Identity> = fx.forget.iter().map(|(key, _)| *key).collect();
    assert!(refused.keys().iter().all(|key| forgotten.contains(key)));
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
        assert_ne!(queue.submit(&record, &mut fx), Submitted::Refused);
    }
    let fifth = Record { kind: HintKind::Lookup, header: header(5), path: b"/a" };
    assert_eq!(queue.submit(&fifth, &mut fx), Submitted::Refused);
    let look = queue.pop().expect("a lookup");
    queue.looked(look, found(Class::Other), &mut fx);
    assert_eq!(fx.done.len(), 4);
}

/// What the four paths of the random test name.
fn class(path: &str) -> Result<Found<()>, Trouble> {
    match path {
        "/a" => found(Class::File { size: 5 * PIECE_BYTES }),
        "/b" => found(Class::File { size: 100 }),
        "/c" => found(Class::Directory),
        "/d" => found(Class::Other),
        "/e" => Err(Trouble::Answer),
        _ => Err(Trouble::Ours),
    }
}

#[derive(Clone, Debug)]
enum Op {
    Submit(Hint),
    Pop,
    End(usize),
    Drop(u32),
}

fn op() -> impl Strategy<Value = Op> {
    use HintKind::*;
    let kind = prop::sample::select(vec![Lookup, Listing, Link, Data, Data, Data]);
    let path = prop::sample::select(vec!["/a", "/a", "/b", "/c", "/d", "/e", "/f", "/l"]);
    let flags = prop::sample::select(vec![0, 0, NO_FOLLOW, STEERS, DEMAND, LENGTH_UNKNOWN]);
    let range = (0u64..25, 1u64..25)
        .prop_map(|(at, len)| at * CHUNK_BYTES / 2..(at + len) * CHUNK_BYTES / 2);
    let hint = (kind, path, 0u32..6, 0u64..20, flags, range).prop_map(
        |(kind, path, run, position, flags, range)| {
            Op::Submit(Hint { kind, path: path.into(), run, position, flags, range })
        },
    );
    prop_oneof![4 => hint, 3 => Just(Op::Pop), 4 => any::<usize>().prop_map(Op::End),
        1 => (0u32..8).prop_map(Op::Drop)]
}

proptest! {
    /// Every key of every hint is done or forgotten after the hint was submitted; it is forgotten
    /// only if all hints for it are of strayed runs, or we ran short.
    #[test]
    fn every_key_is_done_or_forgotten(ops in prop::collection::vec(op(), 1..150)) {
        let (mut queue, mut fx) = new();
        // Unresolved keys, with the hints that want them.
        let mut open: HashMap<u64, Vec<Hint>> = HashMap::new();
        let mut seen: Vec<Hint> = vec![];
        let mut jobs: Vec<(Job<()>, String)> = vec![];
        let (mut accepted, mut ended) = (0, 0);
        let rest = (0..2000).map(|n| if n % 2 == 0 { Op::Pop } else { Op::End(n) });
        for op in ops.into_iter().chain(rest) {
            let mut drop_run = None;
            let mut short = false;
            match op {
                Op::Submit(hint) => {
                    for key in hint.keys() {
                        open.entry(key.raw()).or_default().push(hint.clone());
                    }
                    let submitted = hint.submit(&mut queue, &mut fx);
                    seen.push(hint);
                    prop_assert_ne!(submitted, Submitted::Refused);
                    accepted += u32::from(submitted != Submitted::Duplicate);
                }
                Op::Pop => jobs.extend(queue.pop().map(|job| {
                    let name = std::str::from_utf8(&queue.entries[&job.entry].path);
                    let name = name.expect("test paths are text").to_owned();
                    (job, name)
                })),
                Op::End(_) if jobs.is_empty() => {}
                Op::End(n) => {
                    let (job, name) = jobs.swap_remove(n % jobs.len());
                    match &job.step {
                        Step::Look { follow, .. } => {
                            let link = name == "/l" && !follow;
                            let result = if link { found(Class::Link) } else { class(&name) };
                            short = result.as_ref().is_err_and(|t| *t == Trouble::Ours);
                            let next = queue.looked(job, result, &mut fx);
                            jobs.extend(next.map(|job| (job, name)));
                        }
                        _ => queue.finish(job, Ok(1), &mut fx),
                    }
                }
                Op::Drop(run) => {
                    ended += queue.drop_stale(Some(run), &mut fx) as u32;
                    drop_run = Some(run);
                }
            }
            for key in fx.done.drain(..) {
                open.remove(&key.raw());
            }
            for (key, before) in fx.forget.drain(..) {
                let hints = open.remove(&key.raw()).unwrap_or_default();
                prop_assert!(short || drop_run == Some(before));
                let stale = |h: &Hint| h.run < before && h.flags & DEMAND == 0;
                prop_assert!(short || hints.iter().all(stale), "{hints:?} before {before}");
            }
            if let Some(run) = drop_run {
                for entry in queue.entries.values().filter(|e| e.running == 0) {
                    prop_assert!(!entry.items().is_empty());
                    let live = |h: &Hint| h.run >= run || h.flags & DEMAND != 0;
                    // Not of the unresolved ones only: what was joined shares the newest run.
                    let mut own = seen.iter().filter(|h| h.path.as_bytes() == &*entry.path);
                    prop_assert!(own.any(live));
                }
            }
            ended += fx.completed.drain(..).map(|c| c.hints).sum::<u32>();
            fx.files.clear();
        }
        prop_assert!(open.is_empty(), "left: {open:?}");
        prop_assert!(jobs.is_empty() && queue.entries.is_empty() && queue.paths.is_empty());
        prop_assert_eq!(queue.len(), 0);
        prop_assert_eq!(accepted, ended);
    }
}
