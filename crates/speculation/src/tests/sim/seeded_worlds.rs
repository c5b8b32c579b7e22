//! Worlds made from seeds, and what must hold in them.

use super::program::Sort;
use super::simulated_world::{Counts, DEADLOCK, Plant, World};

/// Number of worlds, from seed `RUNAHEAD_SEED` or a new one on; thirty times as many with
/// `RUNAHEAD_FULL`.
const WORLDS: u64 = 2000;

fn worlds() -> u64 {
    if std::env::var_os("RUNAHEAD_FULL").is_some() { 30 * WORLDS } else { WORLDS }
}

fn run(seed: u64, plant: Option<Plant>, sort: Sort, kills: bool) -> World {
    let mut world = World::new(seed, plant, sort, kills);
    world.run();
    world.recycle_session();
    world
}

/// True if the network ends without predictions when each read asks only for what it needs. With
/// small pipes, a process that writes to two of them may deadlock by itself.
fn ends(seed: u64, sort: Sort) -> bool {
    let mut world = World::new(seed, None, sort, false);
    (world.odds[0], world.is_exact) = (0, true);
    world.run();
    world.violations.is_empty()
}

/// Runs all worlds and returns the sums of their counts.
fn run_all(sort: Sort, kills: bool) -> Counts {
    let seed = runahead_harness::seed();
    let (mut counts, mut longest, mut stood) = (Counts::default(), 0, 0);
    for n in 0..worlds() {
        let seed = seed.wrapping_add(n);
        let mut world = run(seed, None, sort, kills);
        let violations = &world.violations;
        let stands = violations.contains(DEADLOCK) && !ends(seed, sort);
        stood += u64::from(stands);
        let is_right = violations.is_empty() || stands;
        assert!(is_right, "RUNAHEAD_SEED={seed}: {violations:?} {:?}", world.counts);
        longest = longest.max(world.counts.steps);
        let more = world.counts.all().map(|count| *count);
        counts.all().into_iter().zip(more).for_each(|(sum, more)| *sum += more);
    }
    std::println!(
        "in {} worlds, of which {stood} deadlock without predictions, the longest of {longest} steps: {counts:?}",
        worlds()
    );
    counts
}

#[test]
fn speculation_does_not_change_any_output() {
    let mut counts = Counts { killed: 1, ..run_all(Sort::Any, false) };
    let all = counts.all().into_iter().all(|count| *count > 0);
    assert!(all, "some events never happened: {counts:?}");
}

/// Effects of a killed process are right so far, and all others end.
#[test]
fn the_other_processes_survive_a_kill() {
    assert!(run_all(Sort::Trees, true).killed > 0);
}

#[test]
fn the_same_seed_makes_the_same_world() {
    let end = |seed| {
        let world = run(seed, None, Sort::Any, seed.is_multiple_of(2));
        let effects = world.processes.into_iter().map(|process| process.effects);
        (world.counts.steps, effects.collect::<std::vec::Vec<_>>())
    };
    (1..20).for_each(|seed| assert_eq!(end(seed), end(seed)));
}

/// Each rule's check finds its violation.
#[test]
fn planted_violations_are_found() {
    const TRIED: u64 = 40_000;
    let wrong = "the output is wrong";
    let early = "an effect was seen before its causes";
    let plants = [
        (Plant::DoesNotDepend, wrong),
        (Plant::ReadsWithOtherDependencies, wrong),
        (Plant::ReadsFromBelow, wrong),
        (Plant::ReadsTailBeforePipe, wrong),
        (Plant::CommitsOnlyAtEndOfRelease, DEADLOCK),
        (Plant::CommitsBeforeRelease, early),
        (Plant::HidesRollback, DEADLOCK),
        (Plant::KeepsTail, wrong),
        (Plant::DoneBeforeRelease, early),
        (Plant::PokesNoDependent, DEADLOCK),
        (Plant::PokesReadersOnly, DEADLOCK),
        (Plant::SharesAfterUnshared, wrong),
        (Plant::CommitsOutOfOrder, wrong),
        (Plant::NeverStopsReading, "a tail or held file is left"),
        (Plant::StaysDependent, "a speculation is left"),
    ];
    let seed = runahead_harness::seed();
    for (plant, what) in plants {
        let sort = if plant == Plant::ReadsFromBelow { Sort::Forks } else { Sort::Any };
        let mut seeds = (0..TRIED).map(|n| seed.wrapping_add(n));
        let found = seeds.position(|seed| {
            let world = run(seed, Some(plant), sort, false);
            world.violations.contains(what) && (what != DEADLOCK || ends(seed, sort))
        });
        let found = found.unwrap_or_else(|| panic!("{plant:?} was not found"));
        std::println!("{plant:?} is found in world {found}");
    }
}
