//! Steps of a commit, and how they follow from the changes of a try.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::entry_state::EntryState;
use super::file_rights;
use super::held_trees::HeldTrees;
use crate::entry_metadata::{could_change_owner, have_same_attributes, is_own};
use crate::held_tree::{HeldEntry, HeldTree};
use crate::recorded_origins::is_absence;
use crate::try_changes::{Change, ChangeKind, Changes, have_same_owners};
use crate::{Result, io_error};

/// Path as bytes: JSON has text only.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct JournalPath(Vec<u8>);

impl JournalPath {
    pub(super) fn of(path: &Path) -> Self {
        JournalPath(path.as_os_str().as_bytes().to_vec())
    }

    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(std::ffi::OsString::from_vec(self.0.clone()))
    }
}

/// Way in which a new entry gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    /// A rename from the upper tree.
    Move,
    /// A copy beside the name, and a rename of that: the upper tree is on another file system.
    Copy,
    /// A copy under the name itself, in a directory from which no name can be taken.
    Directly,
    /// Its contents are written into the file that has the name.
    Into,
}

/// Step of a commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Step {
    /// Writes a copy into its original, and joins upper names to that. The paths of the copy and of
    /// these names are those in the try's directory.
    Join {
        copy: JournalPath,
        original: JournalPath,
        kept: Vec<JournalPath>,
        joined: Vec<JournalPath>,
        /// Modification times of the directories of the joined names.
        #[serde(default)]
        times: Vec<(i64, i64)>,
        before: EntryState,
    },
    /// Removes an entry. A directory must be empty by then.
    Remove { path: JournalPath, before: EntryState },
    /// Gives the upper entry `new` its name. `before` is the file that it replaces, and `mode` the
    /// permissions of a directory.
    Install {
        path: JournalPath,
        before: Option<EntryState>,
        mode: Option<u32>,
        way: Way,
        #[serde(default)]
        new: Option<EntryState>,
    },
    /// Gives an entry the upper one's owner and attributes, and these permissions.
    Dress { path: JournalPath, mode: u32, before: EntryState },
    /// Sets an entry's modification time: seconds and nanoseconds.
    SetTime { path: JournalPath, time: (i64, i64) },
}

impl Step {
    /// Path that the step changes.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Step::Join { original: path, .. }
            | Step::Remove { path, .. }
            | Step::Install { path, .. }
            | Step::Dress { path, .. }
            | Step::SetTime { path, .. } => path.path(),
        }
    }

    /// State of the entry that the path led to before the step.
    pub(super) fn before(&self) -> Option<&EntryState> {
        match self {
            Step::Join { before, .. }
            | Step::Remove { before, .. }
            | Step::Dress { before, .. } => Some(before),
            Step::Install { before, .. } => before.as_ref(),
            Step::SetTime { .. } => None,
        }
    }

    /// True if the step writes into a file that keeps its identity.
    pub(super) fn writes_in_place(&self) -> bool {
        matches!(self, Step::Join { .. } | Step::Install { way: Way::Into, .. })
    }
}

/// Returns the metadata of an entry; `None` if it or its directory does not exist.
pub(super) fn found_at(tree: &HeldTree, path: &Path) -> Result<Option<(HeldEntry, Metadata)>> {
    let found = tree.entry(path).and_then(|entry| {
        let found = entry.metadata()?;
        Ok((entry, found))
    });
    match found {
        Err(error) if is_absence(&error) => Ok(None),
        found => found.map(Some).map_err(io_error("examine", path)),
    }
}

/// Returns the metadata of a lower entry that is about to be changed; `None` if it does not exist.
/// Unless the commit `is_forced`, its directory must exist: another process may be about to bring
/// that back.
fn found_to_change(
    tree: &HeldTree,
    path: &Path,
    is_forced: bool,
) -> Result<Option<(HeldEntry, Metadata)>> {
    if !is_forced {
        tree.entry(path).map_err(io_error("examine", path))?;
    }
    found_at(tree, path)
}

