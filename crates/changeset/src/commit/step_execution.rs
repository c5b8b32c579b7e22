//! Execution of one step of a commit.
//!
//! What is replaced or removed is kept, so that the step can be taken back (`step_reversal.rs`). A
//! step that was interrupted is executed again: it does what is left.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::commit_steps::{JournalPath, Step, Way, found_at};
use super::entry_state::EntryState;
use super::held_trees::HeldTrees;
use super::kept_entries::{
    find_kept, kept_in_try, move_entry, new_beside, old_beside, step_of_old,
};
use super::step_journal::{Journal, Kept};
use super::stopping_points;
use crate::copied_entry::{CopiedFiles, copy_whole};
use crate::entry_metadata::{KeptMetadata, copy_metadata, modified_at};
use crate::held_tree::HeldEntry;
use crate::recorded_origins::is_absence;
use crate::{Error, Result, install, io_error, linked_names};

/// Commit that is carried out or taken back.
#[derive(Debug)]
pub(super) struct RunningCommit {
    pub(super) trees: HeldTrees,
    pub(super) journal: Journal,
    /// Files that were copied to another file system.
    pub(super) copied: CopiedFiles,
}

/// Entry that a path leads to now is not what it was.
fn changed_meanwhile() -> io::Error {
    io::Error::other("another process has changed it meanwhile")
}

/// Returns the result, or nothing if the entry or its directory does not exist.
fn unless_absent<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if is_absence(&error) => Ok(None),
        found => found.map(Some),
    }
}

/// Executes a step, and notes that.
pub(super) fn execute(commit: &mut RunningCommit, number: usize) -> Result<()> {
    let step = commit.journal.steps[number].clone();
    let path = step.path();
    stopping_points::pass().map_err(io_error("change", &path))?;
    let after = match &step {
        Step::Join { .. } => {
            join(commit, number, &step)?;
            found_at(&commit.trees.lower, &path)?.map(|(_, found)| EntryState::of(&found))
        }
        Step::Remove { before, .. } => {
            remove(commit, number, &path, before).map_err(io_error("remove", &path))?;
            None
        }
        Step::Install { before, mode, way, .. } => {
            install(commit, number, &path, (before.as_ref(), *mode, *way))?;
            found_at(&commit.trees.lower, &path)?.map(|(_, found)| EntryState::of(&found))
        }
        Step::Dress { mode, .. } => {
            dress(commit, number, &path, *mode).map(|()| None).map_err(io_error("change", &path))?
        }
        Step::SetTime { time, .. } => set_time(commit, number, &path, *time)?,
    };
    stopping_points::pass().map_err(io_error("change", &path))?;
    commit.journal.note_done(number, after)
}

fn remove(
    commit: &mut RunningCommit,
    number: usize,
    path: &Path,
    before: &EntryState,
) -> io::Result<()> {
    // An entry that was held may be this directory.
    commit.trees.lower.forget();
    let entry = commit.trees.lower.entry(path)?;
    let Some(found) = unless_absent(entry.metadata())? else { return Ok(()) };
    if commit.journal.preamble.is_nested {
        let directory = entry.directory();
        return directory.change_entries(|| match found.is_dir() {
            true => entry.remove_directory(),
            false => entry.remove_file(),
        });
    }
    keep(commit, number, &entry, before)
}

/// Moves an entry to where it is kept. Another one than `before`, or a directory that is not empty,
/// is moved back.
fn keep(
    commit: &mut RunningCommit,
    number: usize,
    entry: &HeldEntry,
    before: &EntryState,
) -> io::Result<()> {
    let mut kept = kept_in_try(&commit.trees, number)?;
    match move_entry(entry, &kept) {
        // On another file system, or a directory of another user, which the rename would write to.
        Err(error)
            if matches!(error.kind(), ErrorKind::CrossesDevices | ErrorKind::PermissionDenied) =>
        {
            commit.journal.note_beside(number).map_err(io::Error::other)?;
            kept = old_beside(entry, number);
            move_entry(entry, &kept)?;
        }
        moved => moved?,
    }
    stopping_points::pass()?;
    let found = kept.metadata()?;
    let is_it = before.file == (found.dev(), found.ino());
    let why = match is_it && found.is_dir() && !has_only_kept(commit, entry, &kept)? {
        true => Some(ErrorKind::DirectoryNotEmpty.into()),
        false => (!is_it).then(changed_meanwhile),
    };
    let Some(why) = why else { return Ok(()) };
    move_entry(&kept, entry)?;
    Err(why)
}

