//! Programs with more memory than their limit: swapped-out pages are read for them, and they see
//! no difference.

use runahead_tests::{
    End, Fixture, Group, Link, Outcome, Run, Seed, available, fixture, number, swap, with_stats,
};

/// Memory of the program, and the limit of its control group, in MiB.
const MEMORY: u64 = 56;
const LIMIT: u64 = 40;
/// Steps of the program for each seed.
const STEPS: &str = "24";
/// Seeds that are drawn; with `RUNAHEAD_FULL=1`, the second.
const SEEDS: (u64, u64) = (3, 40);

fn in_group(fixture: &Fixture, run: &Run) -> Outcome {
    fixture.reset();
    let group = Group::swapping("swap", LIMIT << 20).expect("as was probed");
    let outcome = group.run(run).run();
    assert_eq!(group.killed(), 0, "something was killed for lack of memory: {outcome:?}");
    outcome
}

/// Runs some seeds natively and with `options`, and compares; returns bytes read from swap, and
/// hints used.
fn same(options: &[&str]) -> Option<(u64, u64)> {
    let fixture = available(fixture())?;
    fixture.change(|dir| {
        let bytes: Vec<u8> =
            (0..1 << 18).map(|n: u32| (n.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        std::fs::write(dir.join("given"), bytes).expect("there is room");
    });
    let _swap = available(swap::on(&fixture, 128 << 20))?;
    available(Group::swapping("swap", LIMIT << 20).map(drop))?;
    let mut seeds = Seed::new();
    let (mut fetched, mut used) = (0, 0);
    let count = if runahead_tests::full() { SEEDS.1 } else { SEEDS.0 };
    for _ in 0..count {
        let seed = seeds.below(1 << 40).to_string();
        let args = ["given", &MEMORY.to_string(), &seed, STEPS];
        let run = fixture.run_program("swapped_steps", Link::Dynamic, &args);
        let plain = in_group(&fixture, &run);
        assert_eq!(plain.end, End::Exit(0), "{seed}: {plain:?}");
        let (ahead, stats) = with_stats(&run, options, |run| in_group(&fixture, run));
        assert!(ahead == plain, "{options:?}, seed {seed}: {ahead:?} {plain:?}");
        fetched += number(&stats, "bytes_unswapped");
        used += number(&stats, "hints_used");
    }
    Some((fetched, used))
}

#[test]
fn swapped_pages_are_read_ahead_without_any_difference() {
    let Some((fetched, used)) = same(&[]) else { return };
    assert!(fetched > 8 << 20 && used > 0, "{fetched} bytes, {used} hints were used");
}

/// A fork inherits the pages: a runner waits for those that are swapped out.
#[test]
fn no_swapped_page_is_read_ahead_if_memory_is_forked() {
    let Some((fetched, _)) = same(&["--without", "mirrors"]) else { return };
    assert_eq!(fetched, 0);
}
