//! Tests of cancellation: what a process has disclosed by itself stays until it is taken back, and
//! then goes.
//!
//! [`check`] is the detector: it drives a queue at random and looks at what is handed to workers.
//! It is run over the queue as it is, and over one whose cancellation does nothing, which it has to
//! notice.

use hashbrown::HashSet;
use runahead_abi::hint_record::{DISCLOSED, DISCLOSURE};
use runahead_estimators::access_identity::CHUNK_BYTES;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Submit(Hint),
    /// A worker comes, and is done at once.
    Work,
    Stray(u32),
    Cancel,
}

const FILES: [&str; 3] = ["/a", "/b", "/c"];
const SIZE: u64 = 64 * CHUNK_BYTES;

fn op() -> impl Strategy<Value = Op> {
    let run = prop::sample::select(vec![1u32, 2, DISCLOSED, DISCLOSED]);
    let range =
        (0u64..60, 1u64..4).prop_map(|(at, len)| at * CHUNK_BYTES..(at + len) * CHUNK_BYTES);
    let flags = prop::sample::select(vec![0, STEERS, DISCLOSURE]);
    let hint = (prop::sample::select(FILES.to_vec()), run, range, flags, 0u64..20).prop_map(
        |(path, run, range, flags, position)| {
            let flags = if run == DISCLOSED { DISCLOSURE } else { flags };
            Op::Submit(Hint { run, range, flags, position, ..hint(HintKind::Data, path) })
        },
    );
    prop_oneof![8 => hint, 5 => Just(Op::Work), 1 => (1u32..4).prop_map(Op::Stray),
        1 => Just(Op::Cancel)]
}

type Cancel = fn(&mut Queue<()>, &mut Effects<()>) -> usize;

/// Clients that want a chunk of a file.
#[derive(Default)]
struct Wanted {
    disclosed: HashSet<(String, u64)>,
    by_shadows: HashSet<(String, u64)>,
}

fn check(ops: &[Op], cancel: Cancel) -> Result<(), String> {
    let (mut queue, mut fx) = new();
    let mut wanted = Wanted::default();
    let mut read: HashSet<(String, u64)> = HashSet::new();
    let drain = std::iter::repeat_n(&Op::Work, 5000);
    for op in ops.iter().chain(drain) {
        match op {
            Op::Submit(hint) => {
                let chunks = chunks(&hint.range).map(|chunk| (hint.path.clone(), chunk.0));
                match hint.run == DISCLOSED {
                    true => wanted.disclosed.extend(chunks),
                    false => wanted.by_shadows.extend(chunks),
                }
                hint.submit(&mut queue, &mut fx);
            }
            Op::Work => {
                let Some(mut job) = queue.pop() else { continue };
                if let Step::Look { .. } = job.step {
                    match queue.looked(job, (found(Class::File { size: SIZE }), true), &mut fx) {
                        Some(next) => job = next,
                        None => continue,
                    }
                }
                let Step::Read { range, .. } = job.step.clone_read() else { continue };
                let path = String::from_utf8_lossy(&queue.entries[&job.entry].path).into_owned();
                for chunk in chunks(&range).map(|chunk| (path.clone(), chunk.0)) {
                    if !wanted.disclosed.contains(&chunk) && !wanted.by_shadows.contains(&chunk) {
                        return Err(format!("{chunk:?} was taken back, and is read"));
                    }
                    read.insert(chunk);
                }
                queue.finish(job, Ok(range.end - range.start), &mut fx);
            }
            // Those of shadows may stay: what touches a disclosed one is read together with it.
            Op::Stray(run) => _ = queue.drop_stale(A, Some(*run), &mut fx),
            Op::Cancel => {
                cancel(&mut queue, &mut fx);
                wanted.disclosed.clear();
            }
        }
        fx.forget.clear();
        fx.done.clear();
        fx.completed.clear();
        fx.files.clear();
    }
    if queue.len() != 0 || !queue.entries.is_empty() {
        return Err("something is left".into());
    }
    for (path, chunk) in &wanted.disclosed {
        if !read.contains(&(path.clone(), *chunk)) {
            return Err(format!("chunk {chunk} of {path} was disclosed, and dropped"));
        }
    }
    Ok(())
}

impl Step<()> {
    fn clone_read(&self) -> Step<()> {
        match self {
            Step::Read { file, range } => Step::Read { file: file.clone(), range: range.clone() },
            _ => Step::Link { path: b"/".as_slice().into() },
        }
    }
}

const REAL: Cancel = |queue, fx| queue.cancel(A, DISCLOSED, fx);

proptest! {
    #![proptest_config(crate::test_support::config(400))]

    #[test]
    fn what_is_disclosed_is_read_unless_it_is_taken_back(ops in prop::collection::vec(op(), 1..120)) {
        check(&ops, REAL).map_err(TestCaseError::fail)?;
    }
}