/// True if the directory `kept`, which was at `entry`, has nothing but what steps have kept there.
fn has_only_kept(commit: &RunningCommit, entry: &HeldEntry, kept: &HeldEntry) -> io::Result<bool> {
    let path = entry.path();
    let is_kept = |name: &OsString| {
        let step = step_of_old(name).and_then(|number| commit.journal.steps.get(number));
        step.is_some_and(|step| step.path().parent() == Some(&path))
    };
    Ok(kept.hold_widened()?.names()?.iter().all(is_kept))
}

/// Makes the copy of a new entry beside its name.
pub(super) fn copy_beside(
    commit: &mut RunningCommit,
    from: &HeldEntry,
    to: &HeldEntry,
    number: usize,
) -> io::Result<HeldEntry> {
    let beside = new_beside(to, number);
    let (lower, copied) = (&commit.trees.lower, &mut commit.copied);
    to.directory().change_entries(|| {
        beside.remove_all()?;
        copy_whole(from, &beside, lower, copied)
    })?;
    Ok(beside)
}

fn install(
    commit: &mut RunningCommit,
    number: usize,
    path: &Path,
    (before, mode, way): (Option<&EntryState>, Option<u32>, Way),
) -> Result<()> {
    let failed = || io_error("move a file to", path);
    let from = unless_absent(commit.trees.upper.entry(path)).map_err(failed())?;
    let to = commit.trees.lower.entry(path).map_err(failed())?;
    if commit.journal.preamble.is_nested {
        // It is not there if it was moved already.
        let Some(from) = from else { return Ok(()) };
        return install::install(&from, &to, &commit.trees.lower, &mut commit.copied);
    }
    let from = from.ok_or_else(|| ErrorKind::NotFound.into()).map_err(failed())?;
    match way {
        Way::Into => return write_into(commit, number, &from, &to),
        Way::Directly => return copy_directly(commit, number, &from, &to).map_err(failed()),
        Way::Copy => {
            let source = new_beside(&to, number);
            give_name(commit, number, &source, &to, before).map_err(failed())?;
            commit.copied.rename(&source.path(), &to.path());
        }
        Way::Move => match give_name(commit, number, &from, &to, before) {
            Err(error) if error.kind() == ErrorKind::CrossesDevices => {
                commit.journal.note_beside(number)?;
                let copied = copy_beside(commit, &from, &to, number);
                let source = copied.map_err(failed())?;
                give_name(commit, number, &source, &to, before).map_err(failed())?;
                commit.copied.rename(&source.path(), &to.path());
            }
            given => given.map_err(failed())?,
        },
    }
    // An interrupted commit may have left it with wider permissions.
    match mode.filter(|mode| to.metadata().is_ok_and(|found| found.mode() != *mode)) {
        Some(mode) => to.set_mode(mode).map_err(failed()),
        None => Ok(()),
    }
}

/// Gives the new entry `source` its name, in exchange for what has it.
fn give_name(
    commit: &mut RunningCommit,
    number: usize,
    source: &HeldEntry,
    to: &HeldEntry,
    before: Option<&EntryState>,
) -> io::Result<()> {
    let Some(before) = before else {
        return match source.exists() {
            true => move_entry(source, to),
            // It has it already.
            false => Ok(()),
        };
    };
    let holds_old = || -> io::Result<bool> {
        let found = unless_absent(source.metadata())?;
        Ok(found.is_none_or(|found| before.file == (found.dev(), found.ino())))
    };
    if holds_old()? {
        return Ok(());
    }
    let is_kept = find_kept(&commit.trees, to, number)?.is_some();
    let exchange = || source.exchange_with(to);
    let exchange = || source.directory().change_entries(exchange);
    let exchanged = match is_kept {
        true => Err(ErrorKind::InvalidInput.into()),
        false => to.directory().change_entries(exchange),
    };
    match exchanged {
        // The file system cannot exchange entries.
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            if !is_kept {
                keep(commit, number, to, before)?;
            }
            move_entry(source, to)
        }
        Err(error) => Err(error),
        Ok(()) if holds_old()? => Ok(()),
        Ok(()) => {
            source.exchange_with(to)?;
            Err(changed_meanwhile())
        }
    }
}

