//! Some of the changes of a try, by the paths that a user gives.
//!
//! What can only be done as a whole is refused: a name in a directory that the try has made,
//! removed or replaced, and one of several names of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use runahead_abi::overlay::UPPER;

use crate::chosen_paths::ChosenPaths;
use crate::recorded_origins::current_metadata;
use crate::store::Try;
use crate::try_changes::{Change, ChangeKind, Changes, FileType};
use crate::widened_directory::WidenedDirectories;
use crate::{Error, Result, printed_name};

/// Most names that a message names.
const NAMED_MAX: usize = 10;

/// Purpose for which changes are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Commit,
    Undo,
}

impl Changes {
    /// Returns the changes at or below the chosen paths. Fails if a path has none, or if some
    /// cannot be committed or undone without others.
    pub(crate) fn choose(
        &self,
        tried: &Try,
        chosen: &ChosenPaths,
        purpose: Purpose,
    ) -> Result<Changes> {
        for root in chosen.roots() {
            if !self.touched().any(|path| path.starts_with(root)) {
                return Err(Error::NothingThere { id: tried.meta.id.clone(), path: root.clone() });
            }
            self.check_whole(root, purpose)?;
        }
        let select = |from: &BTreeMap<PathBuf, Change>| -> BTreeMap<PathBuf, Change> {
            let chosen = from.iter().filter(|(path, _)| chosen.has(path));
            chosen.map(|(path, change)| (path.clone(), change.clone())).collect()
        };
        let mut some = Changes::default();
        (some.all, some.replaced) = (select(&self.all), select(&self.replaced));
        let is_chosen = |path: &PathBuf| chosen.has(path);
        for names in self.linked.iter().filter(|names| names.changed.iter().any(is_chosen)) {
            check_all_names(&names.changed, chosen)?;
            some.linked.push(names.clone());
        }
        if purpose == Purpose::Commit {
            self.check_new_links(&some, chosen, &tried.overlay_directory().join(UPPER))?;
        }
        some.times = self.times_of(&some, chosen)?;
        Ok(some)
    }

    /// Times of the directories that are chosen, or whose entries are.
    fn times_of(
        &self,
        some: &Changes,
        chosen: &ChosenPaths,
    ) -> Result<BTreeMap<PathBuf, (i64, i64)>> {
        let changed: BTreeSet<_> = some.touched().filter_map(Path::parent).collect();
        let mut times = BTreeMap::new();
        for (path, time) in &self.times {
            let is_above = changed.contains(path.as_path());
            if chosen.has(path) || is_above && !self.all.contains_key(path) {
                times.insert(path.clone(), *time);
            } else if is_above && let Some(real) = current_metadata(path)? {
                // Its own attributes and times are not chosen.
                times.insert(path.clone(), (real.mtime(), real.mtime_nsec()));
            }
        }
        Ok(times)
    }

    /// Paths of all changes, those of replaced entries included.
    fn touched(&self) -> impl Iterator<Item = &Path> {
        self.all.keys().chain(self.replaced.keys()).map(PathBuf::as_path)
    }

    /// Fails if the path is in a directory that is committed or undone as a whole.
    fn check_whole(&self, root: &Path, purpose: Purpose) -> Result<()> {
        let mut above: Vec<_> = root.ancestors().skip(1).collect();
        above.reverse();
        for directory in above {
            let is_replaced = self.replaced.contains_key(directory);
            let done = match self.all.get(directory).map(|change| (change.kind, is_replaced)) {
                None | Some((ChangeKind::Attributes, _)) => continue,
                Some((ChangeKind::Deleted, _)) => "removed",
                Some((_, true)) => "replaced",
                Some(_) => "made",
            };
            // What was made there can be dropped by itself, unless it takes the place of something.
            let hides = || self.replaced.keys().any(|path| path.starts_with(root));
            if purpose == Purpose::Undo && done != "removed" && !hides() {
                continue;
            }
            return Err(Error::NotAlone {
                path: root.to_owned(),
                directory: directory.to_owned(),
                done,
            });
        }
        Ok(())
    }

    /// Fails if a chosen new file has a name that is not chosen. Its names would be two files in
    /// the tree until both are committed.
    fn check_new_links(&self, some: &Changes, chosen: &ChosenPaths, upper: &Path) -> Result<()> {
        let _widened = WidenedDirectories::above(upper, &self.upper_files(upper));
        let file = |path: &Path| {
            let found = fs::symlink_metadata(upper_path(upper, path)).ok()?;
            (!found.is_dir() && found.nlink() > 1).then_some((found.dev(), found.ino()))
        };
        let wanted: BTreeSet<_> = some.new_entries().filter_map(file).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut names: BTreeMap<_, BTreeSet<PathBuf>> = BTreeMap::new();
        for path in self.new_entries() {
            if let Some(number) = file(path).filter(|number| wanted.contains(number)) {
                names.entry(number).or_default().insert(path.to_owned());
            }
        }
        names.values().try_for_each(|names| check_all_names(names, chosen))
    }

    /// Paths of added and modified entries.
    fn new_entries(&self) -> impl Iterator<Item = &Path> {
        let is_new = |change: &&Change| {
            matches!(change.kind, ChangeKind::Added | ChangeKind::Modified)
                && change.file_type != FileType::Directory
        };
        self.iter().filter(is_new).map(|change| change.path.as_path())
    }

    fn upper_files(&self, upper: &Path) -> Vec<PathBuf> {
        self.new_entries().map(|path| upper_path(upper, path)).collect()
    }
}

/// Path in the upper tree.
pub(crate) fn upper_path(upper: &Path, path: &Path) -> PathBuf {
    upper.join(path.strip_prefix("/").unwrap_or(path))
}

/// Fails if some of the names of a file are chosen and others not.
fn check_all_names(names: &BTreeSet<PathBuf>, chosen: &ChosenPaths) -> Result<()> {
    let (given, others): (Vec<_>, Vec<_>) = names.iter().partition(|path| chosen.has(path));
    let (Some(first), false) = (given.first(), others.is_empty()) else { return Ok(()) };
    let mut listed: Vec<_> =
        others.iter().take(NAMED_MAX).map(|path| printed_name(path).into_owned()).collect();
    if others.len() > NAMED_MAX {
        listed.push(format!("and {} more", others.len() - NAMED_MAX));
    }
    Err(Error::NotAllNames { path: (*first).clone(), others: listed.join(", ") })
}
