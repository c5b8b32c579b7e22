//! Steps of a commit taken back, the last first.
//!
//! What a step has done is told from where its entries lie, or from what it has kept. To take a
//! step back that was not done, or was taken back before, does nothing.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::commit_steps::{JournalPath, Step, Way, found_at};
use super::entry_state::EntryState;
use super::fresh_origins::TakenBack;
use super::kept_entries::{REPLACED, find_kept, kept_in_try, move_entry, new_beside, old_beside};
use super::step_execution::{RunningCommit, apply_time};
use super::step_journal::{JOURNAL, Kept};
use super::stopping_points;
use crate::held_tree::{HeldEntry, HeldTree};
use crate::{Result, install, io_error, linked_names};

fn changed_meanwhile() -> io::Error {
    io::Error::other("another process has changed it since then")
}

/// Takes back all steps, and removes the copies beside their names. Returns the states of what was
/// taken back.
pub(super) fn take_back(commit: &mut RunningCommit) -> Result<TakenBack> {
    let noted = commit.journal.last_noted().map_err(io_error("examine", Path::new(JOURNAL)))?;
    for number in (0..commit.journal.steps.len()).rev() {
        let step = commit.journal.steps[number].clone();
        let progress = commit.journal.progress(number);
        let is_done = progress.is_done;
        let is_repeated = !is_done && progress.after.is_some();
        if is_done {
            commit.journal.note_undoing(number)?;
        }
        take_back_step(commit, number, &step, (is_repeated, noted))
            .map_err(io_error("take back", &step.path()))?;
        stopping_points::pass().map_err(io_error("take back", &step.path()))?;
        let is_kept = commit.journal.progress(number).kept.is_some();
        if is_done || is_kept {
            let restored = match is_kept && step.writes_in_place() {
                true => found_at(&commit.trees.lower, &step.path())?,
                false => None,
            };
            let restored = restored.map(|(_, found)| EntryState::of(&found));
            commit.journal.note_taken_back(number, restored);
        }
    }
    commit.journal.note_unstaged()?;
    remove_copies(commit)?;
    for (path, time) in &commit.journal.preamble.times {
        if let Some((entry, _)) = found_at(&commit.trees.lower, &path.path())? {
            apply_time(&entry, *time).map_err(io_error("change", &path.path()))?;
        }
    }
    // Last: copies that are removed may have been links.
    let mut taken_back = TakenBack::new();
    commit.trees.lower.forget();
    let restored = commit.journal.restored();
    for step in &commit.journal.steps {
        if let Some(before) = step.before()
            && let Some((_, found)) = found_at(&commit.trees.lower, &step.path())?
        {
            let now = EntryState::of(&found);
            let expected = restored.get(&before.file).unwrap_or(before);
            if now == (EntryState { changed: now.changed, ..*expected }) {
                taken_back.insert(before.file, (*before, now));
            }
        }
    }
    Ok(taken_back)
}

/// Removes the copies that were made beside their names and have not got these, and the directory
/// of what was kept.
pub(super) fn remove_copies(commit: &mut RunningCommit) -> Result<()> {
    for (number, step) in commit.journal.steps.iter().enumerate() {
        let is_beside = commit.journal.progress(number).is_beside;
        let Step::Install { path, way, .. } = step else { continue };
        if *way != Way::Copy && !is_beside {
            continue;
        }
        let path = path.path();
        let Some(to) = commit.trees.lower.entry(&path).ok() else { continue };
        let beside = new_beside(&to, number);
        if beside.exists() {
            let removed = to.directory().change_entries(|| beside.remove_all());
            removed.map_err(io_error("remove", &beside.path()))?;
        }
    }
    let kept = commit.trees.own.entry(Path::new(REPLACED));
    let removed = kept.and_then(|kept| kept.remove_all());
    removed.map_err(io_error("remove", Path::new(REPLACED)))
}

