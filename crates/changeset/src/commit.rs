//! Commit of a try.
//!
//! All changes are checked first, and nothing is done if another process has changed any of their
//! names meanwhile, if a right is missing, or if there is no room. Then the steps are written to a
//! journal. Copies for other file systems are made, and the steps are carried out: contents of
//! files with several names; removals, deepest first; new entries; permissions and times of
//! directories.
//!
//! What a step replaces is kept until all are done. If one fails, all are taken back. A commit
//! that was killed is resumed, or taken back by an undo. Neither is done over changes of others.
//!
//! Of chosen changes the same is done. The others stay in the try, and its records become those of
//! this rest.
//!
//! Nothing is forced to storage (fsync(2)), as the command itself would not have done. After a
//! crash of the machine the file system is as if it had crashed just after the command.
//!
//! | module | contents |
//! |---|---|
//! | `commit_steps` | the steps, and how they follow from the changes |
//! | `entry_state` | the identity of an entry |
//! | `file_rights` | rights and attributes that the kernel asks for |
//! | `fresh_origins` | origins after steps were taken back, and of a rest |
//! | `held_trees` | the trees that steps work on |
//! | `kept_entries` | names of what is kept |
//! | `remaining_changes` | the rest of a try after some of its changes have left it |
//! | `rights_check` | the look at rights before a commit |
//! | `step_execution` | the execution of a step |
//! | `step_journal` | the file of steps and of what is done |
//! | `step_reversal` | steps taken back |
//! | `stopping_points` | points at which tests stop a commit |

mod commit_steps;
mod entry_state;
mod file_rights;
mod fresh_origins;
mod held_trees;
mod kept_entries;
mod remaining_changes;
mod rights_check;
mod step_execution;
mod step_journal;
mod step_reversal;
mod stopping_points;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use commit_steps::{JournalPath, Step, Way, found_at};
use entry_state::EntryState;
use held_trees::HeldTrees;
use kept_entries::{REPLACED, new_beside};
use step_execution::RunningCommit;
use step_journal::{JOURNAL, Journal, Preamble};

use crate::chosen_changes::Purpose;
use crate::chosen_paths::ChosenPaths;
use crate::copied_entry::CopiedFiles;
use crate::held_tree::HeldEntry;
use crate::store::Try;
use crate::try_changes::{Changes, FileType};
use crate::{Change, ChangeKind, Error, ReadComparison, Result, io_error};
use crate::{narrowed_modes, needed_room, recorded_reads};

/// Outcome of a commit.
#[derive(Debug)]
pub enum CommitOutcome {
    /// Committed, and the try is dropped. The changes, unless the commit was resumed.
    Done(Option<Changes>),
    /// Chosen changes are committed, as before. The number of those that stay in the try.
    Partly(Option<Changes>, usize),
    /// Refused: another process has changed these meanwhile.
    Conflicts(Vec<Change>),
    /// Refused: another process has changed what the try has read.
    StaleReads(ReadComparison),
}

/// Outcome of an undo.
#[derive(Debug)]
pub enum UndoOutcome {
    /// The try is dropped with all its changes.
    Dropped,
    /// Chosen changes are dropped; `None` if an interrupted undo of them was finished. The number
    /// of those that stay in the try.
    Partly(Option<Changes>, usize),
    /// An interrupted commit of chosen changes is taken back. All changes are in the try as before.
    TakenBack,
}

/// State of a commit that was interrupted.
#[derive(Debug)]
pub struct Interruption {
    /// Number of steps that are done.
    pub done: usize,
    /// Paths of all steps, and for each whether it is done.
    pub steps: Vec<(PathBuf, bool)>,
    /// Paths that were chosen; none if all changes are committed.
    pub chosen: Vec<PathBuf>,
    /// True if the changes at and below these were undone, not committed.
    pub is_undo: bool,
}

