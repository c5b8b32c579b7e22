//! Commits of random bodies that are stopped: killed at a call, or by full disks. They are finished
//! or undone afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use runahead_tests::Seed;

use crate::body_place::{Body, Place, differences, is_kept};

/// Most tasks that are stopped, one after another.
const STOPS: u64 = 3;

/// Trees before a body and after it.
pub struct Trees<'a> {
    pub before: &'a str,
    pub done: &'a str,
}

/// Differences that are left by a commit which is stopped at a random one of its `calls`, and then
/// finished or undone, stopped now and then. Empty without any.
pub fn compare(place: &Place, body: Body, trees: &Trees, calls: u64) -> String {
    let mut random = Seed::of(body.seed ^ 0x7374_6f70);
    place.prepare(body.seed);
    place.run_tried(body);
    if !place.has_try() || calls == 0 {
        return String::new();
    }
    let mut story = String::new();
    let mut task = "commit";
    for _ in 0..=random.below(STOPS) {
        let how = ["kill", "full"][random.below(2) as usize];
        let at = 1 + random.below(calls);
        let (said, _) = place.interrupted(at, how, task);
        story += &format!("{task}, {how} at call {at}: {said}");
        if !place.has_try() {
            return end(place, &story, task, trees);
        }
        if said.contains("nothing was committed") {
            let left = differences("before", trees.before, "not committed", &place.look());
            if !left.is_empty() {
                return story + &left;
            }
        }
        task = ["commit", "undo"][random.below(2) as usize];
        if random.below(4) == 0
            && let Some(changed) = change_a_file(place, &mut random)
        {
            let said = place.tried(&[task]);
            // Whether it refuses or does the rest, it leaves the file alone.
            return match is_changed(&changed) {
                true => String::new(),
                false => format!("{story}{task} over {}: {said}", changed.display()),
            };
        }
    }
    let mut said = place.tried(&[task]);
    story += &format!("{task}: {said}");
    if is_kept(&said) || said.contains("cannot be taken back; finish it") {
        task = "commit";
        said = place.tried(&[task]);
        story += &format!("{task}: {said}");
    }
    if !said.ends_with("status Some(0)\n") || place.has_try() {
        return story;
    }
    end(place, &story, task, trees)
}

/// Differences after a task that has ended the try.
fn end(place: &Place, story: &str, task: &str, trees: &Trees) -> String {
    let expected = if task == "commit" { trees.done } else { trees.before };
    match differences("expected", expected, "left", &place.look()) {
        none if none.is_empty() => none,
        left => format!("{story}{left}"),
    }
}

/// Text that another process writes meanwhile.
const PRECIOUS: &str = "precious";

fn is_changed(file: &Path) -> bool {
    fs::read(file).is_ok_and(|text| text == PRECIOUS.as_bytes())
}

/// Writes to one of the names that a commit which was stopped has changed or will change, as
/// another process. Returns the name.
fn change_a_file(place: &Place, random: &mut Seed) -> Option<PathBuf> {
    let status = place.tried(&["status"]);
    let name = |line: &str| {
        let name = line.strip_prefix(" left ").or_else(|| line.strip_prefix(" done "));
        name.map(PathBuf::from)
    };
    let names: Vec<PathBuf> = status.lines().filter_map(name).collect();
    let chosen = names.get(random.below(names.len().max(1) as u64) as usize)?;
    let above = chosen.parent()?;
    let is_there = chosen.symlink_metadata();
    let may_be_written = is_there.as_ref().map_or(true, |found| found.is_file())
        && above.canonicalize().is_ok_and(|real| real == above);
    may_be_written.then_some(())?;
    fs::write(chosen, PRECIOUS).ok()?;
    Some(chosen.to_owned())
}