/// Takes back a step. `is_repeated`: an earlier process has begun that and was interrupted. `noted`
/// is the time of the latest note before anything was taken back.
fn take_back_step(
    commit: &mut RunningCommit,
    number: usize,
    step: &Step,
    (is_repeated, noted): (bool, (i64, i64)),
) -> io::Result<()> {
    let (trees, progress) = (&commit.trees, commit.journal.progress(number));
    let path = step.path();
    match step {
        Step::Remove { before, .. } => {
            // An entry that was held may be one that took the place of this directory.
            trees.lower.forget();
            let entry = trees.lower.entry(&path)?;
            let Some(kept) = find_kept(trees, &entry, number)? else { return Ok(()) };
            move_entry(&kept, &entry)?;
            match before.is_directory() && entry.metadata()?.mode() != before.mode {
                true => entry.set_mode(before.mode),
                false => Ok(()),
            }
        }
        Step::Install { way: Way::Into, .. } | Step::Join { .. } => {
            if progress.kept.is_none() {
                return Ok(());
            }
            let entry = trees.lower.entry(&path)?;
            let before = step.before().map(|before| before.file);
            let found = entry.metadata()?;
            if before != Some((found.dev(), found.ino())) {
                return Err(changed_meanwhile());
            }
            // What was written back in part is no longer what the step left.
            match progress.after.as_ref().filter(|_| !is_repeated) {
                Some(after) => check_unchanged(&entry, Some(after))?,
                None if is_own_write(commit, number)? => {}
                None => return Err(changed_meanwhile()),
            }
            let kept = kept_in_try(trees, number)?;
            match kept.metadata() {
                // It was taken back before, and there was no room to note that.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(found) if found.is_file() => install::write_into(&kept, &entry, &found)?,
                found => {
                    found?;
                    linked_names::write_into_original(&kept, &entry)?;
                }
            }
            rejoin(commit, step)
        }
        Step::Install { way: Way::Directly, .. } => match progress.kept {
            Some(_) => trees.lower.entry(&path)?.remove_all(),
            None => Ok(()),
        },
        Step::Install { before, mode, new, .. } => {
            trees.lower.forget();
            let new = new.map(|new| EntryState { changed: noted, ..new });
            take_name(commit, number, &path, (before.as_ref(), new, *mode))
        }
        Step::Dress { .. } | Step::SetTime { .. } => {
            let Some((entry, _)) = found_at(&trees.lower, &path).map_err(io::Error::other)? else {
                return Ok(());
            };
            match &progress.kept {
                Some(Kept::Metadata(kept)) => kept.apply(&entry),
                Some(Kept::Time(time)) => apply_time(&entry, *time),
                _ => Ok(()),
            }
        }
    }
}

/// True if a step that writes into its file has left that as it was, or has written what it has
/// now.
pub(super) fn is_own_write(commit: &RunningCommit, number: usize) -> io::Result<bool> {
    let (trees, step) = (&commit.trees, &commit.journal.steps[number]);
    let Some((entry, found)) = found_at(&trees.lower, &step.path()).map_err(io::Error::other)?
    else {
        return Ok(false);
    };
    let now = EntryState::of(&found);
    match step.before() {
        Some(before) if before.is_still(&now) => return Ok(true),
        Some(before) if before.file == now.file => {}
        _ => return Ok(false),
    }
    let from = match step {
        Step::Join { copy, .. } => trees.in_overlay(&copy.path()).map_err(io::Error::other)?,
        _ => trees.upper.entry(&step.path())?,
    };
    // It was written from one of these, or back from the other.
    let kept = kept_in_try(trees, number)?;
    Ok(install::is_begun(&from, &entry)? || kept.exists() && install::is_begun(&kept, &entry)?)
}

/// Makes the upper names that were joined to an original names of the copy again.
fn rejoin(commit: &RunningCommit, step: &Step) -> io::Result<()> {
    let Step::Join { copy, kept, joined, .. } = step else { return Ok(()) };
    let find = |path: &JournalPath| commit.trees.in_overlay(&path.path()).map_err(io::Error::other);
    let copy = find(copy)?;
    for name in kept.iter().chain(joined) {
        linked_names::link_again(&copy, &find(name)?)?;
    }
    Ok(())
}

/// Moves a new entry from its name back to where it came from, and what had the name to it. `new`
/// is the upper entry, as it was when nothing in it was changed yet.
fn take_name(
    commit: &RunningCommit,
    number: usize,
    path: &Path,
    (before, new, mode): (Option<&EntryState>, Option<EntryState>, Option<u32>),
) -> io::Result<()> {
    let (trees, progress) = (&commit.trees, commit.journal.progress(number));
    let upper = trees.upper.entry(path)?;
    let Some(to) = trees.lower.entry(path).ok() else { return Ok(()) };
    let copied = match &commit.journal.steps[number] {
        Step::Install { way: Way::Copy, .. } => true,
        // The copy has its name, or is beside it.
        _ => progress.is_beside && upper.exists() && find_kept(trees, &to, number)?.is_none(),
    };
    let source = if copied { new_beside(&to, number) } else { upper };
    if copied && !commit.journal.is_staged && !progress.is_beside {
        return Ok(());
    }
    let is_old =
        |found: &Metadata| before.is_some_and(|before| before.file == (found.dev(), found.ino()));
    let kept = find_kept(trees, &to, number)?;
    let there = source.metadata().ok();
    let check = || match (&progress.after, new) {
        (Some(after), _) => check_unchanged(&to, Some(after)),
        // It was interrupted before that could be noted.
        (None, Some(new)) => check_as_planned(&to, &new, copied),
        (None, None) => Ok(()),
    };
    let move_back = || check().and_then(|()| move_back(&to, &source, mode));
    match (&kept, &there) {
        // Both were moved, or one of them.
        (Some(kept), there) => {
            if there.is_none() {
                move_back()?;
            }
            move_entry(kept, &to)
        }
        (None, None) => move_back(),
        (None, Some(there)) if is_old(there) => {
            check()?;
            let exchange = || source.exchange_with(&to);
            let exchange = || source.directory().change_entries(exchange);
            to.directory().change_entries(exchange)
        }
        // It never got its name.
        (None, Some(_)) => Ok(()),
    }
}