/// Commits a try and drops it. `force` overwrites what another process has changed meanwhile, and
/// compares nothing that was read.
pub fn commit(tried: &Try, force: bool) -> Result<CommitOutcome> {
    commit_chosen(tried, None, force)
}

/// Commits the changes at and below chosen paths. The others stay in the try; without any it is
/// dropped. Without paths it commits all changes, or resumes what was interrupted.
pub fn commit_chosen(
    tried: &Try,
    paths: Option<&ChosenPaths>,
    force: bool,
) -> Result<CommitOutcome> {
    let _lock = tried.lock_ended()?;
    narrowed_modes::narrow_left(&tried.overlay_directory());
    tried.check_no_nested()?;
    if let Some((_, 0)) = finish_undo(tried)? {
        return Ok(CommitOutcome::Done(Some(Changes::default())));
    }
    let mut committed = None;
    let mut running = match is_interrupted(tried) {
        true if paths.is_some() => return Err(Error::Interrupted(tried.meta.id.clone())),
        true => {
            let running = open(tried)?;
            let conflicts = running.conflicts()?;
            if !conflicts.is_empty() && !force {
                return Ok(CommitOutcome::Conflicts(conflicts));
            }
            running
        }
        false => {
            let all = Changes::read(&tried.overlay_directory())?;
            let some = paths.map(|paths| all.choose(tried, paths, Purpose::Commit)).transpose()?;
            let some = some.filter(|some| some.len() < all.len());
            let paths = paths.filter(|_| some.is_some());
            let changes = some.unwrap_or(all);
            let conflicts: Vec<_> = changes.conflicts().cloned().collect();
            if !conflicts.is_empty() && !force {
                return Ok(CommitOutcome::Conflicts(conflicts));
            }
            if !force && !tried.ignores_reads {
                let reads = recorded_reads::compare(&tried.overlay_directory())?;
                if !reads.stale.is_empty() {
                    return Ok(CommitOutcome::StaleReads(reads));
                }
            }
            let started = start(tried, &changes, paths, force).map_err(nothing_was_done)?;
            committed = Some(changes);
            started
        }
    };
    if let Err(error) = carry_out(&mut running) {
        return Err(stop(tried, running, error));
    }
    if let Some(chosen) = running.journal.preamble.chosen.clone() {
        return Ok(match remaining_changes::leave_rest(tried, running, &chosen)? {
            0 => CommitOutcome::Done(committed),
            left => CommitOutcome::Partly(committed, left),
        });
    }
    drop_committed(tried, running)?;
    Ok(CommitOutcome::Done(committed))
}

/// True if a commit of the try, or an undo of chosen changes, was interrupted.
pub fn is_interrupted(tried: &Try) -> bool {
    tried.directory().join(JOURNAL).exists()
}

/// State of the commit of a try, if it was interrupted.
pub fn interruption(tried: &Try) -> Result<Option<Interruption>> {
    if !is_interrupted(tried) {
        return Ok(None);
    }
    let journal = Journal::open(tried.directory())?;
    let is_done = |number: usize| journal.progress(number).is_done;
    let steps = journal.steps.iter().enumerate();
    let steps = steps.map(|(number, step)| (step.path(), is_done(number))).collect();
    let chosen = journal.preamble.chosen.as_ref();
    Ok(Some(Interruption {
        done: journal.done(),
        steps,
        chosen: chosen.map(|chosen| chosen.paths().roots().to_vec()).unwrap_or_default(),
        is_undo: chosen.is_some_and(|chosen| chosen.is_undo),
    }))
}

/// Drops a try and its changes. What an interrupted commit has done is taken back first.
pub fn undo(tried: &Try) -> Result<UndoOutcome> {
    undo_chosen(tried, None)
}

