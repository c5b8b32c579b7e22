//! Rest of a try after some of its changes were committed or undone.
//!
//! What was chosen leaves the upper tree, the index and the records. What the commit itself has
//! changed in the lower tree is renewed in the records of the rest, so that changes of others are
//! noticed as before. Each stage can be repeated after an interruption.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use runahead_abi::overlay::{Origin, ReadKind, ReadRecord, UPPER, names_hash};

use super::commit_steps::{JournalPath, Step, found_at};
use super::fresh_origins::{self, ChangedFiles, origin};
use super::held_trees::HeldTrees;
use super::kept_entries::REPLACED;
use super::step_execution::RunningCommit;
use super::step_journal::{Chosen, Journal};
use super::{step_reversal, stopping_points};
use crate::chosen_changes::upper_path;
use crate::chosen_paths::ChosenPaths;
use crate::entry_metadata::modified_at;
use crate::recorded_origins::{Origins, current_metadata, is_absence};
use crate::recorded_reads::{self, read_again};
use crate::store::Try;
use crate::try_changes::Changes;
use crate::{Result, io_error};

/// Time of a directory of the upper tree.
type UpperTime = (JournalPath, (i64, i64));

/// Describes chosen changes for the journal. `steps` are those of the commit; an undo has none.
pub(super) fn describe_choice(
    tried: &Try,
    trees: &HeldTrees,
    (paths, some): (&ChosenPaths, &Changes),
    steps: Option<&[Step]>,
) -> Result<Chosen> {
    let copies = some.linked.iter().map(|names| trees.path_in_overlay(&names.copy));
    Ok(Chosen {
        roots: paths.roots().iter().map(|path| JournalPath::of(path)).collect(),
        is_undo: steps.is_none(),
        copies: copies.map(JournalPath::of).collect(),
        listings: listings_after(&tried.overlay_directory(), steps.unwrap_or_default())?,
    })
}

/// Directories that the try has listed and whose names the steps change, with the hashes of their
/// names after that.
fn listings_after(overlay_directory: &Path, steps: &[Step]) -> Result<Vec<(JournalPath, u64)>> {
    let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
    for step in steps {
        match step {
            Step::Remove { path, .. } => _ = before.insert(path.path()),
            Step::Install { path, before: was, .. } => {
                if was.is_some() {
                    before.insert(path.path());
                }
                after.insert(path.path());
            }
            _ => {}
        }
    }
    let mut added: BTreeMap<&Path, u64> = BTreeMap::new();
    for path in before.symmetric_difference(&after) {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let hash = names_hash(name.as_bytes());
        let change = if after.contains(path) { hash } else { hash.wrapping_neg() };
        let sum = added.entry(directory).or_default();
        *sum = sum.wrapping_add(change);
    }
    let mut listings = Vec::new();
    recorded_reads::each_record(overlay_directory, |record| {
        let path = Path::new(OsStr::from_bytes(record.path));
        if record.kind == ReadKind::Listing
            && let Some(sum) = added.get(path)
        {
            listings.push((JournalPath::of(path), record.origin.size.wrapping_add(*sum)));
        }
    })?;
    Ok(listings)
}

/// Times of the upper directories above what a commit takes, and above the chosen paths.
pub(super) fn upper_times(
    trees: &HeldTrees,
    steps: &[Step],
    paths: Option<&ChosenPaths>,
) -> Result<Vec<UpperTime>> {
    let roots = paths.map(ChosenPaths::roots).unwrap_or_default();
    let mut above: BTreeSet<PathBuf> =
        roots.iter().filter_map(|root| root.parent()).map(PathBuf::from).collect();
    for step in steps {
        match step {
            Step::Install { path, .. } => above.extend(path.path().parent().map(PathBuf::from)),
            Step::Join { kept, joined, .. } => {
                let names = kept.iter().chain(joined).map(JournalPath::path);
                let in_upper = |path: PathBuf| {
                    let above = path.strip_prefix(UPPER).ok()?.parent()?;
                    Some(Path::new("/").join(above))
                };
                above.extend(names.filter_map(in_upper));
            }
            _ => {}
        }
    }
    let mut times = Vec::new();
    for path in above.into_iter().filter(|path| path.file_name().is_some()) {
        if let Some((_, found)) = found_at(&trees.upper, &path)? {
            times.push((JournalPath::of(&path), (found.mtime(), found.mtime_nsec())));
        }
    }
    Ok(times)
}