fn move_back(to: &HeldEntry, source: &HeldEntry, mode: Option<u32>) -> io::Result<()> {
    move_entry(to, source)?;
    match mode.filter(|mode| source.metadata().is_ok_and(|found| found.mode() != *mode)) {
        Some(mode) => source.set_mode(mode),
        None => Ok(()),
    }
}

/// Fails if the entry is another than `after`, or something in it was changed later.
fn check_unchanged(entry: &HeldEntry, after: Option<&EntryState>) -> io::Result<()> {
    let Some(after) = after else { return Ok(()) };
    let found = entry.metadata()?;
    let is_same = after.is_still(&EntryState::of(&found));
    match is_same && !(found.is_dir() && has_later_change(entry, after.changed)?) {
        true => Ok(()),
        false => Err(changed_meanwhile()),
    }
}

/// Fails if the entry is not `new` or a copy of it, or something in it was changed later. Of a copy
/// that is not asked: it was made later itself.
fn check_as_planned(entry: &HeldEntry, new: &EntryState, is_copied: bool) -> io::Result<()> {
    let found = entry.metadata()?;
    let is_it = new.has_contents_of(&EntryState::of(&found));
    match is_it && !(found.is_dir() && !is_copied && has_later_change(entry, new.changed)?) {
        true => Ok(()),
        false => Err(changed_meanwhile()),
    }
}

/// True if anything below the directory was changed after `time`. Of a file with several names that
/// is not said: its time of change is that of any of its names.
fn has_later_change(directory: &HeldEntry, time: (i64, i64)) -> io::Result<bool> {
    let held = directory.hold_widened()?;
    for name in held.names()? {
        let entry = held.entry(&name);
        let found = entry.metadata()?;
        let changed = (found.ctime(), found.ctime_nsec());
        // What is only looked into may get wider permissions meanwhile.
        let is_later = match found.is_dir() {
            true => changed.min((found.mtime(), found.mtime_nsec())) > time,
            false => changed > time,
        };
        if is_later && (found.is_dir() || found.nlink() == 1)
            || found.is_dir() && has_later_change(&entry, time)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True if a step was done and that was not noted.
pub(super) fn was_done(commit: &RunningCommit, number: usize) -> Result<bool> {
    let (trees, path) = (&commit.trees, commit.journal.steps[number].path());
    let Ok(entry) = trees.lower.entry(&path) else { return Ok(false) };
    let is_kept = || find_kept(trees, &entry, number).map_err(io_error("examine", &path));
    if commit.journal.preamble.is_nested {
        return Ok(match &commit.journal.steps[number] {
            Step::Remove { .. } => !entry.exists(),
            Step::Install { .. } => found_at(&trees.upper, &path)?.is_none(),
            _ => true,
        });
    }
    Ok(match &commit.journal.steps[number] {
        Step::Remove { .. } => !entry.exists() && is_kept()?.is_some(),
        Step::Install { way: Way::Directly, .. } => commit.journal.progress(number).kept.is_some(),
        Step::Install { way: Way::Copy, .. } if !commit.journal.is_staged => false,
        Step::Install { before, way, .. } => {
            let source = match way {
                Way::Copy => new_beside(&entry, number).metadata().ok(),
                _ => found_at(&trees.upper, &path)?.map(|(_, found)| found),
            };
            is_kept()?.is_some()
                || source.is_none_or(|found| {
                    before.is_some_and(|before| before.file == (found.dev(), found.ino()))
                })
        }
        _ => commit.journal.progress(number).kept.is_some(),
    })
}

/// Removes what is kept beside names, when the commit is final. The directories get their times
/// again.
pub(super) fn remove_kept(commit: &mut RunningCommit) -> Result<()> {
    // The steps may have taken rights to directories away.
    let lower = HeldTree::whole_widened(&commit.trees.lower);
    let lower = lower.map_err(io_error("open", Path::new("/")))?;
    let mut is_changed = false;
    for (number, step) in commit.journal.steps.iter().enumerate() {
        let is_copy = matches!(step, Step::Install { way: Way::Copy, .. });
        if !is_copy && !commit.journal.progress(number).is_beside {
            continue;
        }
        let Ok(entry) = lower.entry(&step.path()) else { continue };
        for beside in [new_beside(&entry, number), old_beside(&entry, number)] {
            let removed = entry.directory().change_entries(|| beside.remove_all());
            removed.map_err(io_error("remove", &beside.path()))?;
            is_changed = true;
        }
    }
    if !is_changed {
        return Ok(());
    }
    for step in &commit.journal.steps {
        if let Step::SetTime { path, time } = step
            && let Some((entry, _)) = found_at(&lower, &path.path())?
        {
            apply_time(&entry, *time).map_err(io_error("change", &path.path()))?;
        }
    }
    Ok(())
}
