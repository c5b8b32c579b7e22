//! Commit of a try.
//!
//! All changes are checked first, and nothing is done if another process has changed any of their
//! names meanwhile. Then the steps are written to a journal and carried out: contents of files with
//! several names; removals, deepest first; new entries, renamed into place; permissions and times
//! of directories. Each step can be repeated, and a completed step is noted in the journal. So an
//! interrupted commit is resumed, unless another process has changed what is left to do.
//!
//! Nothing is forced to storage (fsync(2)), as the command itself would not have done. After a
//! crash of the machine the file system is as if it had crashed just after the command.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use runahead_abi::overlay::UPPER;
use serde::{Deserialize, Serialize};

use crate::copied_entry::CopiedFiles;
use crate::entry_metadata::{copy_metadata, modified_at};
use crate::held_tree::{HeldEntry, HeldTree};
use crate::store::Try;
use crate::try_changes::{ChangeKind, Changes, FileType};
use crate::{Change, Error, ReadComparison, Result, install, io_error};
use crate::{linked_names, needed_room, recorded_reads};

/// Name of the journal: steps as JSON, one per line, then a line [`DONE`] for each completed step.
const JOURNAL: &str = "journal";
const DONE: &str = "done";

/// Path as bytes: JSON has text only.
#[derive(Debug, Serialize, Deserialize)]
struct JournalPath(Vec<u8>);

