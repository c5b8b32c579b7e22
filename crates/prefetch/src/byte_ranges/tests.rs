//! Ranges against a model that knows each byte, one unit being a quarter of a chunk.

use proptest::prelude::*;
use runahead_abi::hint_record::{DEMAND, LENGTH_UNKNOWN, STEERS};

use runahead_predict::PIECE_BYTES;

use super::*;
use crate::fair_queue::ClientQueues;

const UNIT: u64 = CHUNK_BYTES / 4;

fn queues() -> ClientQueues {
    let mut queues = ClientQueues::default();
    queues.open(0);
    queues
}

fn tag(run: u32, flags: u32) -> Tag {
    let steers = u32::from(flags & STEERS != 0);
    Tag { run, flags, position: u64::from(run) * 10, hints: 1, steers }
}

/// The module's invariant.
fn check(ranges: &Ranges, order: &ClientQueues) {
    let wants = ranges.wants.iter().map(|(&s, w)| (s, w.end, w.group));
    let pieces = ranges.pieces.iter().map(|(&s, p)| (s, p.end, p.group));
    let mut all: Vec<_> = wants.chain(pieces).collect();
    all.sort_unstable();
    assert!(all.iter().all(|&(start, end, _)| start < end), "an empty range in {all:?}");
    assert!(all.windows(2).all(|w| w[0].1 <= w[1].0), "an overlap in {all:?}");
    let mut parts: HashMap<u64, usize> = HashMap::new();
    all.iter().for_each(|(_, _, group)| *parts.entry(*group).or_default() += 1);
    assert_eq!(parts.len(), ranges.groups.len());
    for (id, group) in &ranges.groups {
        assert_eq!(parts.get(id), Some(&group.parts));
    }
    assert_eq!(order.parts(), ranges.wants.len());
}

fn add(ranges: &mut Ranges, order: &mut ClientQueues, range: Range<u64>, tag: &Tag) -> Added {
    let added = ranges.add(range, tag, &mut order.shelf(0, 0, false));
    check(ranges, order);
    added
}

fn wants(ranges: &Ranges) -> Vec<Range<u64>> {
    ranges.wants.iter().map(|(&start, want)| start..want.end).collect()
}

#[test]
fn ranges_that_touch_or_overlap_become_one() {
    let (mut ranges, mut order) = (Ranges::default(), queues());
    let mut add = |range| add(&mut ranges, &mut order, range, &tag(1, STEERS));
    assert_eq!(add(0..10), Added::New);
    assert_eq!(add(20..30), Added::New);
    assert_eq!(add(10..15), Added::Joined);
    assert_eq!(add(12..25), Added::Joined);
    assert_eq!(add(3..7), Added::Known);
    assert!(wants(&ranges).len() == 1 && ranges.wants[&0].end == 30);
    let cut = ranges.cut(0, PIECE_BYTES, &mut order.shelf(0, 0, false));
    assert_eq!(cut, Some(0..30));
    let (_, groups) = ranges.finish(&(0..30), 30, false);
    let group = groups.first().expect("that was all");
    assert_eq!((group.tag.hints, group.tag.steers, group.bytes), (4, 4, 30));
    assert!(ranges.is_idle());
}

#[test]
fn what_is_being_read_is_not_asked_for_again() {
    let (mut ranges, mut order) = (Ranges::default(), queues());
    add(&mut ranges, &mut order, 0..100, &tag(1, 0));
    ranges.cut(0, PIECE_BYTES, &mut order.shelf(0, 0, false));
    assert_eq!(add(&mut ranges, &mut order, 20..80, &tag(2, DEMAND)), Added::Known);
    assert_eq!(add(&mut ranges, &mut order, 50..150, &tag(2, 0)), Added::New);
    assert!(wants(&ranges).len() == 1 && ranges.wants[&100].end == 150);
    let (_, groups) = ranges.finish(&(0..100), 100, false);
    let group = groups.first().expect("the first group is over");
    assert_eq!((group.tag.run, group.tag.flags), (2, DEMAND));
}