/// Drops the changes at and below chosen paths; without paths, all changes. Nothing in the lower
/// tree is changed, except by taking back what an interrupted commit has done.
pub fn undo_chosen(tried: &Try, paths: Option<&ChosenPaths>) -> Result<UndoOutcome> {
    let _lock = tried.lock_ended()?;
    narrowed_modes::narrow_left(&tried.overlay_directory());
    match finish_undo(tried)? {
        Some((_, 0)) => return Ok(UndoOutcome::Dropped),
        Some((undone, left)) if paths == Some(&undone) => {
            return Ok(UndoOutcome::Partly(None, left));
        }
        _ => {}
    }
    if is_interrupted(tried) {
        if paths.is_some() {
            return Err(Error::Interrupted(tried.meta.id.clone()));
        }
        let mut running = open(tried)?;
        if running.journal.is_final || running.journal.preamble.is_nested {
            return Err(Error::HalfCommitted(tried.meta.id.clone()));
        }
        if running.journal.preamble.chosen.is_some() {
            take_back(tried, &mut running)?;
            running.journal.remove()?;
            return Ok(UndoOutcome::TakenBack);
        }
        step_reversal::take_back(&mut running)?;
    }
    if let Some(paths) = paths {
        tried.check_no_nested()?;
        let all = Changes::read(&tried.overlay_directory())?;
        let some = all.choose(tried, paths, Purpose::Undo)?;
        if some.len() < all.len() {
            let trees = HeldTrees::hold(tried)?;
            let choice = remaining_changes::describe_choice(tried, &trees, (paths, &some), None)?;
            let preamble = Preamble {
                times: Vec::new(),
                is_nested: tried.meta.inside.is_some(),
                upper_times: remaining_changes::upper_times_after_undo(tried, &all, paths)?,
                chosen: Some(choice.clone()),
            };
            let journal = Journal::create(tried.directory(), preamble, Vec::new())?;
            let running = RunningCommit { trees, journal, copied: CopiedFiles::default() };
            return Ok(match remaining_changes::leave_rest(tried, running, &choice)? {
                0 => UndoOutcome::Dropped,
                left => UndoOutcome::Partly(Some(some), left),
            });
        }
    }
    tried.remove()?;
    Ok(UndoOutcome::Dropped)
}

/// Finishes an undo of chosen changes that was interrupted. Returns its paths and the number of
/// changes that are left.
fn finish_undo(tried: &Try) -> Result<Option<(ChosenPaths, usize)>> {
    if !is_interrupted(tried) {
        return Ok(None);
    }
    let running = open(tried)?;
    let Some(chosen) = running.journal.preamble.chosen.clone().filter(|chosen| chosen.is_undo)
    else {
        return Ok(None);
    };
    let left = remaining_changes::leave_rest(tried, running, &chosen)?;
    Ok(Some((chosen.paths(), left)))
}

/// Opens the journal of an interrupted commit.
fn open(tried: &Try) -> Result<RunningCommit> {
    let journal = Journal::open(tried.directory())?;
    make_kept_directory(tried)?;
    Ok(RunningCommit { trees: HeldTrees::hold(tried)?, journal, copied: CopiedFiles::default() })
}

/// Error of a commit that failed before its first step, where it does not say so itself.
fn nothing_was_done(error: Error) -> Error {
    match error {
        Error::Io { .. } => Error::Refused(error.to_string()),
        other => other,
    }
}

fn make_kept_directory(tried: &Try) -> Result<()> {
    let kept = tried.directory().join(REPLACED);
    let made = DirBuilder::new().mode(0o700).recursive(true).create(&kept);
    made.map_err(io_error("make", &kept))
}

