//! Random bodies (`src/bin/try_body`) as tries of which some changes are committed or undone by
//! themselves, then the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use runahead_tests::{Seed, available, full, installed, root};

use crate::body_place::{Body, Place};
use crate::random_bodies::STEPS;

/// Bodies for each kind of user and each way, in a sample and in full.
const BODIES: (u64, u64) = (8, 120);

/// Choices that are made of one try.
const CHOICES: u64 = 6;

/// Order of what is done with chosen changes and with the others.
#[derive(Clone, Copy, Debug)]
enum Way {
    CommitAll,
    CommitThenUndo,
    UndoThenCommit,
}

/// State of each name below both directories. Names of one file are not compared in it.
type Tree = BTreeMap<PathBuf, String>;

/// Reads the text of `try_body look`: a line for each name. Without the file's first name and the
/// number of its names, which depend on other names.
fn tree(place: &Place, text: &str) -> Tree {
    let mut roots = [&place.work, &place.other].into_iter();
    let mut root = None;
    let mut tree = Tree::new();
    for line in text.lines().filter(|line| line.starts_with('"')) {
        let end = line[1..].find("\" ").expect("a name ends") + 1;
        let name: String = serde_json::from_str(&line[..=end]).expect("a plain name");
        if name.is_empty() {
            root = roots.next();
        }
        let rest = &line[end + 2..];
        let rest = match rest.strip_prefix("= \"") {
            Some(first) => first.split_once("\" ").expect("a name ends").1,
            None => rest,
        };
        let words: Vec<&str> = rest.split(' ').collect();
        // Mode, two of the owner, size, and the number of names.
        let kept = [&words[..4], &words[5..]].concat().join(" ");
        tree.insert(root.expect("a root comes first").join(name), kept);
    }
    tree
}

/// Paths that a try changes.
fn changes(place: &Place) -> BTreeSet<PathBuf> {
    let text = place.tried(&["status", "--json"]);
    let json = text.lines().next().unwrap_or_default();
    let Ok(status) = serde_json::from_str::<serde_json::Value>(json) else {
        return BTreeSet::new();
    };
    assert_eq!(status["conflicts"], 0, "{status}");
    let changes = status["changes"].as_array().expect("a list");
    changes.iter().map(|change| change["path"].as_str().expect("a path").into()).collect()
}

/// Choices that were made, and what was said about them.
#[derive(Default)]
struct Done {
    said: String,
    /// Paths of the changes at and below what was chosen.
    chosen: BTreeSet<PathBuf>,
    /// Numbers of choices that left a rest, and that were refused.
    counts: [u64; 2],
}

/// Makes choices of the try's changes, and commits or undoes each.
fn choose(place: &Place, random: &mut Seed, task: &str, said: String) -> Done {
    let mut done = Done { said, ..Done::default() };
    for _ in 0..CHOICES {
        let left = changes(place);
        if left.is_empty() {
            break;
        }
        let all: Vec<_> = left.iter().collect();
        let mut paths = Vec::new();
        for _ in 0..=random.below(3) {
            let mut path = all[random.below(all.len() as u64) as usize].as_path();
            while random.below(4) == 0
                && let Some(above) = path.parent()
                && (above.starts_with(&place.work) || above.starts_with(&place.other))
            {
                path = above;
            }
            paths.push(path.to_str().expect("a plain path").to_owned());
        }
        let before = place.look();
        let words: Vec<&str> = paths.iter().map(String::as_str).collect();
        let said = place.tried(&[&[task, "--"], &words[..]].concat());
        done.said += &format!("{task} {words:?}: {said}");
        if said.ends_with("status Some(1)\n") {
            assert!(said.contains("nothing was done: "), "{}", done.said);
            assert_eq!(left, changes(place), "{}", done.said);
            done.counts[1] += 1;
        } else {
            assert!(said.ends_with("status Some(0)\n"), "{}", done.said);
            let is_below = |path: &&PathBuf| paths.iter().any(|root| path.starts_with(root));
            done.chosen.extend(left.iter().filter(is_below).cloned());
            let rest: BTreeSet<_> = left.iter().filter(|path| !is_below(path)).cloned().collect();
            // A copy that was changed only by its second name is no change without that.
            let now = changes(place);
            let is_rest = rest == now || task == "undo" && rest.is_superset(&now);
            assert!(is_rest, "{}{rest:?} and {now:?}", done.said);
            done.counts[0] += u64::from(!rest.is_empty());
        }
        if task == "undo" || said.ends_with("status Some(1)\n") {
            assert_eq!(before, place.look(), "{}", done.said);
        }
    }
    done
}