/// Times that the upper directories above undone changes get. One in which nothing else was changed
/// gets that of the lower tree.
pub(super) fn upper_times_after_undo(
    tried: &Try,
    all: &Changes,
    paths: &ChosenPaths,
) -> Result<Vec<UpperTime>> {
    let overlay_directory = tried.overlay_directory();
    let origins = Origins::read(&overlay_directory)?;
    let upper = overlay_directory.join(UPPER);
    let others: BTreeSet<_> = all
        .iter()
        .filter(|change| !paths.has(&change.path))
        .filter_map(|change| change.path.parent())
        .collect();
    let mut times = Vec::new();
    for path in paths.roots().iter().filter_map(|root| root.parent()) {
        let Some(found) = current_metadata(&upper_path(&upper, path))? else { continue };
        let is_as_it_was = origins.of(path).is_none() && !others.contains(path);
        let real = current_metadata(path)?.filter(|real| is_as_it_was && real.is_dir());
        let found = real.unwrap_or(found);
        times.push((JournalPath::of(path), (found.mtime(), found.mtime_nsec())));
    }
    Ok(times)
}

/// Sets times of upper directories, as far as these exist.
pub(super) fn set_upper_times(trees: &HeldTrees, times: &[UpperTime]) -> Result<()> {
    trees.release();
    for (path, time) in times {
        let path = path.path();
        if let Some((entry, found)) = found_at(&trees.upper, &path)?
            && found.is_dir()
        {
            entry.set_times(&modified_at(*time)).map_err(io_error("change", &path))?;
        }
    }
    trees.release();
    Ok(())
}

/// Makes the rest of the try complete: the commit of what was chosen is final, or it is undone.
/// Removes the try if nothing is left. Returns the number of changes that are left.
pub(super) fn leave_rest(tried: &Try, mut commit: RunningCommit, chosen: &Chosen) -> Result<usize> {
    let pass = || stopping_points::pass().map_err(io_error("change", tried.directory()));
    let (paths, overlay_directory) = (chosen.paths(), tried.overlay_directory());
    pass()?;
    if !chosen.is_undo {
        step_reversal::remove_kept(&mut commit)?;
        pass()?;
    }
    // What was chosen, what it has replaced, and directories that were only looked into.
    for root in paths.roots() {
        let removed = commit.trees.upper.entry(root).and_then(|entry| entry.remove_all());
        unless_absent(removed).map_err(io_error("remove", root))?;
        commit.trees.release();
        pass()?;
    }
    for copy in &chosen.copies {
        let copy = commit.trees.in_overlay(&copy.path())?;
        unless_absent(copy.remove_file()).map_err(io_error("remove", &copy.path()))?;
    }
    let kept = commit.trees.own.entry(Path::new(REPLACED)).and_then(|kept| kept.remove_all());
    unless_absent(kept).map_err(io_error("remove", Path::new(REPLACED)))?;
    set_upper_times(&commit.trees, &commit.journal.preamble.upper_times)?;
    pass()?;
    fresh_origins::leave_rest(&overlay_directory, &paths, &changed_files(&commit.journal))?;
    pass()?;
    renew_reads(&overlay_directory, &commit.journal, chosen)?;
    pass()?;
    // They have changed nothing, and what they started from is no longer what they see.
    for inner in tried.nested().list() {
        inner.remove()?;
    }
    let left = Changes::read(&overlay_directory)?.len();
    if left == 0 {
        drop(commit);
        tried.remove()?;
        return Ok(0);
    }
    commit.journal.remove()?;
    Ok(left)
}

