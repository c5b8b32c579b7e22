//! Entries that a commit keeps until it is final, and the copies that it prepares: names for them.
//!
//! What a step replaces or removes is moved into the directory of the try, or, on another file
//! system, to a name beside its own.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::held_trees::HeldTrees;
use crate::held_tree::HeldEntry;
use crate::recorded_origins::is_absence;

/// Directory of kept entries in that of the try.
pub(super) const REPLACED: &str = "replaced";

/// Hidden name in the same directory, for what a step puts beside its own name.
fn hidden(entry: &HeldEntry, step: usize, what: &str) -> HeldEntry {
    let last = entry.name().as_bytes();
    // Names have at most 255 bytes.
    let mut name = [b".", &last[..last.len().min(200)]].concat();
    name.extend_from_slice(format!(".{step}.runahead-{what}").as_bytes());
    entry.beside(OsString::from(OsStr::from_bytes(&name)))
}

/// Name of the copy that is to become the entry.
pub(super) fn new_beside(entry: &HeldEntry, step: usize) -> HeldEntry {
    hidden(entry, step, "new")
}

/// Name of the entry that the step took away.
pub(super) fn old_beside(entry: &HeldEntry, step: usize) -> HeldEntry {
    hidden(entry, step, "old")
}

/// Number of the step that put an entry of this name beside its own name.
pub(super) fn step_of_old(name: &OsStr) -> Option<usize> {
    let text = name.as_bytes().strip_suffix(b".runahead-old")?;
    let digits = text.iter().rposition(|byte| *byte == b'.').map(|dot| &text[dot + 1..])?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Name in the directory of the try of what the step took away.
pub(super) fn kept_in_try(trees: &HeldTrees, step: usize) -> io::Result<HeldEntry> {
    trees.own.entry(&Path::new("/").join(REPLACED).join(step.to_string()))
}

/// Finds the entry that the step took away from `entry`, if it did.
pub(super) fn find_kept(
    trees: &HeldTrees,
    entry: &HeldEntry,
    step: usize,
) -> io::Result<Option<HeldEntry>> {
    match kept_in_try(trees, step) {
        Ok(kept) if kept.exists() => return Ok(Some(kept)),
        Err(error) if !is_absence(&error) => return Err(error),
        _ => {}
    }
    let beside = old_beside(entry, step);
    Ok(beside.exists().then_some(beside))
}

/// Renames an entry into another directory, where nothing is of the new name. A directory is
/// written to by that: its entry `..` changes.
pub(super) fn move_entry(from: &HeldEntry, to: &HeldEntry) -> io::Result<()> {
    let is_directory = from.metadata()?.is_dir();
    let _widened = is_directory.then(|| from.hold_widened()).transpose()?;
    let rename = || match from.rename_to_new(to) {
        // The file system has no such rename.
        Err(error) if error.kind() == ErrorKind::InvalidInput => match to.metadata() {
            Err(absent) if is_absence(&absent) => from.rename_to(to),
            _ => Err(ErrorKind::AlreadyExists.into()),
        },
        renamed => renamed,
    };
    let rename = || from.directory().change_entries(rename);
    to.directory().change_entries(rename)
}