/// Looks whether all steps can be carried out, and writes the journal. `paths` are those that were
/// chosen, if other changes stay in the try.
fn start(
    tried: &Try,
    changes: &Changes,
    paths: Option<&ChosenPaths>,
    is_forced: bool,
) -> Result<RunningCommit> {
    let is_nested = tried.meta.inside.is_some();
    needed_room::check(changes, &tried.overlay_directory())?;
    let trees = HeldTrees::hold(tried)?;
    let steps = commit_steps::plan(changes, &trees, (is_nested, is_forced))?;
    if !is_nested {
        rights_check::check(&steps, &trees)?;
    }
    make_kept_directory(tried)?;
    let changed: BTreeSet<PathBuf> = steps
        .iter()
        .filter(|step| !matches!(step, Step::SetTime { .. } | Step::Dress { .. }))
        .filter_map(|step| step.path().parent().map(PathBuf::from))
        .collect();
    let mut times = Vec::new();
    for path in changed {
        if path.file_name().is_some()
            && let Some((_, found)) = found_at(&trees.lower, &path)?
        {
            times.push((JournalPath::of(&path), (found.mtime(), found.mtime_nsec())));
        }
    }
    let describe =
        |paths| remaining_changes::describe_choice(tried, &trees, (paths, changes), Some(&steps));
    let preamble = Preamble {
        times,
        is_nested,
        upper_times: remaining_changes::upper_times(&trees, &steps, paths)?,
        chosen: paths.map(describe).transpose()?,
    };
    if !is_nested {
        fresh_origins::reserve(&tried.overlay_directory())?;
    }
    let journal = Journal::create(tried.directory(), preamble, steps)?;
    Ok(RunningCommit { trees, journal, copied: CopiedFiles::default() })
}

/// Makes the copies that are missing, and carries out the steps that are not done.
fn carry_out(running: &mut RunningCommit) -> Result<()> {
    if !running.journal.is_staged {
        stage(running)?;
        running.journal.note_staged()?;
    } else if running.copied.is_empty() {
        recall_copies(running)?;
    }
    for number in 0..running.journal.steps.len() {
        if !running.journal.progress(number).is_done {
            step_execution::execute(running, number)?;
        }
    }
    match running.journal.is_final {
        true => Ok(()),
        false => running.journal.note_final(),
    }
}

/// Makes the copies that new entries on other file systems need, beside their names.
fn stage(running: &mut RunningCommit) -> Result<()> {
    add_originals(running)?;
    let steps = running.journal.steps.clone();
    for (number, step) in steps.iter().enumerate() {
        let Step::Install { path, way: Way::Copy, .. } = step else { continue };
        let path = path.path();
        let failed = || io_error("copy a file to", &path);
        let from = running.trees.upper.entry(&path).map_err(failed())?;
        let to = running.trees.lower.entry(&path).map_err(failed())?;
        step_execution::copy_beside(running, &from, &to, number).map_err(failed())?;
        stopping_points::pass().map_err(io_error("copy a file to", &path))?;
    }
    Ok(())
}

/// Adds the originals on other file systems: further names become links to them there.
fn add_originals(running: &mut RunningCommit) -> Result<()> {
    for step in &running.journal.steps {
        let Step::Join { copy, original, before, .. } = step else { continue };
        let copy = running.trees.in_overlay(&copy.path())?;
        let found = copy.metadata().map_err(io_error("examine", &copy.path()))?;
        if found.dev() != before.file.0 {
            running.copied.add(&found, &original.path());
        }
    }
    Ok(())
}

/// Adds the copies that an interrupted commit has made, so that further names become links to them.
fn recall_copies(running: &mut RunningCommit) -> Result<()> {
    add_originals(running)?;
    for (number, step) in running.journal.steps.iter().enumerate() {
        let Step::Install { path, before, way: Way::Copy | Way::Directly, .. } = step else {
            continue;
        };
        let path = path.path();
        let is_new = |entry: &HeldEntry| {
            let file = |found: Metadata| (found.dev(), found.ino());
            let before = before.as_ref().map(|before| before.file);
            entry.metadata().is_ok_and(|found| Some(file(found)) != before)
        };
        let (trees, copied) = (&running.trees, &mut running.copied);
        let recalled = trees.upper.entry(&path).and_then(|from| {
            let to = trees.lower.entry(&path)?;
            let mut places = [new_beside(&to, number), to].into_iter();
            places.find(is_new).map_or(Ok(()), |copy| copied.recall(&from, &copy))
        });
        recalled.map_err(io_error("examine", &path))?;
    }
    Ok(())
}