/// Copies the entry to its name, where nothing is.
fn copy_directly(
    commit: &mut RunningCommit,
    number: usize,
    from: &HeldEntry,
    to: &HeldEntry,
) -> io::Result<()> {
    if commit.journal.progress(number).kept.is_some() && to.exists() {
        // An interrupted copy, which its directory holds.
        return install::complete_copy(from, to, &commit.trees.lower, &mut commit.copied);
    }
    if to.exists() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    commit.journal.note_started(number, Kept::Nothing).map_err(io::Error::other)?;
    copy_whole(from, to, &commit.trees.lower, &mut commit.copied)
}

/// Keeps a copy of a file that a step writes into.
fn keep_copy(commit: &mut RunningCommit, number: usize, of: &HeldEntry) -> io::Result<()> {
    if commit.journal.preamble.is_nested || commit.journal.progress(number).kept.is_some() {
        return Ok(());
    }
    let kept = kept_in_try(&commit.trees, number)?;
    kept.remove_all()?;
    copy_whole(of, &kept, &commit.trees.own, &mut CopiedFiles::default())?;
    commit.journal.note_started(number, Kept::Copy).map_err(io::Error::other)?;
    stopping_points::pass()
}

fn write_into(
    commit: &mut RunningCommit,
    number: usize,
    from: &HeldEntry,
    to: &HeldEntry,
) -> Result<()> {
    let path = to.path();
    let failed = || io_error("write", &path);
    keep_copy(commit, number, to).map_err(failed())?;
    let found = from.metadata().map_err(failed())?;
    install::write_into(from, to, &found).map_err(failed())
}

/// Writes a copy of the index into its original.
fn join(commit: &mut RunningCommit, number: usize, step: &Step) -> Result<()> {
    let Step::Join { copy, original, kept, joined, times, .. } = step else { return Ok(()) };
    let original = original.path();
    let copy = commit.trees.in_overlay(&copy.path())?;
    let original = commit.trees.lower.entry(&original).map_err(io_error("find", &original))?;
    keep_copy(commit, number, &original).map_err(io_error("write", &original.path()))?;
    let trees = &commit.trees;
    let find = |path: &JournalPath| trees.in_overlay(&path.path());
    let names = (kept.iter().map(find), joined.iter().map(find));
    linked_names::join(&copy, &original, names.0, names.1, &mut commit.copied)?;
    for (name, time) in joined.iter().map(find).zip(times) {
        let name = name?;
        // An interrupted commit may have left another one.
        let set = name.directory().set_times(&modified_at(*time));
        set.map_err(io_error("change", &name.path()))?;
    }
    commit.trees.release();
    Ok(())
}

fn dress(commit: &mut RunningCommit, number: usize, path: &Path, mode: u32) -> io::Result<()> {
    // What is held has wider permissions.
    commit.trees.release();
    let (from, to) = (commit.trees.upper.entry(path)?, commit.trees.lower.entry(path)?);
    if commit.journal.progress(number).kept.is_none() {
        let kept = Kept::Metadata(KeptMetadata::of(&to)?);
        commit.journal.note_started(number, kept).map_err(io::Error::other)?;
    }
    stopping_points::pass()?;
    copy_metadata(&from, &to, &from.metadata()?)?;
    to.change_mode(mode)
}

/// Sets the time of an entry. The result has no state: nothing is compared by it.
fn set_time(
    commit: &mut RunningCommit,
    number: usize,
    path: &Path,
    time: (i64, i64),
) -> Result<Option<EntryState>> {
    let found = match found_at(&commit.trees.lower, path) {
        // The user may not search a directory above it.
        Err(Error::Io { error, .. }) if error.kind() == ErrorKind::PermissionDenied => None,
        found => found?,
    };
    let Some((entry, found)) = found else { return Ok(None) };
    if commit.journal.progress(number).kept.is_none() {
        commit.journal.note_started(number, Kept::Time((found.mtime(), found.mtime_nsec())))?;
    }
    apply_time(&entry, time).map(|()| None).map_err(io_error("change", path))
}

/// Sets the modification time of an entry, if the user may.
pub(super) fn apply_time(entry: &HeldEntry, time: (i64, i64)) -> io::Result<()> {
    match entry.set_times(&modified_at(time)) {
        // The times of another user's directory cannot be set, even if others may create files in
        // it, nor those of an append-only one.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        set => set,
    }
}
