//! Random operations on a queue, against a model of what must become of each log key.

use runahead_estimators::access_identity::CHUNK_BYTES;
use runahead_predict::{GuessTask, Outcome};

use super::*;

/// Returns the objects of the four paths of the random test.
fn class(path: &str) -> Result<Found<()>, StepFailure> {
    match path {
        "/a" => found(Class::File { size: 5 * PIECE_BYTES }),
        "/b" => found(Class::File { size: 100 }),
        "/c" => found(Class::Directory),
        "/d" => found(Class::Other),
        "/e" => Err(StepFailure::Answer),
        _ => Err(StepFailure::Ours),
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

/// Returns the result of looking for a file of a program, or into it.
fn report(task: &Task<()>, n: usize) -> Result<Report<()>, StepFailure> {
    let lead = |n: usize| {
        let name = format!("/lib/{}", n % 5).into_bytes();
        FileLead { places: vec![name.clone()].into(), name, role: Role::Linker }
    };
    let located = |path: &[u8]| {
        Box::new(Located {
            path: path.into(),
            file: Arc::new(()),
            bytes: 10,
            parts: vec![(Urgency::Rest, 10..20), (Urgency::Relocate, 20..30)],
            leads: vec![lead(n), lead(n + 1)],
            needs: None,
        })
    };
    match task {
        Task::Find { lead } if n % 8 < 6 => {
            Ok(Report::Found(Some(located(lead.places.first().expect("a place")))))
        }
        Task::Find { .. } if n % 8 == 6 => Ok(Report::Found(None)),
        Task::Find { .. } => Err(StepFailure::Ours),
        _ => Ok(Report::Loaded(10)),
    }
}

fn listing() -> Vec<Name> {
    let name = |name: &str| Name { name: name.as_bytes().into(), inode: 1, directory: false };
    ["a", "g", "h", "i"].map(name).into()
}

/// Clients in the random test.
const CLIENTS: u64 = 3;

fn op() -> impl Strategy<Value = Op> {
    use HintKind::*;
    let kind = prop::sample::select(vec![Lookup, Listing, Link, Data, Data, Data, Program]);
    let path = prop::sample::select(vec!["/a", "/a", "/b", "/c", "/d", "/e", "/f", "/l"]);
    // Programs go by keys of their own.
    let key = |kind, path: &str| format!("{}{path}", if kind == Program { "/p" } else { "" });
    let flags = prop::sample::select(vec![0, 0, NO_FOLLOW, STEERS, DEMAND, LENGTH_UNKNOWN]);
    let range = (0u64..25, 1u64..25)
        .prop_map(|(at, len)| at * CHUNK_BYTES / 2..(at + len) * CHUNK_BYTES / 2);
    let hint = (0..CLIENTS, kind, path, 0u32..6, 0u64..20, flags, range).prop_map(
        move |(client, kind, path, run, position, flags, range)| {
            Op::Submit(client, Hint { kind, path: key(kind, path), run, position, flags, range })
        },
    );
    prop_oneof![8 => hint, 6 => Just(Op::Pop), 8 => any::<usize>().prop_map(Op::End),
        2 => (0..CLIENTS, 0u32..8).prop_map(|(client, run)| Op::Drop(client, run)),
        1 => any::<usize>().prop_map(Op::Replace)]
}

/// State of a client in the random test.
#[derive(Default)]
struct Model {
    /// Unresolved keys, with the hints that want them.
    open: HashMap<u64, Vec<Hint>>,
    seen: Vec<Hint>,
    accepted: u32,
    ended: u32,
}

proptest! {
    #![proptest_config(crate::test_support::config(400))]

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
        let given = ops.len();
        for (n, op) in ops.into_iter().chain(rest).enumerate() {
            if n >= given && jobs.is_empty() && queue.ready() == 0 {
                break;
            }
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
                    let entry = queue.entries.get(&job.entry);
                    let name = entry.map_or("", |e| str::from_utf8(&e.path).expect("text"));
                    (job, name.to_owned())
                })),
                Op::End(_) if jobs.is_empty() => {}
                Op::End(n) => {
                    let (job, name) = jobs.swap_remove(n % jobs.len());
                    match &job.step {
                        Step::Look { follow, .. } => {
                            let link = name == "/l" && !follow;
                            let result = if link { found(Class::Link) } else { class(&name) };
                            short = result.as_ref().is_err_and(|t| *t == StepFailure::Ours);
                            let next = queue.looked(job, (result, true), &mut fx);
                            jobs.extend(next.map(|job| (job, name)));
                        }
                        Step::Program { task, .. } => {
                            let report = report(task, n);
                            short = report.as_ref().is_err_and(|t| *t == StepFailure::Ours);
                            let now = Duration::from_secs(n as u64 % 60);
                            let next = queue.reported(job, report, now, &mut fx);
                            jobs.extend(next.map(|job| (job, name)));
                        }
                        Step::Guess { errand, .. } => {
                            let outcome = match errand {
                                GuessTask::Look { .. } => Outcome::File(Arc::new(()), 100),
                                GuessTask::List { .. } => Outcome::Names(listing()),
                                GuessTask::Browse { .. } | GuessTask::Read { .. } => Outcome::Over,
                                GuessTask::Scan { .. } => Outcome::Tokens(vec![name.as_bytes().into()]),
                            };
                            queue.guessed(job, outcome, &mut fx);
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
            prop_assert!(queue.queues.members(*client).is_empty());
        }
    }
}