/// Takes back what a commit that failed has done. Returns the error to report.
fn stop(tried: &Try, mut running: RunningCommit, error: Error) -> Error {
    if stopping_points::is_killed() || running.journal.preamble.is_nested {
        return error;
    }
    let back = take_back(tried, &mut running).and_then(|()| running.journal.remove());
    match back {
        Ok(()) => Error::TakenBack(Box::new(error)),
        Err(back) => {
            let id = tried.meta.id.clone();
            Error::Stopped { id, error: Box::new(error), back: Box::new(back) }
        }
    }
}

fn take_back(tried: &Try, running: &mut RunningCommit) -> Result<()> {
    let taken_back = step_reversal::take_back(running)?;
    remaining_changes::set_upper_times(&running.trees, &running.journal.preamble.upper_times)?;
    fresh_origins::refresh(&tried.overlay_directory(), &taken_back)
}

/// Drops a try whose commit is final, and what was kept beside names.
fn drop_committed(tried: &Try, mut running: RunningCommit) -> Result<()> {
    step_reversal::remove_kept(&mut running)?;
    drop(running);
    tried.remove()
}

impl RunningCommit {
    /// Names that steps which are left would change, and that another process has changed.
    fn conflicts(&self) -> Result<Vec<Change>> {
        let mut conflicts = Vec::new();
        if self.journal.is_final {
            return Ok(conflicts);
        }
        let written: BTreeMap<(u64, u64), usize> = self
            .journal
            .steps
            .iter()
            .enumerate()
            .filter(|(number, step)| {
                step.writes_in_place() && self.journal.progress(*number).kept.is_some()
            })
            .filter_map(|(number, step)| Some((step.before()?.file, number)))
            .collect();
        let restored = self.journal.restored();
        let mut is_removed = BTreeSet::new();
        for (number, step) in self.journal.steps.iter().enumerate() {
            let is_time = matches!(step, Step::SetTime { .. });
            if is_time || self.journal.progress(number).is_done {
                continue;
            }
            let path = step.path();
            // A new entry takes the name of one that is still to be removed.
            if matches!(step, Step::Remove { .. }) {
                is_removed.insert(path.clone());
            } else if is_removed.contains(&path) {
                continue;
            }
            let found = found_at(&self.trees.lower, &path)?;
            let now = found.as_ref().map(|(_, found)| EntryState::of(found));
            let is_ours = |now: &EntryState| written.contains_key(&now.file);
            let is_as_before = match (step.before(), &now) {
                (None, None) => true,
                (Some(before), Some(now)) => {
                    let expected = restored.get(&before.file).unwrap_or(before);
                    expected.is_still(now) || before.file == now.file && is_ours(now)
                }
                _ => false,
            };
            let is_done =
                match step.writes_in_place() && self.journal.progress(number).kept.is_some() {
                    true => step_reversal::is_own_write(self, number)
                        .map_err(io_error("examine", &path))?,
                    false => is_as_before || step_reversal::was_done(self, number)?,
                };
            if is_done {
                continue;
            }
            let text = match (step.before(), &now) {
                (None, _) => "it was made meanwhile",
                (_, None) => "it was removed meanwhile",
                _ => "it was changed meanwhile",
            };
            conflicts.push(Change {
                path,
                kind: match step {
                    Step::Remove { .. } => ChangeKind::Deleted,
                    Step::Dress { .. } => ChangeKind::Attributes,
                    _ => ChangeKind::Modified,
                },
                file_type: found.map_or(FileType::File, |(_, found)| FileType::of(&found)),
                conflict: Some(text.to_owned()),
                in_new_directory: false,
                replaces_other_type: false,
            });
        }
        Ok(conflicts)
    }
}

#[cfg(test)]
mod choice_tests;
#[cfg(test)]
mod tests;
