//! Worlds made from seeds, and what must come of them.

use super::host::{Host, Look};
use super::machine::Object;
use super::model;
use super::program::Shape;
use crate::ids::{ObjectId, ProcessId, SpecId};
use crate::plant::Plant;

/// How often something has happened.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub steps: u64,
    pub commits: u64,
    pub failures: u64,
    pub forgotten: u64,
    pub shared: u64,
    pub rolled_back: u64,
    pub revived: u64,
    pub destroyed: u64,
    pub redelivered: u64,
    pub unwaited: u64,
    pub released: u64,
    /// Output of processes that had exited.
    pub released_late: u64,
    pub dropped: u64,
    pub exits: u64,
    pub waits: u64,
}

impl Counts {
    fn all(&mut self) -> [&mut u64; 15] {
        let Counts { steps, commits, failures, forgotten, shared, rolled_back, revived, .. } = self;
        let Counts { destroyed, redelivered, unwaited, released, released_late, .. } = self;
        let Counts { dropped, exits, waits, .. } = self;
        [
            steps,
            commits,
            failures,
            forgotten,
            shared,
            rolled_back,
            revived,
            destroyed,
            redelivered,
            unwaited,
            released,
            released_late,
            dropped,
            exits,
            waits,
        ]
    }

    fn add(&mut self, mut other: Counts) {
        self.all().into_iter().zip(other.all()).for_each(|(sum, more)| *sum += *more);
    }
}

impl Host {
    fn any_process(&mut self) -> Option<ProcessId> {
        let all: Vec<_> = self.machine.processes.keys().copied().collect();
        self.random.choice(all)
    }

    fn any_open(&mut self) -> Option<SpecId> {
        let all: Vec<_> = self.specs.keys().copied().collect();
        self.random.choice(all)
    }

    /// Signals that may be delivered now.
    fn signals(&self) -> Vec<(ProcessId, ObjectId)> {
        let waiting = self.machine.objects.iter().filter_map(|(id, object)| match object {
            Object::Signal { to, delivered: false, .. } => Some((*to, *id)),
            _ => None,
        });
        let certain = |object| !self.certain_signals || !self.tracker.is_speculative(object);
        waiting.filter(|(_, object)| certain(*object)).collect()
    }

    /// A step of anything that can make one; false if nothing can.
    fn step_any(&mut self) -> bool {
        let mut all: Vec<_> = self.machine.processes.keys().map(|p| (*p, None)).collect();
        all.extend(self.signals().into_iter().map(|(to, signal)| (to, Some(signal))));
        self.random.shuffle(&mut all);
        all.into_iter().any(|(process, signal)| self.step(process, signal))
    }

    /// Until no process can go on and nothing is open, or something is wrong.
    fn go(&mut self) {
        let slow = self.random.u64(1..200);
        let resolves = self.random.u32(2..12);
        while self.violations.is_empty() {
            self.counts.steps += 1;
            self.now += std::time::Duration::from_millis(self.random.u64(..slow));
            if self.counts.steps > MOST_STEPS {
                self.violations.insert("it does not end");
            }
            if self.random.u32(..resolves) == 0
                && let Some(spec) = self.any_open()
            {
                self.resolve(spec);
                continue;
            }
            let went = match self.random.u32(..6) {
                0 => {
                    let signals = self.signals();
                    let signal = self.random.choice(signals);
                    signal.is_some_and(|(to, signal)| self.step(to, Some(signal)))
                }
                _ => self.any_process().is_some_and(|process| self.step(process, None)),
            };
            if went || self.step_any() {
                continue;
            }
            match self.any_open() {
                Some(spec) => self.resolve(spec),
                None => break,
            }
        }
    }
}

fn run(seed: u64, plant: Option<Plant>, look: Look) -> Host {
    let mut random = fastrand::Rng::with_seed(seed);
    let shape = Shape::new(seed, &mut random);
    let mut host = Host::new(shape, random, look);
    host.tracker.plant(plant);
    host.go();
    if host.violations.is_empty() {
        host.check_end();
        if let Some(wrong) = model::compare(&host) {
            host.violations.insert(wrong);
        }
    }
    host
}

