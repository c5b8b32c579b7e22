//! Worlds made from seeds, and what must come of them.

use super::simulated_guesses::EVIDENCE;
use super::*;

const MS: u64 = 1_000_000;

/// Kind of worlds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WorldKind {
    Any,
    /// Worlds without hints, so that there are guesses, on storage so fast that guesses hardly pay.
    Unhinted,
}

fn device(kind: u64, random: &mut Random) -> Device {
    let parallel =
        |us: u64, parallel| Service::Parallel { latency: Duration::from_micros(us), parallel };
    let seek = Duration::from_millis(12);
    let spindles = |spindles| Service::Spindles { spindles, stripe: 64 << 10, seek };
    let (service, servers) = match kind {
        0 => (spindles(1), 1),
        1 => (spindles(4), 4),
        2 => (parallel(5_000, 128), 128),
        3 => (parallel(10_000, 16), 16),
        4 => (parallel(800, 8), 8),
        _ => (parallel(150, 8), 8),
    };
    let jitter = Jitter { fraction: random.below(30) as f64 / 100.0, seed: random.next() };
    Device { model: Model::new(service, jitter), servers, in_order: random.one_in(2) }
}

fn program(
    client: ClientId,
    devices: usize,
    (compute, budget): (u64, u64),
    random: &mut Random,
) -> Program {
    let own: Vec<usize> = match random.one_in(2) {
        true => (0..devices).collect(),
        false => vec![random.below(devices as u64) as usize],
    };
    Program {
        client,
        devices: own,
        length: 300 + random.below(900),
        compute,
        budget,
        position: 0,
        run: 1,
        hinted: 0,
        lead: [0, 50, 400, 4000][random.below(4) as usize],
        strays: [0, 2, 3, 5][random.below(4) as usize],
        sole: false,
        directories: directories(random),
        memory: HashSet::new(),
        arriving: HashMap::new(),
        guessed: HashSet::new(),
        uses: Arc::default(),
        told: SupervisorReport::default(),
        waiting: false,
        ended: 0,
    }
}

/// Returns the directories of a program whose guesses come true, or of one that reads as little of
/// each directory as leads to guesses.
fn directories(random: &mut Random) -> Directories {
    let files = [EVIDENCE, 20, 60][random.below(3) as usize];
    Directories { files, read: if random.one_in(2) { files } else { EVIDENCE } }
}

fn world(seed: u64, plant: Option<PlantedFault>, sort: WorldKind) -> World {
    let mut random = Random(seed);
    let count = 1 + random.below(3);
    let kind = |random: &mut Random| match sort {
        WorldKind::Any => random.below(5),
        WorldKind::Unhinted => 4 + random.below(2),
    };
    let devices: Vec<_> = (0..count).map(|_| device(kind(&mut random), &mut random)).collect();
    let mut scheduler = Scheduler::new(256, 1 << 14);
    let count = 1 + random.below(3);
    let mut programs = Vec::new();
    for _ in 0..count {
        let client = scheduler.queue.open_client();
        let compute = [20_000, 300_000, 3 * MS, 15 * MS][random.below(4) as usize];
        let budget = [1 << 20, 4 << 20, 256 << 20][random.below(3) as usize];
        let told = if plant == Some(PlantedFault::IgnoresBudget) { u64::MAX / 2 } else { budget };
        scheduler.set_pace(client, Pace { compute: Duration::from_nanos(compute), budget: told });
        let mut program = program(client, devices.len(), (compute, budget), &mut random);
        if sort == WorldKind::Unhinted {
            program.lead = 0;
        }
        scheduler.queue.watch_use(client, program.uses.clone());
        programs.push(program);
    }
    let processors = Processors::new(1 + random.below(2), random.below(3));
    World {
        now: 0,
        scheduler,
        devices,
        programs,
        processors,
        events: BinaryHeap::new(),
        pending: Vec::new(),
        checks: Checks::default(),
        plant,
        plain: false,
        fails: [0, 20, 5][random.below(3) as usize],
        random,
    }
}

