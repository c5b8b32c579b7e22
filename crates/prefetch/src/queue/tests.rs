//! The queue as data: merging, order, and what becomes of each log key.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use runahead_abi::identity::CHUNK_BYTES;
use runahead_abi::record::{DEMAND, Header, STEERS};

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
            HintKind::Lookup | HintKind::Program => vec![key],
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
        queue.submit(client, &Record { kind: self.kind, header, path: self.path.as_bytes() }, fx)
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

/// Whether all of `keys` are among what was told to `client`.
fn told(client: ClientId, keys: &[Identity], done: &[(ClientId, Identity)]) -> bool {
    keys.iter().all(|key| done.contains(&(client, *key)))
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
    let first = queue.looked(look, found(Class::File { size: 3 * PIECE_BYTES }), &mut fx);
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
    for (trouble, done) in [(Trouble::Answer, true), (Trouble::Ours, false)] {
        let (mut queue, mut fx) = new();
        let all = [HintKind::Lookup, HintKind::Listing, HintKind::Data, HintKind::Link];
        let hints = all.map(|kind| hint(kind, "/a"));
        hints.iter().for_each(|hint| _ = hint.submit(&mut queue, &mut fx));
        let look = queue.pop().expect("a lookup");
        assert!(queue.looked(look, Err(trouble), &mut fx).is_none());
        let forgotten: Vec<_> = fx.forget.iter().map(|&(client, key, _)| (client, key)).collect();
        let (answered, other) = if done { (&fx.done, &forgotten) } else { (&forgotten, &fx.done) };
        assert!(hints.iter().all(|hint| told(A, &hint.keys(), answered)));
        assert!(other.is_empty());
        assert_eq!(fx.completed.iter().filter(|(_, c)| c.failed).count(), 4);
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
    assert!(queue.looked(look, found(Class::File { size: 1 }), &mut fx).is_none());
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
        assert_ne!(queue.submit(A, &record, &mut fx), Submitted::Refused);
    }
    let fifth = Record { kind: HintKind::Lookup, header: header(5), path: b"/a" };
    assert_eq!(queue.submit(A, &fifth, &mut fx), Submitted::Refused);
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
    Submit(ClientId, Hint),
    Pop,
    End(usize),
    Drop(ClientId, u32),
    /// The client goes, and another comes.
    Replace(usize),
}

/// Clients in the random test.
const CLIENTS: u64 = 3;

fn op() -> impl Strategy<Value = Op> {
    use HintKind::*;
    let kind = prop::sample::select(vec![Lookup, Listing, Link, Data, Data, Data]);
    let path = prop::sample::select(vec!["/a", "/a", "/b", "/c", "/d", "/e", "/f", "/l"]);
    let flags = prop::sample::select(vec![0, 0, NO_FOLLOW, STEERS, DEMAND, LENGTH_UNKNOWN]);
    let range = (0u64..25, 1u64..25)
        .prop_map(|(at, len)| at * CHUNK_BYTES / 2..(at + len) * CHUNK_BYTES / 2);
    let hint = (0..CLIENTS, kind, path, 0u32..6, 0u64..20, flags, range).prop_map(
        |(client, kind, path, run, position, flags, range)| {
            Op::Submit(client, Hint { kind, path: path.into(), run, position, flags, range })
        },
    );
    prop_oneof![8 => hint, 6 => Just(Op::Pop), 8 => any::<usize>().prop_map(Op::End),
        2 => (0..CLIENTS, 0u32..8).prop_map(|(client, run)| Op::Drop(client, run)),
        1 => any::<usize>().prop_map(Op::Replace)]
}

/// What the random test knows of a client.
#[derive(Default)]
struct Model {
    /// Unresolved keys, with the hints that want them.
    open: HashMap<u64, Vec<Hint>>,
    seen: Vec<Hint>,
    accepted: u32,
    ended: u32,
}