/// Returns the steps that make the changes: files with several names; new names in append-only
/// directories; removals, deepest first; new entries; permissions and times of directories.
/// `is_nested` is true for a try inside another, `is_forced` if changes of others do not matter.
pub(super) fn plan(
    changes: &Changes,
    trees: &HeldTrees,
    (is_nested, is_forced): (bool, bool),
) -> Result<Vec<Step>> {
    let found_to_change = |path: &Path| found_to_change(&trees.lower, path, is_forced);
    let mut steps = Vec::new();
    let of = |path: &PathBuf| JournalPath::of(trees.path_in_overlay(path));
    for names in &changes.linked {
        if let Some((_, found)) = found_to_change(&names.original)? {
            let list = |paths: &[PathBuf]| paths.iter().map(of).collect();
            steps.push(Step::Join {
                copy: of(&names.copy),
                original: JournalPath::of(&names.original),
                kept: list(&names.kept),
                times: times_above(&names.joined, trees)?,
                joined: list(&names.joined),
                before: EntryState::of(&found),
            });
        }
    }
    let mut removed: Vec<_> =
        changes.of_kind(ChangeKind::Deleted).chain(changes.replaced.values()).collect();
    removed.sort_by(|a, b| b.path.cmp(&a.path));
    let mut is_removed: BTreeSet<PathBuf> =
        removed.iter().map(|change| change.path.clone()).collect();
    let mut removed: Vec<_> = removed.into_iter().map(|change| change.path.clone()).collect();
    let comes = |change: &&Change| {
        matches!(change.kind, ChangeKind::Added | ChangeKind::Modified) && !change.in_new_directory
    };
    for change in changes.iter().filter(comes) {
        // With force, an entry of another type may be in the way.
        if change.replaces_other_type && is_removed.insert(change.path.clone()) {
            removed.push(change.path.clone());
        }
    }
    // Names of an original that stay are there already.
    let upper = trees.upper.path();
    let in_upper = |path: &Path| upper.join(path.strip_prefix("/").unwrap_or(path));
    let kept: BTreeSet<_> = changes.linked.iter().flat_map(|names| &names.kept).collect();
    let mut installs = Vec::new();
    for change in changes.iter().filter(comes) {
        if kept.contains(&in_upper(&change.path)) {
            continue;
        }
        let is_free = is_removed.contains(&change.path);
        let own = install_steps(&change.path, trees, is_free, is_nested)?;
        let joined = match own[0] {
            Step::Install { way: Way::Into, .. } | Step::Dress { .. } => {
                new_names(&change.path, changes, trees)?
            }
            _ => Vec::new(),
        };
        match own[0].before() {
            // The new names become names of the file that is written.
            Some(before) if !joined.is_empty() => steps.push(Step::Join {
                copy: of(&in_upper(&change.path)),
                original: JournalPath::of(&change.path),
                kept: Vec::new(),
                times: times_above(
                    &joined.iter().map(|path| in_upper(path)).collect::<Vec<_>>(),
                    trees,
                )?,
                joined: joined.iter().map(|path| of(&in_upper(path))).collect(),
                before: *before,
            }),
            _ => installs.extend(own),
        }
    }
    // Copies that cannot be made beforehand, as long as the files that they are links to have their
    // names. In such a directory nothing was removed.
    let is_direct = |step: &Step| matches!(step, Step::Install { way: Way::Directly, .. });
    let (direct, installs): (Vec<_>, Vec<_>) = installs.into_iter().partition(is_direct);
    steps.extend(direct);
    for path in removed {
        if let Some((_, found)) = found_to_change(&path)? {
            let before = EntryState::of(&found);
            steps.push(Step::Remove { path: JournalPath::of(&path), before });
        }
    }
    steps.extend(installs);
    // What is held has wider permissions.
    trees.release();
    // Deepest first: a change to an entry sets the time of its directory.
    let mut last = Vec::new();
    for change in changes.of_kind(ChangeKind::Attributes) {
        let found = (found_at(&trees.upper, &change.path)?, found_to_change(&change.path)?);
        let (Some((from, wanted)), Some((to, there))) = found else { continue };
        let paths = (from.path_through_descriptor(), to.path_through_descriptor());
        let is_time_alone = wanted.mode() == there.mode()
            && have_same_owners(&wanted, &there)
            && have_same_attributes(&paths.0, &paths.1);
        if !is_time_alone {
            let (mode, before) = (wanted.mode(), EntryState::of(&there));
            last.push(Step::Dress { path: JournalPath::of(&change.path), mode, before });
        }
    }
    last.extend(
        changes
            .times
            .iter()
            .map(|(path, time)| Step::SetTime { path: JournalPath::of(path), time: *time }),
    );
    last.reverse();
    steps.extend(last);
    Ok(steps)
}