fn run(seed: u64, plant: Option<PlantedFault>, sort: WorldKind) -> World {
    let mut world = go(world(seed, plant, sort), seed);
    for n in 0..world.programs.len() {
        let mut fx = Effects::default();
        world.scheduler.close_client(world.programs[n].client, &mut fx);
        world.settle(fx);
    }
    let World { checks, scheduler, .. } = &mut world;
    checks.over(scheduler);
    world
}

/// More than any world takes: one in some thousands, whose scheduler asks for a dozen times as
/// much, two million.
const STEPS_MOST: u32 = 40_000_000;

/// Until nothing is left to be done.
fn go(mut world: World, seed: u64) -> World {
    for n in 0..world.programs.len() {
        world.after(0, Event::Target(n));
        world.after(0, Event::Tell(n));
    }
    let mut steps = 0;
    while world.step() {
        steps += 1;
        assert!(steps < STEPS_MOST, "RUNAHEAD_SEED={seed}: it does not end");
    }
    for n in 0..world.programs.len() {
        let program = &world.programs[n];
        assert_eq!(program.position, program.length, "RUNAHEAD_SEED={seed}: a program hangs");
    }
    world
}

/// Number of worlds, from `RUNAHEAD_SEED` on, or a new seed.
const WORLDS: u64 = 100;
/// Prefetches for each server that demands may meet, on average of all worlds.
const MET_MEAN: f64 = 1.5;

#[test]
fn no_world_breaks_a_promise() {
    let seed = crate::test_support::seed();
    let (mut far, mut near, mut demands, mut met, mut all) = (0, 0, 0, 0f64, (0.0, 0));
    for n in 0..WORLDS {
        let seed = seed.wrapping_add(n);
        let checks = run(seed, None, WorldKind::Any).checks;
        let (broken, average) = (&checks.violations, checks.met());
        assert!(broken.is_empty(), "RUNAHEAD_SEED={seed}: {broken:?}, demands met {average:.1}");
        far += checks.begun_far;
        near += checks.begun_near;
        demands += checks.demands;
        let (sum, count) = checks.met_in_all();
        all = (all.0 + sum, all.1 + count);
        met = met.max(average);
    }
    let mean = all.0 / all.1 as f64;
    println!("{near} jobs within the horizon, {far} beyond");
    println!("{demands} demands met {mean:.1} prefetches for each server, at worst {met:.1}");
    assert!(mean < MET_MEAN, "demands met {mean:.1} prefetches for each server");
    assert!(far > 0 && near > 0 && demands > 0, "not all of it has happened: {near} {far}");
}

/// Guesses cost no more than they may, and spare something where they come true.
#[test]
fn no_guesses_cost_too_much() {
    let seed = crate::test_support::seed();
    let (mut used, mut most, mut alive) = (0, 0f64, (0, 0));
    for n in 0..WORLDS {
        let seed = seed.wrapping_add(n);
        let World { checks, processors, programs, .. } = run(seed, None, WorldKind::Unhinted);
        let (broken, part) = (&checks.violations, checks.account_most);
        assert!(broken.is_empty(), "RUNAHEAD_SEED={seed}: {broken:?}, {part:.2} of what they may");
        used += checks.account.used;
        most = most.max(part);
        if processors.contention() == 0.0 && programs.iter().all(|p| p.directories.are_read()) {
            alive = (alive.0 + u64::from(checks.account.used > 0), alive.1 + 1);
        }
    }
    println!("{used} guesses were used, and cost at most {most:.2} of what they might");
    let (some, all) = alive;
    println!("where guesses come true and processors are idle, in {some} worlds of {all}");
    assert!(
        2 * some >= all && used > 0,
        "guesses that come true were used in {some} worlds of {all}"
    );
}

/// Longest time of a target as a multiple of its time without us: with storage that serves at least
/// so many requests side by side, and with less. Among 2,000 worlds one target in a hundred took
/// more than 1.08 times as long there, two more than 1.2 (1.35: one whose neighbour took 0.3).
/// Where heads move each request more is a seek that delays another until it is known that nothing
/// is to be read ahead, or while another gains: one in a hundred took more than 1.86, the worst
/// 3.1.
const SIDE_BY_SIDE: usize = 8;
const LOSS_MOST: (f64, f64) = (1.6, 4.0);