fn unless_absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound || is_absence(&error) => Ok(()),
        done => done,
    }
}

/// Files that are still there under other names, or with other contents.
fn changed_files(journal: &Journal) -> ChangedFiles {
    let mut files = ChangedFiles::new();
    for (number, step) in journal.steps.iter().enumerate() {
        let Some(before) = step.before().filter(|before| !before.is_directory()) else { continue };
        let after = match journal.progress(number).after.as_ref() {
            Some(after) if step.writes_in_place() => after,
            _ => before,
        };
        let file = origin(before).file;
        let (before, after) = (origin(before), origin(after));
        files
            .entry(file)
            .and_modify(|known| {
                if step.writes_in_place() {
                    known.1 = after;
                }
            })
            .or_insert((before, after));
    }
    files
}

/// State that the commit has left at a path.
#[derive(Debug, Clone, Copy)]
enum Left {
    Nothing,
    /// An entry that is no directory.
    Entry(Origin),
    /// An entry that is looked at, with what is below it.
    Directory,
}

/// Gives the records of reads the state that the commit has left.
fn renew_reads(overlay_directory: &Path, journal: &Journal, chosen: &Chosen) -> Result<()> {
    let (left, changed) = (states_left(journal), changed_files(journal));
    let listings: BTreeMap<PathBuf, u64> =
        chosen.listings.iter().map(|(path, hash)| (path.path(), *hash)).collect();
    recorded_reads::rewrite(overlay_directory, |record| {
        let path = Path::new(OsStr::from_bytes(record.path));
        let nearest = path.ancestors().find_map(|above| Some((above == path, left.get(above)?)));
        match nearest {
            Some((_, Left::Nothing)) => return Ok(Some((ReadKind::Absence, Origin::ABSENT))),
            Some((true, Left::Entry(now))) => return Ok(Some((kind_of(record), *now))),
            Some(_) => return read_again(record.kind, path).map(Some),
            None => {}
        }
        if let (ReadKind::Listing, Some(size)) = (record.kind, listings.get(path)) {
            return Ok(Some((record.kind, Origin { size: *size, ..record.origin })));
        }
        let contents = |of: &Origin| (of.size, of.mtime);
        let of_file = changed.get(&record.origin.file);
        let of_file = of_file.filter(|(before, _)| contents(before) == contents(&record.origin));
        let is_entry = !matches!(record.kind, ReadKind::Listing | ReadKind::Absence);
        Ok(of_file.filter(|_| is_entry).map(|(_, after)| (record.kind, *after)))
    })
}

/// Kind of a record of an entry that is no directory.
fn kind_of(record: &ReadRecord) -> ReadKind {
    match record.kind {
        ReadKind::Absence | ReadKind::Listing => ReadKind::Entry,
        kind => kind,
    }
}

/// States that the steps have left, by path.
fn states_left(journal: &Journal) -> BTreeMap<PathBuf, Left> {
    let mut states = BTreeMap::new();
    for (number, step) in journal.steps.iter().enumerate() {
        match step {
            Step::Remove { path, .. } => _ = states.insert(path.path(), Left::Nothing),
            Step::Install { path, .. } => {
                let path = path.path();
                let after = journal.progress(number).after.as_ref();
                let after = after.filter(|after| !after.is_directory());
                // What was removed below it came before, and a new link may lead elsewhere.
                let below = states.range(path.clone()..).map(|(other, _)| other);
                let below = below.take_while(|other: &&PathBuf| other.starts_with(&path));
                let below: Vec<_> = below.cloned().collect();
                below.iter().for_each(|other| _ = states.remove(other));
                states.insert(
                    path,
                    after.map_or(Left::Directory, |after| Left::Entry(origin(after))),
                );
            }
            _ => {}
        }
    }
    states
}