/// Worlds in which a planted violation must be found out.
const PLANTED: u64 = 4_000;
/// Steps and resolutions after which a world is taken never to end.
const MOST_STEPS: u64 = 40_000;
/// So many worlds, from `RUNAHEAD_SEED` on, or a new seed; with `RUNAHEAD_FULL`, thirty times as
/// many.
const WORLDS: u64 = 300;

#[test]
fn no_world_tells_speculation_from_none() {
    let seed = runahead_harness::seed();
    let (mut counts, mut longest) = (Counts::default(), 0);
    let worlds = if std::env::var_os("RUNAHEAD_FULL").is_some() { 30 * WORLDS } else { WORLDS };
    for n in 0..worlds {
        let seed = seed.wrapping_add(n);
        let host = run(seed, None, Look::Throughout);
        let violations = &host.violations;
        assert!(violations.is_empty(), "RUNAHEAD_SEED={seed}: {violations:?}");
        longest = longest.max(host.counts.steps);
        counts.add(host.counts);
    }
    println!("in {worlds} worlds, the longest of {longest} steps: {counts:?}");
    let all = counts.all().into_iter().all(|count| *count > 0);
    assert!(all, "not all of it has happened: {counts:?}");
}

#[test]
fn the_same_seed_makes_the_same_world() {
    let end = |seed| {
        let host = run(seed, None, Look::Throughout);
        (host.clock, host.now, host.machine, host.screen)
    };
    (1..20).for_each(|seed| assert_eq!(end(seed), end(seed)));
}

/// The first world of which the planted violation makes `wrong`.
fn find(plant: Plant, look: Look, wrong: impl Fn(&Host) -> bool) {
    let seed = runahead_harness::seed();
    let mut worlds = (0..PLANTED).map(|n| run(seed.wrapping_add(n), Some(plant), look));
    let found = worlds.position(|host| wrong(&host));
    let found = found.unwrap_or_else(|| panic!("{plant:?} was not found out: {look:?}"));
    println!("{plant:?} is found out in world {found}: {look:?}");
}

/// Every check fails where it should.
#[test]
fn planted_violations_are_found() {
    let plants = [
        (Plant::ChangesBlindly, "dependencies are not what follows from the history"),
        (Plant::ChangesUnmarked, "what is speculative is not what follows from the history"),
        (Plant::ReleasesEarly, "output was released that depends on an open speculation"),
        (Plant::ReleasesShared, "output was seen that was taken back"),
        (Plant::UndoesForwards, "a change could not be undone"),
        (Plant::KeepsChildren, "something depends on what has failed"),
        (Plant::SharesAfterChange, "dependencies are not what follows from the history"),
        (Plant::SharesOld, "a checkpoint was shared that is old, or not there"),
        (Plant::KeepsCreated, "a speculation has outlived the work that created it"),
        (Plant::SplitsShared, "other speculations were forgotten than were created in vain"),
        (Plant::ForgetsExited, "a process was taken back that had gone"),
        (Plant::GoesTooFar, "other speculations were forgotten than were created in vain"),
        (Plant::TellsNobody, "not all were told that they depend on nothing"),
        (Plant::KeepsCheckpoints, "a checkpoint is left"),
    ];
    for (plant, what) in plants {
        find(plant, Look::Throughout, |host| host.violations.contains(what));
    }
}

/// Whatever else holds, the end differs from that without speculation.
#[test]
fn planted_violations_are_seen_in_the_end() {
    let plants = [
        Plant::ChangesBlindly,
        Plant::ChangesUnmarked,
        Plant::ReleasesEarly,
        Plant::ReleasesShared,
        Plant::UndoesForwards,
        Plant::KeepsChildren,
        Plant::SharesAfterChange,
        // Rarely, as it takes three: one who has seen the process, another who has changed what
        // the process saw, and a right prediction that shares its checkpoint with a wrong one.
        Plant::SharesAfterSeen,
    ];
    for plant in plants {
        find(plant, Look::AtTheEnd, |host| {
            !host.violations.is_empty() && host.counts.steps <= MOST_STEPS
        });
    }
}