fn disclosed(path: &str, at: u64) -> Op {
    let range = at * CHUNK_BYTES..(at + 1) * CHUNK_BYTES;
    Op::Submit(Hint { run: DISCLOSED, flags: DISCLOSURE, range, ..hint(HintKind::Data, path) })
}

/// The check would notice.
#[test]
fn a_queue_that_ignores_cancellation_is_found_out() {
    let ops = [disclosed("/a", 0), disclosed("/a", 9), disclosed("/b", 3), Op::Work, Op::Cancel];
    assert_eq!(check(&ops, REAL), Ok(()));
    let error = check(&ops, |_, _| 0).expect_err("nothing was cancelled");
    assert!(error.contains("taken back"), "{error}");
    // And one that drops them with the hints of a strayed shadow.
    let strays = [disclosed("/a", 0), Op::Stray(3)];
    assert_eq!(check(&strays, REAL), Ok(()));
    let all = [disclosed("/a", 0), Op::Stray(u32::MAX)];
    let error = check(&all, REAL).expect_err("it was dropped");
    assert!(error.contains("dropped"), "{error}");
}

#[test]
fn what_is_taken_back_is_counted_and_forgotten() {
    let (mut queue, mut fx) = new();
    for op in [disclosed("/a", 0), disclosed("/a", 9), disclosed("/b", 3)] {
        let Op::Submit(hint) = op else { unreachable!() };
        assert_ne!(hint.submit(&mut queue, &mut fx), Submitted::Refused);
    }
    let shadows = hint(HintKind::Data, "/c");
    shadows.submit(&mut queue, &mut fx);
    let later = Hint { run: DISCLOSED + 1, flags: DISCLOSURE, ..hint(HintKind::Data, "/d") };
    later.submit(&mut queue, &mut fx);
    assert_eq!(queue.drop_stale(A, Some(1), &mut fx), 0);
    assert_eq!(queue.cancel(B, DISCLOSED, &mut fx), 0, "it is not another client's to take back");
    assert_eq!(queue.cancel(A, DISCLOSED, &mut fx), 3);
    let chunk = |path, chunk| {
        hint(HintKind::Data, path).key().chunk(runahead_estimators::ChunkIndex(chunk))
    };
    let forgotten: HashSet<_> =
        fx.forget.iter().map(|(_, key, before)| (key.raw(), *before)).collect();
    for key in [chunk("/a", 0), chunk("/a", 9), chunk("/b", 3)] {
        assert!(forgotten.contains(&(key.raw(), DISCLOSED + 1)), "{forgotten:?}");
    }
    let left: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|j| path(&j).to_owned()).collect();
    assert_eq!(left, ["/c", "/d"]);
}

#[test]
fn a_disclosed_file_of_unknown_length_is_read_to_its_end() {
    for (size, expected) in
        [(3 * PIECE_BYTES, 3 * PIECE_BYTES), (4 << 30, runahead_predict::HINT_MAX_BYTES)]
    {
        for look_first in [false, true] {
            let (mut queue, mut fx) = new();
            let whole = Hint {
                run: DISCLOSED,
                flags: LENGTH_UNKNOWN | DISCLOSURE,
                range: 0..CHUNK_BYTES,
                ..hint(HintKind::Data, "/a")
            };
            let first = if look_first { hint(HintKind::Lookup, "/a") } else { whole.clone() };
            first.submit(&mut queue, &mut fx);
            let look = queue.pop().expect("a lookup");
            if look_first {
                whole.submit(&mut queue, &mut fx);
            }
            let mut next = queue.looked(look, (found(Class::File { size }), true), &mut fx);
            let mut bytes = 0;
            while let Some(job) = next.or_else(|| queue.pop()) {
                let Step::Read { range, .. } = job.step.clone_read() else { panic!("not a read") };
                bytes += range.end - range.start;
                queue.finish(job, Ok(range.end - range.start), &mut fx);
                next = None;
            }
            assert_eq!(bytes, expected);
        }
    }
}

#[test]
fn a_shadow_takes_back_its_own_and_the_target_all() {
    let (mut queue, mut fx) = new();
    let by = |run, path| Hint { run, flags: DISCLOSURE, ..hint(HintKind::Data, path) };
    let all = [by(1, "/a"), by(2, "/b"), by(DISCLOSED, "/c"), hint(HintKind::Data, "/d")];
    all.iter().for_each(|hint| _ = hint.submit(&mut queue, &mut fx));
    assert_eq!(queue.cancel(A, 2, &mut fx), 1);
    assert_eq!(queue.cancel(A, DISCLOSED, &mut fx), 2);
    let left: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|j| path(&j).to_owned()).collect();
    assert_eq!(left, ["/d"]);
}
