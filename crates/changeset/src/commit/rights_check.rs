//! Look at the rights that the steps of a commit need, before any of them.

use std::io;
use std::path::PathBuf;

use super::commit_steps::{Step, Way, found_at};
use super::file_rights::{
    why_not_changeable, why_not_creatable, why_not_removable, why_not_writable,
};
use super::held_trees::HeldTrees;
use crate::recorded_origins::is_absence;
use crate::{Error, Result, io_error};

/// Most names that the message names.
const NAMED_MAX: usize = 10;

/// Fails if a step would fail for a lack of rights.
pub(super) fn check(steps: &[Step], trees: &HeldTrees) -> Result<()> {
    let mut refused: Vec<(PathBuf, &'static str)> = Vec::new();
    for step in steps {
        let path = step.path();
        match why_not(step, trees) {
            Ok(None) => {}
            Ok(Some(why)) => refused.push((path, why)),
            Err(error) if is_absence(&error) => {}
            Err(error) => return Err(io_error("examine", &path)(error)),
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    let more = refused.len().saturating_sub(NAMED_MAX);
    let mut names: Vec<_> = refused
        .iter()
        .take(NAMED_MAX)
        .map(|(path, why)| format!("{}: {why}", crate::printed_name(path)))
        .collect();
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    Err(Error::Refused(names.join("; ")))
}

fn why_not(step: &Step, trees: &HeldTrees) -> io::Result<Option<&'static str>> {
    let path = step.path();
    let there = found_at(&trees.lower, &path).map_err(io::Error::other)?;
    match (step, &there) {
        (Step::SetTime { .. }, _) | (Step::Remove { .. }, None) => Ok(None),
        (Step::Remove { .. }, Some((entry, found))) => why_not_removable(entry, found),
        (Step::Join { .. } | Step::Install { way: Way::Into, .. }, Some((entry, found))) => {
            why_not_writable(entry, found)
        }
        (Step::Install { before: Some(_), .. }, Some((entry, found))) => {
            why_not_removable(entry, found)
        }
        (Step::Install { .. }, _) => why_not_creatable(trees.lower.entry(&path)?.directory()),
        (Step::Dress { mode, before, .. }, Some((entry, found))) => {
            why_not_changeable(entry, found, before.mode != *mode)
        }
        (Step::Dress { .. } | Step::Join { .. }, None) => Ok(None),
    }
}
