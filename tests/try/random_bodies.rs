//! Random bodies (`src/bin/try_body`): each is done directly and as a try, and compared in what its
//! steps returned and in the trees that it left. Commits are stopped as well.

use std::ops::Range;

use runahead_tests::{Seed, available, full, installed, root};

use crate::body_place::{Body, Left, Place, differences};
use crate::full_disks::{SmallDisks, with_own_mounts};
use crate::stopped_commits::{self, Trees};

/// Bodies for each kind of user, in a sample and in full.
const BODIES: (u64, u64) = (25, 500);

/// Steps of a body.
pub const STEPS: u64 = 60;

fn body(seed: u64, left_out: &str) -> Body<'_> {
    Body { seed, steps: STEPS, left_out }
}

/// Differences between what a body leaves directly and as a try; empty without any.
fn differences_left(directly: &Left, committed: &Left) -> String {
    let said = differences("directly", &directly.said, "as a try", &committed.said);
    match committed.is_refused {
        true => said,
        false => {
            said + &differences("left directly", &directly.trees, "committed", &committed.trees)
        }
    }
}

/// Differences between a body done directly and as a try.
fn compare(place: &Place, body: Body) -> String {
    differences_left(&place.run_directly(body), &place.run_and_end(body, "commit"))
}

/// Differences of a body in all ways to run it.
fn compare_all(place: &Place, body: Body) -> String {
    let before = place.prepare(body.seed);
    let undone = place.run_and_end(body, "undo").trees;
    let undone = differences("before", &before, "undone", &undone);
    if !undone.is_empty() {
        return undone;
    }
    let directly = place.run_directly(body);
    let committed = place.run_and_end(body, "commit");
    let left = differences_left(&directly, &committed);
    if !left.is_empty() || committed.is_refused {
        return left;
    }
    let trees = Trees { before: &before, done: &directly.trees };
    stopped_commits::compare(place, body, &trees, committed.calls)
}

/// Fewest steps of a body whose commit differs, as text.
fn fewest_steps(place: &Place, seed: u64) -> String {
    if compare(place, body(seed, "")).is_empty() {
        return String::new();
    }
    let mut left_out: Vec<String> = Vec::new();
    for step in (0..STEPS).rev() {
        left_out.push(step.to_string());
        if compare(place, body(seed, &left_out.join(","))).is_empty() {
            left_out.pop();
        }
    }
    let left_out = left_out.join(",");
    let steps = place.run_directly(body(seed, &left_out)).said;
    let differences = compare(place, body(seed, &left_out));
    format!("of its steps these are enough:\n{steps}\n{differences}")
}

/// Seeds of bodies: those of `RUNAHEAD_BODIES=FROM..TO`, if it is set.
fn given_seeds() -> Option<Range<u64>> {
    let given = std::env::var("RUNAHEAD_BODIES").ok()?;
    let (from, to) = given.split_once("..").expect("RUNAHEAD_BODIES is FROM..TO");
    let number = |text: &str| text.parse().expect("RUNAHEAD_BODIES is FROM..TO");
    Some(number(from)..number(to))
}

/// Runs random bodies, with the state on each of the two file systems by turns.
fn bodies(name: &str, as_user: bool) {
    let places = [false, true]
        .map(|in_memory| Place::new(&format!("{name}-{in_memory}"), as_user, in_memory));
    run_all(|number, seed| {
        let place = &places[number];
        (compare_all(place, body(seed, "")), move || fewest_steps(place, seed))
    });
}

/// Compares bodies in two places: random bodies by turns, until one differs; or all that are given
/// in both, and then names those that differ.
fn run_all<F: Fn() -> String>(compare: impl Fn(usize, u64) -> (String, F)) {
    let Some(given) = given_seeds() else {
        let mut seeds = Seed::new();
        for number in 0..if full() { BODIES.1 } else { BODIES.0 } {
            let seed = seeds.below(1 << 32);
            let (found, fewest_steps) = compare((number % 2) as usize, seed);
            assert!(found.is_empty(), "body {seed}: {found}\n{}", fewest_steps());
        }
        return;
    };
    let mut differing = Vec::new();
    let count = given.end - given.start;
    for (seed, number) in given.flat_map(|seed| [(seed, 0), (seed, 1)]) {
        let (found, fewest_steps) = compare(number, seed);
        if !found.is_empty() {
            let steps = if count == 1 { fewest_steps() } else { String::new() };
            eprintln!("body {seed} in place {number}: {found}\n{steps}");
            differing.push(seed);
        }
    }
    assert!(differing.is_empty(), "{} of {count} bodies differ: {differing:?}", differing.len());
}

#[test]
fn random_bodies_leave_what_they_leave_directly() {
    bodies("own", false);
}

#[test]
fn random_bodies_of_a_user_leave_what_they_leave_directly() {
    if available(root()).is_some() && available(installed("setpriv")).is_some() {
        bodies("user", true);
    }
}

/// Runs random bodies with room for a part of the commit.
fn bodies_on_full_disks(name: &str, as_user: bool) {
    with_own_mounts(|| {
        let disks = [false, true]
            .map(|is_apart| SmallDisks::new(&format!("{name}-{is_apart}"), as_user, is_apart));
        run_all(|number, seed| (disks[number].compare(body(seed, "")), String::new));
    });
}

#[test]
fn random_bodies_are_committed_to_full_disks_or_not_at_all() {
    if available(root()).is_some() && available(installed("setpriv")).is_some() {
        bodies_on_full_disks("own", false);
        bodies_on_full_disks("user", true);
    }
}