impl JournalPath {
    fn of(path: &Path) -> Self {
        JournalPath(path.as_os_str().as_bytes().to_vec())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(std::ffi::OsString::from_vec(self.0.clone()))
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum Step {
    /// Writes a copy into its original, both named first, and joins upper names to that.
    Join(JournalPath, JournalPath, Vec<JournalPath>, Vec<JournalPath>),
    /// Removes an entry that is no directory.
    Unlink(JournalPath),
    /// Removes an empty directory.
    RemoveDirectory(JournalPath),
    /// Moves the upper entry into place.
    Install(JournalPath),
    /// Gives a directory the upper one's owner, permissions and attributes.
    Dress(JournalPath),
    /// Sets a directory's modification time: seconds and nanoseconds.
    SetTime(JournalPath, i64, i64),
}

/// Outcome of a commit.
#[derive(Debug)]
pub enum CommitOutcome {
    /// Committed, and the try is dropped. The changes, of a commit that was resumed those that were
    /// left.
    Done(Changes),
    /// Refused: another process has changed these meanwhile.
    Conflicts(Vec<Change>),
    /// Refused: another process has changed what the try has read.
    StaleReads(ReadComparison),
}

/// Commits a try and drops it. `force` overwrites what another process has changed meanwhile, and
/// compares nothing that was read.
pub fn commit(tried: &Try, force: bool) -> Result<CommitOutcome> {
    let _lock = tried.lock_ended()?;
    let journal = tried.directory().join(JOURNAL);
    let is_resumed = journal.exists();
    tried.check_no_nested()?;
    let changes = Changes::read(&tried.overlay_directory())?;
    let mut conflicts: Vec<_> = changes.conflicts().cloned().collect();
    if is_resumed {
        let steps = Journal::read(&journal)?;
        let (own, upper) = (OwnChanges::of(&steps), tried.overlay_directory().join(UPPER));
        conflicts.retain(|conflict| {
            steps.will_change(&conflict.path, &upper) && !own.explain(&conflict.path)
        });
    }
    if !conflicts.is_empty() && !force {
        return Ok(CommitOutcome::Conflicts(conflicts));
    }
    if !is_resumed && !force && !tried.ignores_reads {
        let reads = recorded_reads::compare(&tried.overlay_directory())?;
        if !reads.stale.is_empty() {
            return Ok(CommitOutcome::StaleReads(reads));
        }
    }
    if !is_resumed {
        needed_room::check(&changes, &tried.overlay_directory())?;
        write_journal(&journal, &steps(&changes))?;
    }
    carry_out(tried, &journal, usize::MAX)?;
    tried.remove()?;
    Ok(CommitOutcome::Done(changes))
}

/// True if a commit of the try was interrupted.
pub fn is_interrupted(tried: &Try) -> bool {
    tried.directory().join(JOURNAL).exists()
}

/// Drops a try and its changes.
pub fn undo(tried: &Try) -> Result<()> {
    let _lock = tried.lock_ended()?;
    if is_interrupted(tried) {
        return Err(Error::HalfCommitted(tried.meta.id.clone()));
    }
    tried.remove()
}

fn steps(changes: &Changes) -> Vec<Step> {
    let mut removed: Vec<_> =
        changes.of_kind(ChangeKind::Deleted).chain(changes.replaced.values()).collect();
    removed.sort_by(|a, b| b.path.cmp(&a.path));
    let removed = removed.into_iter().map(|change| match change.file_type {
        FileType::Directory => Step::RemoveDirectory(JournalPath::of(&change.path)),
        _ => Step::Unlink(JournalPath::of(&change.path)),
    });
    let comes = |change: &&Change| {
        matches!(change.kind, ChangeKind::Added | ChangeKind::Modified) && !change.in_new_directory
    };
    let installed = changes.iter().filter(comes).flat_map(|change| {
        // With force, an entry of another type may be in the way.
        let way = change.replaces_other_type && !changes.replaced.contains_key(&change.path);
        let unlink = way.then(|| Step::Unlink(JournalPath::of(&change.path)));
        unlink.into_iter().chain([Step::Install(JournalPath::of(&change.path))])
    });
    let dressed = changes
        .of_kind(ChangeKind::Attributes)
        .map(|change| Step::Dress(JournalPath::of(&change.path)));
    let time = |(path, time): (&PathBuf, &(i64, i64))| {
        Step::SetTime(JournalPath::of(path), time.0, time.1)
    };
    let times = changes.times.iter().map(time);
    // Deepest first: a change to an entry sets the time of its directory.
    let mut last: Vec<_> = dressed.chain(times).collect();
    last.reverse();
    join_steps(changes).chain(removed).chain(installed).chain(last).collect()
}

/// Steps for files with several names, before any name is removed.
fn join_steps(changes: &Changes) -> impl Iterator<Item = Step> {
    let list = |paths: &[PathBuf]| paths.iter().map(|path| JournalPath::of(path)).collect();
    changes.linked.iter().map(move |names| {
        let (copy, original) = (JournalPath::of(&names.copy), JournalPath::of(&names.original));
        Step::Join(copy, original, list(&names.kept), list(&names.joined))
    })
}

fn write_journal(journal: &Path, steps: &[Step]) -> Result<()> {
    let new = journal.with_extension("new");
    let mut text = Vec::new();
    for step in steps {
        text.extend(serde_json::to_vec(step).unwrap_or_default());
        text.push(b'\n');
    }
    text.extend(b"\n");
    fs::write(&new, text).map_err(io_error("write", &new))?;
    fs::rename(&new, journal).map_err(io_error("write", journal))
}

/// Steps of a commit, and how many of them are done.
struct Journal {
    steps: Vec<Step>,
    done: usize,
}

impl Journal {
    fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(io_error("read", path))?;
        let mut journal = Journal { steps: Vec::new(), done: 0 };
        let mut lines = BufReader::new(file).lines();
        for line in lines.by_ref() {
            let line = line.map_err(io_error("read", path))?;
            if line.is_empty() {
                break;
            }
            let broken =
                |e: serde_json::Error| Error::Broken { path: path.to_owned(), why: e.to_string() };
            journal.steps.push(serde_json::from_str::<Step>(&line).map_err(broken)?);
        }
        for line in lines {
            journal.done += usize::from(line.map_err(io_error("read", path))? == DONE);
        }
        Ok(journal)
    }

    /// True if a step that is not done changes `path`. `upper` is the upper tree.
    fn will_change(&self, path: &Path, upper: &Path) -> bool {
        let is_left = |name: &Path| fs::symlink_metadata(upper_name(upper, name)).is_ok();
        self.steps.iter().skip(self.done).any(|step| match step {
            Step::Unlink(name) | Step::RemoveDirectory(name) | Step::Dress(name) => {
                name.path() == path
            }
            Step::Install(name) => name.path() == path && is_left(path),
            Step::Join(_, original, ..) => original.path() == path,
            Step::SetTime(..) => false,
        })
    }
}

/// Returns the name of `path` in the upper tree.
fn upper_name(upper: &Path, path: &Path) -> PathBuf {
    upper.join(path.strip_prefix("/").unwrap_or(path))
}

/// Changes of the lower tree by an interrupted commit: no conflicts with another process.
#[derive(Default)]
struct OwnChanges {
    /// Names that were removed.
    removed: BTreeSet<PathBuf>,
    /// Device and inode numbers of files that were written in place.
    written: BTreeSet<(u64, u64)>,
}

impl OwnChanges {
    fn of(journal: &Journal) -> Self {
        let mut own = OwnChanges::default();
        // The last step may have been done and not noted.
        for step in journal.steps.iter().take(journal.done + 1) {
            match step {
                Step::Unlink(path) | Step::RemoveDirectory(path) => {
                    own.removed.insert(path.path());
                }
                Step::Join(_, original, ..) => {
                    let found = fs::symlink_metadata(original.path());
                    own.written.extend(found.ok().map(|found| (found.dev(), found.ino())));
                }
                Step::Install(_) | Step::Dress(_) | Step::SetTime(..) => {}
            }
        }
        own
    }