proptest! {
    #![proptest_config(crate::testing::config(400))]

    /// Every key of every hint is done or forgotten, for the client that hinted it, after the hint
    /// was submitted; it is forgotten only if all that client's hints for it are of strayed runs,
    /// or we ran short, or the client is gone, after which it is told nothing.
    #[test]
    fn every_key_is_done_or_forgotten(ops in prop::collection::vec(op(), 1..150)) {
        let mut queue = Queue::new(1000);
        let mut fx = Effects::default();
        let mut ids: Vec<ClientId> = (0..CLIENTS).map(|_| queue.open_client()).collect();
        let mut models: HashMap<ClientId, Model> =
            ids.iter().map(|&id| (id, Model::default())).collect();
        let mut jobs: Vec<(Job<()>, String)> = vec![];
        let rest = (0..2000).map(|n| if n % 2 == 0 { Op::Pop } else { Op::End(n) });
        for op in ops.into_iter().chain(rest) {
            let mut dropped = None;
            let mut gone = None;
            let mut short = false;
            match op {
                Op::Submit(client, hint) => {
                    let client = ids[client as usize];
                    let model = models.get_mut(&client).expect("a model");
                    for key in hint.keys() {
                        model.open.entry(key.raw()).or_default().push(hint.clone());
                    }
                    let submitted = hint.submit_as(client, &mut queue, &mut fx);
                    model.seen.push(hint);
                    prop_assert_ne!(submitted, Submitted::Refused);
                    model.accepted += u32::from(submitted != Submitted::Duplicate);
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
                Op::Drop(client, run) => {
                    let client = ids[client as usize];
                    let ended = queue.drop_stale(client, Some(run), &mut fx) as u32;
                    models.get_mut(&client).expect("a model").ended += ended;
                    dropped = Some((client, run));
                }
                Op::Replace(n) => {
                    let slot = n % ids.len();
                    let client = std::mem::replace(&mut ids[slot], queue.open_client());
                    let ended = queue.close_client(client, &mut fx) as u32;
                    models.get_mut(&client).expect("a model").ended += ended;
                    models.insert(ids[slot], Model::default());
                    gone = Some(client);
                }
            }
            let live = |client: ClientId| ids.contains(&client) || gone == Some(client);
            for (client, key) in fx.done.drain(..) {
                prop_assert!(live(client), "told to one that is gone");
                models.get_mut(&client).expect("a model").open.remove(&key.raw());
            }
            for (client, key, before) in fx.forget.drain(..) {
                prop_assert!(live(client), "told to one that is gone");
                let model = models.get_mut(&client).expect("a model");
                let hints = model.open.remove(&key.raw()).unwrap_or_default();
                let gone = gone == Some(client);
                prop_assert!(short || gone || dropped == Some((client, before)));
                let stale = |h: &Hint| h.run < before && h.flags & DEMAND == 0;
                prop_assert!(short || gone || hints.iter().all(stale), "{hints:?} before {before}");
            }
            for (client, completion) in fx.completed.drain(..) {
                prop_assert!(live(client), "told to one that is gone");
                models.get_mut(&client).expect("a model").ended += completion.hints;
            }
            if let Some((client, run)) = dropped {
                for entry in queue.entries.values().filter(|e| e.running == 0) {
                    prop_assert!(entry.items().next().is_some());
                    if entry.share(client).is_none() {
                        continue;
                    }
                    let live = |h: &Hint| h.run >= run || h.flags & DEMAND != 0;
                    // Not of the unresolved ones only: what was joined shares the newest run.
                    let mut own = models[&client].seen.iter();
                    prop_assert!(own.any(|h| h.path.as_bytes() == &*entry.path && live(h)));
                }
            }
            if let Some(client) = gone {
                let model = &models[&client];
                prop_assert!(model.open.is_empty(), "left behind: {:?}", model.open);
                prop_assert_eq!(model.accepted, model.ended);
            }
            fx.files.clear();
        }
        prop_assert!(jobs.is_empty() && queue.entries.is_empty() && queue.paths.is_empty());
        prop_assert_eq!((queue.len(), queue.ready()), (0, 0));
        for (client, model) in &models {
            prop_assert!(model.open.is_empty(), "left: {:?}", model.open);
            prop_assert_eq!(model.accepted, model.ended);
            prop_assert!(queue.lanes.members(*client).is_empty());
        }
    }
}
