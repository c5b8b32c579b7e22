//! New names of files that a commit writes in place.
//!
//! A file with one name that gets a second one in the try is one file of the upper tree, mostly
//! moved into place. Where its first name stays the file of the lower tree, the new ones become
//! names of that.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::commit_steps::{JournalPath, Step, Way, found_at};
use super::held_trees::HeldTrees;
use crate::Result;
use crate::chosen_changes::upper_path;
use crate::try_changes::{ChangeKind, Changes};

/// Puts a step that joins new names in the place of each that would only write into the file.
pub(super) fn join_new_names(
    changes: &Changes,
    trees: &HeldTrees,
    steps: &mut Vec<Step>,
) -> Result<()> {
    let is_in_place = |step: &Step| matches!(step, Step::Install { way: Way::Into, .. });
    if !steps.iter().any(is_in_place) {
        return Ok(());
    }
    let names = new_names(changes, trees)?;
    let in_overlay = |path: &Path| {
        let path = upper_path(trees.upper.path(), path);
        JournalPath::of(trees.path_in_overlay(&path))
    };
    let in_place: Vec<PathBuf> =
        steps.iter().filter(|step| is_in_place(step)).map(Step::path).collect();
    let mut joins = Vec::new();
    for names in names.values() {
        let mut originals = names.iter().filter(|name| in_place.contains(name));
        let (Some(original), None) = (originals.next(), originals.next()) else { continue };
        let others: Vec<_> = names.iter().filter(|name| *name != original).collect();
        let place = steps.iter().position(|step| is_in_place(step) && step.path() == *original);
        let Some(place) = place.filter(|_| !others.is_empty()) else { continue };
        if let Step::Install { path, before: Some(before), .. } = steps.remove(place) {
            joins.push(Step::Join {
                copy: in_overlay(original),
                original: path,
                kept: Vec::new(),
                joined: others.into_iter().map(|name| in_overlay(name)).collect(),
                before,
            });
        }
    }
    steps.splice(0..0, joins);
    Ok(())
}

/// Names of the files of the upper tree that have several, without those of the index.
fn new_names(changes: &Changes, trees: &HeldTrees) -> Result<BTreeMap<(u64, u64), Vec<PathBuf>>> {
    let mut names: BTreeMap<_, Vec<PathBuf>> = BTreeMap::new();
    for change in changes.iter() {
        let is_new = matches!(change.kind, ChangeKind::Added | ChangeKind::Modified);
        let is_linked = || changes.linked.iter().any(|other| other.changed.contains(&change.path));
        if is_new
            && !is_linked()
            && let Some((_, found)) = found_at(&trees.upper, &change.path)?
            && found.is_file()
            && found.nlink() > 1
        {
            names.entry((found.dev(), found.ino())).or_default().push(change.path.clone());
        }
    }
    trees.release();
    Ok(names)
}