    /// True if the interrupted commit left `path` as it is now.
    fn explain(&self, path: &Path) -> bool {
        match fs::symlink_metadata(path) {
            // What another process has made in a directory keeps it from being removed.
            Ok(found) if found.is_dir() => {
                self.removed.iter().any(|removed| removed.parent() == Some(path))
            }
            Ok(found) => self.written.contains(&(found.dev(), found.ino())),
            Err(_) => self.removed.contains(path),
        }
    }
}

/// Trees that the steps of a commit work on.
struct Trees {
    /// The tree that is changed.
    lower: HeldTree,
    /// The upper tree of the try.
    upper: HeldTree,
    /// The try's directory.
    overlay: HeldTree,
    /// Files that were copied to another file system.
    copied: CopiedFiles,
}

impl Trees {
    fn hold(tried: &Try) -> Result<Self> {
        let directory = tried.overlay_directory();
        let upper = directory.join(UPPER);
        Ok(Trees {
            lower: HeldTree::whole().map_err(io_error("open", Path::new("/")))?,
            upper: HeldTree::of_try(&upper).map_err(io_error("open", &upper))?,
            overlay: HeldTree::of_try(&directory).map_err(io_error("open", &directory))?,
            copied: CopiedFiles::default(),
        })
    }
}

/// Carries out at most `most` of the journal's steps that are not done.
fn carry_out(tried: &Try, journal: &Path, most: usize) -> Result<()> {
    let Journal { steps, done } = Journal::read(journal)?;
    let notes = File::options().append(true).open(journal);
    let mut notes = notes.map_err(io_error("write", journal))?;
    let mut trees = Trees::hold(tried)?;
    for step in steps.iter().skip(done).take(most) {
        carry_out_step(step, tried, &mut trees)?;
        writeln!(notes, "{DONE}").map_err(io_error("write", journal))?;
    }
    Ok(())
}

/// Returns the result, or nothing if the entry does not exist.
fn unless_gone<T>(found: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Removes an entry by `work`, unless it is gone.
fn remove_from(
    lower: &HeldTree,
    path: &Path,
    work: fn(&HeldEntry) -> std::io::Result<()>,
) -> Result<()> {
    let entry = lower.entry(path).map_err(io_error("remove", path))?;
    let removed = unless_gone(entry.directory().change_entries(|| work(&entry)));
    removed.map(drop).map_err(io_error("remove", path))
}

fn carry_out_step(step: &Step, tried: &Try, trees: &mut Trees) -> Result<()> {
    let find = |tree: &HeldTree, path: &Path| tree.entry(path).map_err(io_error("find", path));
    match step {
        Step::Join(copy, original, kept, joined) => {
            join(tried, trees, (copy, original), (kept, joined))
        }
        Step::Unlink(path) => remove_from(&trees.lower, &path.path(), HeldEntry::remove_file),
        Step::RemoveDirectory(path) => {
            trees.lower.forget();
            remove_from(&trees.lower, &path.path(), HeldEntry::remove_directory)
        }
        Step::Install(path) => {
            let path = path.path();
            let from = unless_gone(trees.upper.entry(&path)).map_err(io_error("find", &path))?;
            // An earlier commit moved it, if it is not there.
            let Some(from) = from else { return Ok(()) };
            let to = find(&trees.lower, &path)?;
            install::install(&from, &to, &trees.lower, &mut trees.copied)
        }
        Step::Dress(path) => {
            let path = path.path();
            let (from, to) = (find(&trees.upper, &path)?, find(&trees.lower, &path)?);
            let found = from.metadata().map_err(io_error("examine", &from.path()))?;
            copy_metadata(&from, &to, &found).map_err(io_error("change", &path))
        }
        Step::SetTime(path, seconds, nanoseconds) => {
            let path = path.path();
            let time = (*seconds, *nanoseconds);
            let set = match path.parent() {
                None => {
                    trees.lower.directory(&path).and_then(|root| root.set_times(&modified_at(time)))
                }
                Some(_) => {
                    trees.lower.entry(&path).and_then(|entry| entry.set_times(&modified_at(time)))
                }
            };
            match set {
                // The times of another user's directory cannot be set, even if others may create
                // files in it.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
                set => set.map_err(io_error("change", &path)),
            }
        }
    }
}

/// Joins the upper names of a copy, `kept` and `joined`, to the original.
fn join(
    tried: &Try,
    trees: &mut Trees,
    (copy, original): (&JournalPath, &JournalPath),
    names: (&[JournalPath], &[JournalPath]),
) -> Result<()> {
    let (directory, original) = (tried.overlay_directory(), original.path());
    let in_try = |path: &JournalPath| {
        let path = path.path();
        let below = path.strip_prefix(&directory).unwrap_or(&path);
        trees.overlay.entry(below).map_err(io_error("find", &path))
    };
    let copy = in_try(copy)?;
    let original = trees.lower.entry(&original).map_err(io_error("find", &original))?;
    let names = (names.0.iter().map(in_try), names.1.iter().map(in_try));
    linked_names::join(&copy, &original, names.0, names.1, &mut trees.copied)
}

#[cfg(test)]
mod tests;