/// Returns the times of the targets in the world of `seed`, as multiples of their times without us;
/// and true if storage serves requests side by side.
fn losses(seed: u64, plant: Option<PlantedFault>) -> impl Iterator<Item = (f64, bool)> {
    let ends = |world: World| go(world, seed).programs.into_iter().map(|program| program.ended);
    let made = world(seed, plant, WorldKind::Any);
    let beside = |program: &Program| {
        program.devices.iter().all(|&device| made.devices[device].servers >= SIDE_BY_SIDE)
    };
    let beside: Vec<_> = made.programs.iter().map(beside).collect();
    let plain = ends(World { plain: true, ..world(seed, None, WorldKind::Any) });
    let ratios = ends(made).zip(plain).map(|(with, plain)| with as f64 / plain as f64);
    ratios.zip(beside)
}

/// Runs worlds with any device, program and neighbours.
#[test]
fn no_target_loses_more_than_the_bound() {
    let seed = crate::test_support::seed();
    let (mut worst, mut gains) = ((0f64, 0f64), Vec::new());
    for n in 0..WORLDS {
        let seed = seed.wrapping_add(n);
        for (times, beside) in losses(seed, None) {
            let (of_kind, most) = match beside {
                true => (&mut worst.0, LOSS_MOST.0),
                false => (&mut worst.1, LOSS_MOST.1),
            };
            *of_kind = of_kind.max(times);
            assert!(times <= most, "RUNAHEAD_SEED={seed}: a target takes {times:.2} times as long");
            gains.push(times);
        }
    }
    gains.sort_by(f64::total_cmp);
    let median = gains[gains.len() / 2];
    println!("targets take {median:.2} times as long in the median, at worst {worst:.2?}");
    assert!(median < 1.0, "targets take {median:.2} times as long in the median");
}

#[test]
fn the_same_seed_makes_the_same_world() {
    let end = |seed| {
        let world = run(seed, None, WorldKind::Any);
        (world.now, world.checks.demands, world.checks.begun_near, world.checks.longest_wait)
    };
    (1..4).for_each(|seed| assert_eq!(end(seed), end(seed)));
}

/// Every check fails where it should. Most worlds give some plants no occasion (few have a queue
/// that reaches the limit), so that more of them are tried than of those in which nothing is wrong.
#[test]
fn planted_violations_are_found() {
    const TRIED: u64 = 20 * WORLDS;
    let plants = [
        (PlantedFault::IgnoresHorizon, "a hint beyond the horizon was begun on a busy device"),
        (PlantedFault::IgnoresBudget, "more was read ahead than the budget"),
        (PlantedFault::IgnoresLimit, "demands met too many prefetches"),
        (PlantedFault::HintsFirst, "a hint was begun before a demand"),
        (PlantedFault::KeepsCancelled, "a hint was begun that had been given up"),
        (PlantedFault::Silent, "a hint was neither done nor forgotten"),
        (PlantedFault::InventsWaits, "guesses have cost more than they may"),
    ];
    let seed = crate::test_support::seed();
    for (plant, what) in plants {
        let sort =
            if plant == PlantedFault::InventsWaits { WorldKind::Unhinted } else { WorldKind::Any };
        let mut worlds = (0..TRIED).map(|n| run(seed.wrapping_add(n), Some(plant), sort));
        let found = worlds.any(|world| world.checks.violations.contains(what));
        assert!(found, "{plant:?} was not found out");
    }
    let mut worlds = (0..TRIED).map(|n| losses(seed.wrapping_add(n), Some(PlantedFault::ReadsOn)));
    let found =
        worlds.any(|mut targets| targets.any(|(times, beside)| beside && times > LOSS_MOST.0));
    assert!(found, "{:?} was not found out", PlantedFault::ReadsOn);
}