/// Modification times of the upper directories that have these names.
fn times_above(names: &[PathBuf], trees: &HeldTrees) -> Result<Vec<(i64, i64)>> {
    let time = |name: &PathBuf| {
        let entry = trees.in_overlay(trees.path_in_overlay(name))?;
        let found = entry.directory().metadata().map_err(io_error("examine", name))?;
        Ok((found.mtime(), found.mtime_nsec()))
    };
    names.iter().map(time).collect()
}

/// Other paths at which the try has names of the upper file of `path`. None of another user's file:
/// in a directory with the sticky bit such a name could not be moved to its place.
fn new_names(path: &Path, changes: &Changes, trees: &HeldTrees) -> Result<Vec<PathBuf>> {
    let file = |path: &Path| -> Result<Option<Metadata>> {
        let found = found_at(&trees.upper, path)?.map(|(_, found)| found);
        Ok(found.filter(|found| !found.is_dir()))
    };
    let Some(found) = file(path)?.filter(|found| found.nlink() > 1) else { return Ok(Vec::new()) };
    let there = found_at(&trees.lower, path)?;
    if !there.is_some_and(|(_, there)| is_own(&there)) {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for other in changes.iter().filter(|other| other.path != path) {
        let is_new = matches!(other.kind, ChangeKind::Added | ChangeKind::Modified);
        if is_new
            && let Some(other_found) = file(&other.path)?
            && (other_found.dev(), other_found.ino()) == (found.dev(), found.ino())
        {
            names.push(other.path.clone());
        }
    }
    Ok(names)
}

/// Steps that install the upper entry of `path`. `is_free` is true if the name is removed first.
fn install_steps(
    path: &Path,
    trees: &HeldTrees,
    is_free: bool,
    is_nested: bool,
) -> Result<Vec<Step>> {
    let from = trees.upper.entry(path).map_err(io_error("find", path))?;
    let found = from.metadata().map_err(io_error("examine", &from.path()))?;
    let to = trees.lower.entry(path).map_err(io_error("find", path))?;
    let there = found_at(&trees.lower, path)?.map(|(_, there)| there).filter(|_| !is_free);
    let examined = || io_error("examine", path);
    if let Some(there) = there.as_ref().filter(|_| !is_nested)
        && is_only_dressed((&from, &found), (&to, there)).map_err(examined())?
    {
        let (mode, before) = (found.mode(), EntryState::of(there));
        let time = (found.mtime(), found.mtime_nsec());
        return Ok(vec![
            Step::Dress { path: JournalPath::of(path), mode, before },
            Step::SetTime { path: JournalPath::of(path), time },
        ]);
    }
    let way = match is_nested {
        true => Way::Move,
        false => way(&from, &found, &to, there.as_ref()).map_err(examined())?,
    };
    Ok(vec![Step::Install {
        path: JournalPath::of(path),
        before: there.as_ref().map(EntryState::of),
        mode: found.is_dir().then_some(found.mode()),
        way,
        new: Some(EntryState::of(&found)),
    }])
}

/// True if the entries are pipes, sockets or equal links, and the user cannot replace the one that
/// is there: then the try has not replaced it, either, and its attributes alone differ.
fn is_only_dressed(
    (from, found): (&HeldEntry, &Metadata),
    (to, there): (&HeldEntry, &Metadata),
) -> io::Result<bool> {
    let is_one_kind = found.file_type() == there.file_type() && !found.is_file();
    Ok(is_one_kind
        && file_rights::why_not_removable(to, there)?.is_some()
        && (!found.is_symlink() || from.read_link()? == to.read_link()?))
}

fn way(
    from: &HeldEntry,
    found: &Metadata,
    to: &HeldEntry,
    there: Option<&Metadata>,
) -> io::Result<Way> {
    let both_are_files = found.is_file() && there.is_some_and(Metadata::is_file);
    let keeps_names = file_rights::is_append_only(to.directory())?;
    if both_are_files && let Some(there) = there {
        // Replacing the file would change an owner that the try could not change. Or the user may
        // write to the file and not replace it.
        let is_kept = !could_change_owner(there)
            || keeps_names
            || file_rights::is_mount_point(to)?
            || file_rights::why_not_removable(to, there)?.is_some();
        if is_kept {
            return Ok(Way::Into);
        }
    }
    Ok(match file_rights::is_one_mount(from.directory(), to.directory())? {
        true => Way::Move,
        false if keeps_names => Way::Directly,
        false => Way::Copy,
    })
}
