//! Worlds made from seeds, and what must come of them.

use super::world::{Counts, Plant, STANDS, World};

/// So many worlds, from `RUNAHEAD_SEED` on, or a new seed; with `RUNAHEAD_FULL`, thirty times as many.
const WORLDS: u64 = 2000;

fn worlds() -> u64 {
    if std::env::var_os("RUNAHEAD_FULL").is_some() { 30 * WORLDS } else { WORLDS }
}

fn run(seed: u64, plant: Option<Plant>, kills: bool) -> World {
    let mut world = World::new(seed, plant, kills);
    world.go();
    world
}

/// Whether the network comes to its end where nothing is predicted, and nobody reads more than it needs: with pipes as small as they
/// are, one in which somebody writes to two may wait for ever by itself.
fn ends(seed: u64) -> bool {
    let mut world = World::new(seed, None, false);
    (world.odds[0], world.is_exact) = (0, true);
    world.go();
    world.violations.is_empty()
}

/// Runs these worlds; how often what has happened in all of them.
fn run_all(kills: bool) -> Counts {
    let seed = runahead_harness::seed();
    let (mut counts, mut longest, mut stood) = (Counts::default(), 0, 0);
    for n in 0..worlds() {
        let seed = seed.wrapping_add(n);
        let mut world = run(seed, None, kills);
        let violations = &world.violations;
        let stands = violations.contains(STANDS) && !ends(seed);
        stood += u64::from(stands);
        let is_right = violations.is_empty() || stands;
        assert!(is_right, "RUNAHEAD_SEED={seed}: {violations:?} {:?}", world.counts);
        longest = longest.max(world.counts.steps);
        let more = world.counts.all().map(|count| *count);
        counts.all().into_iter().zip(more).for_each(|(sum, more)| *sum += more);
    }
    std::println!(
        "in {} worlds, of which {stood} stand still by themselves, the longest of {longest} steps: {counts:?}",
        worlds()
    );
    counts
}

#[test]
fn no_world_tells_speculation_from_none() {
    let mut counts = Counts { killed: 1, ..run_all(false) };
    let all = counts.all().into_iter().all(|count| *count > 0);
    assert!(all, "not all of it has happened: {counts:?}");
}

/// What one that is killed has put out by then is right, and all others come to their end.
#[test]
fn who_is_killed_takes_nobody_along() {
    assert!(run_all(true).killed > 0);
}

#[test]
fn the_same_seed_makes_the_same_world() {
    let end = |seed| {
        let world = run(seed, None, seed.is_multiple_of(2));
        let effects = world.processes.into_iter().map(|process| process.effects);
        (world.counts.steps, effects.collect::<std::vec::Vec<_>>())
    };
    (1..20).for_each(|seed| assert_eq!(end(seed), end(seed)));
}

/// Every check fails where it should.
#[test]
fn planted_violations_are_found() {
    const TRIED: u64 = 4000;
    let wrong = "what was put out is wrong";
    let early = "something was seen before what it follows from";
    let plants = [
        (Plant::DependsOnNothing, wrong),
        (Plant::TakesWithOthers, wrong),
        (Plant::TakesFromBelow, wrong),
        (Plant::ReadsFromBehind, wrong),
        (Plant::NeverPasses, STANDS),
        (Plant::PassesAtOnce, early),
        (Plant::SaysNothing, STANDS),
        (Plant::SaysLate, STANDS),
        (Plant::KeepsTail, wrong),
        (Plant::DoneBeforeRelease, early),
        (Plant::TellsNobody, STANDS),
        (Plant::TellsReadersOnly, STANDS),
        (Plant::ShowsBehindUnseen, wrong),
        (Plant::CommitsOutOfOrder, wrong),
        (Plant::NeverLeaves, "something is left of what was written"),
        (Plant::StaysDependent, "a speculation is left"),
        (Plant::Forgets, STANDS),
    ];
    let seed = runahead_harness::seed();
    for (plant, what) in plants {
        let mut seeds = (0..TRIED).map(|n| seed.wrapping_add(n));
        let found = seeds.position(|seed| {
            let world = run(seed, Some(plant), false);
            world.violations.contains(what) && (what != STANDS || ends(seed))
        });
        let found = found.unwrap_or_else(|| panic!("{plant:?} was not found out"));
        std::println!("{plant:?} is found out in world {found}");
    }
}

#[test]
#[ignore]
fn debug() {
    let seed = runahead_harness::seed();
    let world = run(seed, None, std::env::var_os("KILLS").is_some());
    std::println!("{:?} {:?}", world.violations, world.network);
    for (n, p) in world.processes.iter().enumerate() {
        std::println!(
            "{n}: sleep {:?} doing {:?} ended {} open {:?} next {:?} held {:?} alive {}",
            p.sleep, p.doing, p.has_ended,
            p.open.iter().map(|o| (o.id, o.depends_on, world.session.table.status(o.id), world.session.table.came(o.id), o.held)).collect::<std::vec::Vec<_>>(),
            p.state.next(&world.network.programs[n]),
            p.held.iter().map(|h| (h.effect.to, h.effect.bytes.len(), h.shown)).collect::<std::vec::Vec<_>>(),
            crate::Host::is_alive(&p.seat, p.seat.this)
        );
    }
    for (n, c) in world.channels.iter().enumerate() {
        std::println!("pipe {n} {} {}", c.bytes.len(), c.is_closed);
    }
}