#[test]
fn a_large_range_is_cut_at_multiples_of_a_piece() {
    let (mut ranges, mut order) = (Ranges::default(), queues());
    add(&mut ranges, &mut order, 1000..3 * PIECE_BYTES + 1, &tag(1, 0));
    let (mut at, mut cuts) = (1000, vec![]);
    while let Some(piece) = ranges.cut(at, PIECE_BYTES, &mut order.shelf(0, 0, false)) {
        at = piece.end;
        cuts.push(piece.end);
        check(&ranges, &order);
    }
    let piece = PIECE_BYTES;
    assert_eq!(cuts, [piece, 2 * piece, 3 * piece, 3 * piece + 1]);
    for range in [3 * piece..3 * piece + 1, 1000..piece, 2 * piece..3 * piece] {
        assert!(ranges.finish(&range, 1, false).1.is_empty());
    }
    let (_, groups) = ranges.finish(&(piece..2 * piece), 1, true);
    assert_eq!(groups.first().map(|g| (g.bytes, g.failed)), Some((4, true)));
}

#[test]
fn an_unknown_length_grows_to_the_end_of_a_small_file_only() {
    for (size, expect) in [(5000, 100..5000), (20_000, 100..200)] {
        let (mut ranges, mut order) = (Ranges::default(), queues());
        add(&mut ranges, &mut order, 100..200, &tag(1, LENGTH_UNKNOWN));
        add(&mut ranges, &mut order, 4000..4500, &tag(1, 0));
        add(&mut ranges, &mut order, 30_000..30_001, &tag(1, STEERS));
        let (cut, groups) = ranges.fit(size, 10_000, &mut order.shelf(0, 0, false));
        check(&ranges, &order);
        assert!(cut.len() == 1 && cut[0] == (30_000..30_001));
        assert_eq!(groups.len(), 1);
        assert_eq!(wants(&ranges).first(), Some(&expect));
    }
}

#[test]
fn bytes_that_are_read_for_another_client_are_not_read_again() {
    let (mut ranges, mut order) = (Ranges::default(), queues());
    add(&mut ranges, &mut order, 0..100, &tag(1, 0));
    add(&mut ranges, &mut order, 200..300, &tag(2, 0));
    ranges.claim(&(50..250), &mut order.shelf(0, 0, false));
    check(&ranges, &order);
    assert_eq!(wants(&ranges), [0..50, 250..300]);
    // Read up to byte 220.
    let (pieces, groups) = ranges.finish(&(50..250), 170, false);
    assert_eq!(pieces, [50..100, 200..250]);
    assert!(groups.is_empty(), "both wait for the rest");
    for start in [0, 250] {
        let range = ranges.cut(start, PIECE_BYTES, &mut order.shelf(0, 0, false)).expect("a want");
        let (_, groups) = ranges.finish(&range, 50, false);
        assert_eq!(groups.first().map(|g| g.bytes), Some(if start == 0 { 100 } else { 70 }));
    }
    assert!(ranges.is_idle());
}