/// Differences of a tree from what is expected of each name. What neither was changed by the body
/// nor chosen is as before or after it: times of directories, and names of files of other names.
fn differences(
    found: &Tree,
    (before, after): (&Tree, &Tree),
    changed: &BTreeSet<PathBuf>,
    is_after: impl Fn(&Path) -> bool,
) -> String {
    let names: BTreeSet<_> = found.keys().chain(before.keys()).chain(after.keys()).collect();
    let mut text = String::new();
    for name in names {
        let states = [before.get(name), after.get(name)];
        let is_right = match (changed.contains(name), is_after(name)) {
            (true, true) => found.get(name) == states[1],
            (true, false) => found.get(name) == states[0],
            (false, _) => states.contains(&found.get(name)),
        };
        if !is_right {
            text += &format!("{name:?} is {:?}, of {states:?}\n", found.get(name));
        }
    }
    text
}

fn body(seed: u64) -> Body<'static> {
    Body { seed, steps: STEPS, left_out: "" }
}

/// Runs a body, and makes choices of its changes. Returns the numbers of choices that left a rest,
/// and that were refused.
fn check(place: &Place, seed: u64, choices: u64, way: Way) -> [u64; 2] {
    place.prepare(seed);
    let before = place.look();
    // Whether a whole commit leaves what the body leaves directly is looked at elsewhere.
    let once = place.run_tried(body(seed));
    let changed = changes(place);
    let text = if changed.is_empty() { String::new() } else { place.tried(&["commit"]) };
    if !text.ends_with("status Some(0)\n") {
        // There was nothing to choose from, or the kernel refuses the commit.
        place.tried(&["undo"]);
        return [0; 2];
    }
    let after = place.look();
    place.prepare(seed);
    assert_eq!((&once, &changed), (&place.run_tried(body(seed)), &changes(place)), "body {seed}");
    let mut random = Seed::of(choices);
    let (task, rest) = match way {
        Way::CommitAll => ("commit", "commit"),
        Way::CommitThenUndo => ("commit", "undo"),
        Way::UndoThenCommit => ("undo", "commit"),
    };
    let said = format!("body {seed}, choices {choices}, {way:?}:\n");
    let done = choose(place, &mut random, task, said);
    let mut said = done.said;
    if !place.tried(&["list"]).starts_with("status") {
        let text = place.tried(&[rest]);
        said += &format!("{rest}: {text}");
        assert!(text.ends_with("status Some(0)\n"), "{said}");
        assert!(place.tried(&["list"]).starts_with("status"), "{said}");
    }
    let found = place.look();
    if matches!(way, Way::CommitAll) {
        assert!(found == after, "{said}{}", lines(&after, &found));
        return done.counts;
    }
    let is_after = |name: &Path| done.chosen.contains(name) == matches!(way, Way::CommitThenUndo);
    let trees = [&before, &after, &found].map(|text| tree(place, text));
    let differences = differences(&trees[2], (&trees[0], &trees[1]), &changed, is_after);
    assert!(differences.is_empty(), "{said}{differences}");
    done.counts
}

/// Lines of two texts that differ.
fn lines(expected: &str, found: &str) -> String {
    let only = |name: &str, text: &str, other: &str| -> String {
        let there: BTreeSet<&str> = other.lines().collect();
        let only = text.lines().filter(|line| !there.contains(line));
        only.map(|line| format!("{name}: {line}\n")).collect()
    };
    only("expected", expected, found) + &only("found", found, expected)
}

/// Runs random bodies, with the state on each of two file systems by turns.
fn bodies(name: &str, as_user: bool, way: Way) {
    let places = [false, true]
        .map(|in_memory| Place::new(&format!("{name}-{in_memory}"), as_user, in_memory));
    let mut seeds = Seed::new();
    let count = if full() { BODIES.1 } else { BODIES.0 };
    let mut counts = [0; 2];
    for body in 0..count {
        let (seed, choices) = (seeds.below(1 << 32), seeds.below(1 << 32));
        let more = check(&places[(body % 2) as usize], seed, choices, way);
        counts = [counts[0] + more[0], counts[1] + more[1]];
    }
    println!("{name}: {counts:?} choices of {count} bodies");
    assert!(counts[0] > count / 4, "{counts:?} of {count} bodies");
}

#[test]
fn all_by_choices_is_all_at_once() {
    bodies("choices", false, Way::CommitAll);
}

#[test]
fn what_is_committed_by_choice_is_as_after_the_body() {
    bodies("choices-first", false, Way::CommitThenUndo);
}

#[test]
fn what_is_undone_by_choice_is_as_before_the_body() {
    bodies("choices-last", false, Way::UndoThenCommit);
}

#[test]
fn choices_of_a_user_are_made_like_those() {
    if available(root()).is_some() && available(installed("setpriv")).is_some() {
        bodies("choices-user", true, Way::CommitAll);
        bodies("choices-user-first", true, Way::CommitThenUndo);
        bodies("choices-user-last", true, Way::UndoThenCommit);
    }
}
