//! The queue models in virtual time, against hand-made cases and a direct count of who is in
//! service when.

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn slots(latency_ms: u64, parallel: u32) -> Model {
    let service = Service::Parallel { latency: Duration::from_millis(latency_ms), parallel };
    Model::new(service, Jitter::NONE)
}

fn array(spindles: u32, stripe: u64) -> Model {
    let seek = Duration::from_millis(12);
    Model::new(Service::Spindles { spindles, stripe, seek }, Jitter::NONE)
}

fn block(index: u64) -> Access {
    Access::Data { offset: index * 4096, len: 4096 }
}

#[test]
fn parallel_requests_overlap_and_the_rest_queue_in_order() {
    let mut model = slots(5, 2);
    let done: Vec<u64> = (0..5).map(|i| model.submit(0, block(i))).collect();
    assert_eq!(done, [5 * MS, 5 * MS, 10 * MS, 10 * MS, 15 * MS]);
    assert_eq!(model.in_service(0), 2);
    assert_eq!(model.in_service(15 * MS), 0);
    assert_eq!(model.submit(20 * MS, block(9)), 25 * MS);
}

#[test]
fn dependent_requests_pay_the_latency_each() {
    let mut model = slots(5, 128);
    let end = (0..10).fold(0, |now, i| model.submit(now, block(i)));
    assert_eq!(end, 50 * MS);
}

#[test]
fn spindles_work_in_parallel_and_each_serves_one_at_a_time() {
    let stripe = 65536;
    let mut model = array(4, stripe);
    let at = |i: u64| Access::Data { offset: i * stripe, len: 4096 };
    // One request for each spindle, then a second for spindle 0, elsewhere on it.
    for i in 0..4 {
        assert_eq!(model.submit(0, at(i)), 12 * MS);
    }
    assert_eq!(model.in_service(0), 4);
    assert_eq!(model.submit(0, at(8)), 24 * MS);
    assert_eq!(model.submit(0, Access::Control), 24 * MS);
}

#[test]
fn a_continued_request_pays_the_transfer_only() {
    let mut model = array(1, 65536);
    let first = model.submit(0, block(10));
    assert_eq!(first, 12 * MS);
    let transfer = 4096 * 1_000_000_000 / SEQUENTIAL_BYTES_PER_SECOND;
    assert_eq!(model.submit(first, block(11)), first + transfer);
    assert_eq!(model.submit(first + transfer, block(11)), first + transfer + 12 * MS);
}

#[test]
fn a_request_is_cut_at_stripes_and_continues_across_them() {
    let cut: Vec<Piece> = pieces(100, 400, 128, 2).collect();
    let expect = |spindle, address, len| Piece { spindle, address, len };
    assert_eq!(
        cut,
        [expect(0, 100, 28), expect(1, 0, 128), expect(0, 128, 128), expect(1, 128, 116),]
    );
    // Spindle 0 goes on from address 128 and spindle 1 likewise: one seek each.
    let mut model = array(2, 128);
    let done = model.submit(0, Access::Data { offset: 100, len: 400 });
    assert!((12 * MS..12 * MS + 10_000).contains(&done), "{done}");
}

#[test]
fn jitter_repeats_with_its_seed_and_stays_within_bounds() {
    let run = |seed| -> Vec<u64> {
        let service = Service::Parallel { latency: Duration::from_millis(5), parallel: 1000 };
        let mut model = Model::new(service, Jitter { fraction: 0.2, seed });
        (0..1000).map(|i| model.submit(0, block(i))).collect()
    };
    let times = run(7);
    assert_eq!(times, run(7));
    assert_ne!(times, run(8));
    assert!(times.iter().all(|t| (4 * MS..=6 * MS).contains(t)));
    let mean = times.iter().sum::<u64>() / 1000;
    assert!((49 * MS / 10..51 * MS / 10).contains(&mean), "mean {mean} ns");
}

proptest! {
    /// Never more than `parallel` in service, no slot idle while a request waits, first come first
    /// served.
    #[test]
    fn slots_bound_parallelism_and_lose_no_time(
        parallel in 1u32..9,
        gaps in proptest::collection::vec(0u64..8_000_000, 1..200),
    ) {
        let latency = 5 * MS;
        let mut model = slots(5, parallel);
        let mut now = 0;
        let mut served: Vec<(u64, u64)> = Vec::new();
        for gap in gaps {
            now += gap;
            let done = model.submit(now, Access::Control);
            let start = done - latency;
            prop_assert!(start >= now);
            if let Some((last, _)) = served.last() {
                prop_assert!(start >= *last, "overtaken");
            }
            let running = |t: u64| served.iter().filter(|(s, d)| *s <= t && t < *d).count();
            prop_assert!(running(start) < parallel as usize, "too many in service");
            if start > now {
                prop_assert_eq!(running(start - 1), parallel as usize, "a slot was idle");
            }
            served.push((start, done));
            prop_assert!(model.in_service(now) <= u64::from(parallel));
        }
    }

    /// Pieces cover the range exactly once, and the mapping to spindles loses nothing.
    #[test]
    fn pieces_partition_the_range(
        offset in 0u64..1_000_000,
        len in 0u64..500_000,
        stripe in 1u64..70_000,
        spindles in 1usize..9,
    ) {
        let mut at = offset;
        for piece in pieces(offset, len, stripe, spindles) {
            prop_assert!(piece.len > 0 && piece.len <= stripe);
            let block = piece.address / stripe * spindles as u64 + piece.spindle as u64;
            prop_assert_eq!(block * stripe + piece.address % stripe, at);
            at += piece.len;
        }
        prop_assert_eq!(at, offset + len);
    }
}