#[derive(Clone, Debug)]
enum Op {
    Add(Range<u64>, u32, u32),
    Cut(usize),
    Claim(Range<u64>),
    Finish(usize),
    Drop(u32),
    Fit(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let flags = prop::sample::select(vec![0, 0, STEERS, DEMAND, LENGTH_UNKNOWN]);
    prop_oneof![
        4 => (0u64..60, 1u64..30, 0u32..6, flags)
            .prop_map(|(at, len, run, flags)| Op::Add(at..at + len, run, flags)),
        3 => any::<usize>().prop_map(Op::Cut),
        2 => (0u64..60, 1u64..20).prop_map(|(at, len)| Op::Claim(at..at + len)),
        3 => any::<usize>().prop_map(Op::Finish),
        1 => (0u32..8).prop_map(Op::Drop),
        1 => (0u64..80).prop_map(Op::Fit),
    ]
}

proptest! {
    #![proptest_config(crate::test_support::config(256))]

    /// No unit is lost, none is read twice at a time, and every hint is completed or dropped once.
    #[test]
    fn every_unit_that_is_wanted_is_read_or_given_up(ops in prop::collection::vec(op(), 1..120)) {
        let (mut ranges, mut order) = (Ranges::default(), queues());
        let mut open: std::collections::BTreeSet<u64> = Default::default();
        let (mut accepted, mut ended) = (0, 0);
        let ops = ops.into_iter().chain((0..400).map(|n| if n % 2 == 0 { Op::Cut(0) } else { Op::Finish(0) }));
        for op in ops {
            let mut shelf = order.shelf(0, 0, false);
            match op {
                Op::Add(units, run, flags) => {
                    let range = units.start * UNIT..units.end * UNIT;
                    if ranges.add(range, &tag(run, flags), &mut shelf) != Added::Known {
                        accepted += 1;
                    }
                    open.extend(units);
                }
                Op::Cut(n) => {
                    let starts: Vec<u64> = ranges.wants.keys().copied().collect();
                    if let Some(start) = starts.get(n % starts.len().max(1)) {
                        let piece = ranges.cut(*start, PIECE_BYTES, &mut shelf).expect("a want");
                        prop_assert!(piece.end - piece.start <= PIECE_BYTES);
                    }
                }
                Op::Claim(units) => {
                    // Workers read disjoint ranges, so a claim never meets a piece.
                    let range = units.start * UNIT..units.end * UNIT;
                    if ranges.pieces_at(&range).next().is_none() {
                        ranges.claim(&range, &mut shelf);
                        prop_assert!(ranges.wants_at(&range, false).is_empty());
                    }
                }
                Op::Finish(n) => {
                    let starts: Vec<u64> = ranges.pieces.keys().copied().collect();
                    if let Some(&start) = starts.get(n % starts.len().max(1)) {
                        let end = ranges.pieces[&start].end;
                        (start / UNIT..end / UNIT).for_each(|unit| assert!(open.remove(&unit)));
                        let (pieces, groups) = ranges.finish(&(start..end), 1, false);
                        prop_assert!(pieces.len() == 1 && pieces[0] == (start..end));
                        ended += groups.iter().map(|g| g.tag.hints).sum::<u32>();
                    }
                }
                Op::Drop(run) => {
                    let (dropped, groups) = ranges.drop_stale(Some(run), &mut shelf);
                    for unit in dropped.iter().flat_map(|r| r.start / UNIT..r.end / UNIT) {
                        prop_assert!(open.remove(&unit));
                    }
                    for group in &groups {
                        prop_assert!(group.tag.run < run && group.tag.flags & DEMAND == 0);
                        ended += group.tag.hints;
                    }
                    for want in ranges.wants.values() {
                        let tag = ranges.groups[&want.group].tag;
                        prop_assert!(tag.run >= run || tag.flags & DEMAND != 0);
                    }
                }
                Op::Fit(size) => {
                    let (cut, groups) = ranges.fit(size * UNIT, 40 * UNIT, &mut shelf);
                    for unit in cut.iter().flat_map(|r| r.start / UNIT..r.end / UNIT) {
                        prop_assert!(open.remove(&unit) && unit >= size);
                    }
                    // What it extended is wanted from now on.
                    open.extend(wants(&ranges).iter().flat_map(|r| r.start / UNIT..r.end / UNIT));
                    ended += groups.iter().map(|g| g.tag.hints).sum::<u32>();
                }
            }
            check(&ranges, &order);
            for chunk in 0..30 {
                let units = chunk * 4..chunk * 4 + 4;
                let work = units.into_iter().any(|unit| open.contains(&unit));
                prop_assert_eq!(ranges.has_work_in(ChunkIndex(chunk)), work);
            }
        }
        prop_assert!(ranges.is_idle() && open.is_empty());
        prop_assert_eq!(accepted, ended);
    }
}
