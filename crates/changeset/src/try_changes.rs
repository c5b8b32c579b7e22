//! Changes that a commit of a try would make.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use runahead_abi::overlay::{Origin, UPPER};
use serde::Serialize;

use crate::copied_entry::have_same_contents;
use crate::entry_metadata::{could_change_owner, have_same_attributes};
use crate::linked_names::{LinkIndex, LinkedNames, find_linked_names};
use crate::printed_name::serialize_path;
use crate::recorded_origins::{
    Origins, current_metadata, is_absence, is_same_directory, is_unchanged,
};
use crate::widened_directory::WidenedDirectories;
use crate::{Error, Result, io_error};

/// Kind of a change to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// The name is new.
    Added,
    /// The name leads to something else, or the contents differ.
    Modified,
    /// The name is removed.
    Deleted,
    /// The permissions, owners or times of a directory differ.
    Attributes,
}

/// Type of an entry; of a deleted one, the type that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket. After a commit no process listens on it, as after the end of the command.
    Socket,
    /// A device.
    Device,
}

impl FileType {
    /// Returns the type of an existing entry.
    pub fn of(found: &Metadata) -> Self {
        Self::of_mode(found.mode())
    }

    /// Returns the type that is a part of `mode` (`st_mode`, stat(3type)).
    fn of_mode(mode: u32) -> Self {
        match rustix::fs::FileType::from_raw_mode(mode) {
            rustix::fs::FileType::Directory => FileType::Directory,
            rustix::fs::FileType::Symlink => FileType::Symlink,
            rustix::fs::FileType::Fifo => FileType::Fifo,
            rustix::fs::FileType::Socket => FileType::Socket,
            rustix::fs::FileType::RegularFile => FileType::File,
            _ => FileType::Device,
        }
    }
}

/// Change of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Absolute path.
    #[serde(flatten, serialize_with = "serialize_path")]
    pub path: PathBuf,
    /// Kind of the change.
    #[serde(rename = "change")]
    pub kind: ChangeKind,
    /// Type of the entry, or of the deleted one.
    #[serde(rename = "type")]
    pub file_type: FileType,
    /// Description of what another process has changed meanwhile, if it has.
    pub conflict: Option<String>,
    /// True if it is committed with its parent directory, which is new.
    #[serde(skip)]
    pub(crate) in_new_directory: bool,
    /// True if an entry of another type must be removed first.
    #[serde(skip)]
    pub(crate) replaces_other_type: bool,
}

/// Changes of a try, by path.
#[derive(Debug, Default)]
pub struct Changes {
    pub(crate) all: BTreeMap<PathBuf, Change>,
    /// Entries that are removed to make room for one of another type, by path.
    pub(crate) replaced: BTreeMap<PathBuf, Change>,
    /// Modification times that directories of both trees get, in seconds and nanoseconds.
    /// Committing their entries must not change them.
    pub(crate) times: BTreeMap<PathBuf, (i64, i64)>,
    /// Directories of these whose time is that of the try.
    newer: BTreeSet<PathBuf>,
    /// Directories of the upper tree that can be looked into while they are compared.
    widened: WidenedDirectories,
    /// Copies of files with several names, which are written before anything else.
    pub(crate) linked: Vec<LinkedNames>,
}

impl Changes {
    /// Compares the try's directory `overlay_directory` with the lower tree.
    pub fn read(overlay_directory: &Path) -> Result<Self> {
        let origins = Origins::read(overlay_directory)?;
        let index = LinkIndex::read(overlay_directory)?;
        let widened = WidenedDirectories::of(overlay_directory);
        let mut changes = Changes { widened, ..Changes::default() };
        changes.compare_directory(
            &overlay_directory.join(UPPER),
            Path::new("/"),
            &origins,
            &index,
        )?;
        for path in &origins.whiteouts {
            if !origins.is_below_whiteout(path) {
                changes.add_deleted(path, &origins, overlay_directory)?;
            }
        }
        let added = changes
            .iter()
            .filter(|change| matches!(change.kind, ChangeKind::Added | ChangeKind::Modified));
        let names = added.map(|change| {
            let is_replaced = changes.replaced.contains_key(&change.path);
            (change.path.as_path(), change.in_new_directory || is_replaced)
        });
        let upper = overlay_directory.join(UPPER);
        changes.linked = find_linked_names(&index, &origins, &upper, names)?;
        for names in &mut changes.linked {
            let is_change =
                |path: &Path| changes.all.contains_key(path) || changes.replaced.contains_key(path);
            let of_file = origins.iter().filter(|(_, was)| was.file == names.file);
            let of_file = of_file.map(|(path, _)| path).filter(|path| is_change(path));
            names.changed.extend(of_file.map(Path::to_owned));
        }
        drop(std::mem::take(&mut changes.widened));
        let changed: BTreeSet<_> = changes
            .all
            .keys()
            .chain(changes.replaced.keys())
            .filter_map(|path| path.parent())
            .collect();
        let asked: BTreeSet<_> =
            changes.of_kind(ChangeKind::Attributes).map(|change| change.path.clone()).collect();
        let newer = std::mem::take(&mut changes.newer);
        changes.times.retain(|path, _| {
            changed.contains(path.as_path()) || asked.contains(path) || newer.contains(path)
        });
        if let Some(tries) = overlay_directory.parent().and_then(Path::parent)
            && let Some(own) = changes.all.keys().find(|path| path.starts_with(tries))
        {
            return Err(Error::ChangesItsStore(own.clone()));
        }
        Ok(changes)
    }

    /// Returns all changes, by path.
    pub fn iter(&self) -> impl Iterator<Item = &Change> {
        self.all.values()
    }

    /// Returns the changes of one kind.
    pub fn of_kind(&self, kind: ChangeKind) -> impl Iterator<Item = &Change> {
        self.iter().filter(move |change| change.kind == kind)
    }

    /// True if there are no changes.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// True if a commit sets times of directories. It does also without changes, where entries were
    /// made and removed again.
    pub fn sets_times(&self) -> bool {
        !self.times.is_empty()
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the changes of names that another process has changed meanwhile.
    pub fn conflicts(&self) -> impl Iterator<Item = &Change> {
        self.all.values().chain(self.replaced.values()).filter(|change| change.conflict.is_some())
    }

    fn add(&mut self, change: Change) {
        self.all.insert(change.path.clone(), change);
    }

    /// Compares a directory of both trees: `upper` is the upper directory of `path`.
    fn compare_directory(
        &mut self,
        upper: &Path,
        path: &Path,
        origins: &Origins,
        index: &LinkIndex,
    ) -> Result<()> {
        for (entry, found) in self.entries(upper)? {
            let (upper, path) = (upper.join(&entry), path.join(&entry));
            let current = current_metadata(&path)?;
            let is_gone = origins.whiteouts.contains(&path);
            let is_directory = current.as_ref().is_some_and(Metadata::is_dir);
            if found.is_dir() && is_directory && !is_gone {
                self.compare_attributes((&upper, &found), &path, current.as_ref(), origins);
                self.compare_directory(&upper, &path, origins, index)?;
                continue;
            }
            let origin = origins.of(&path);
            let was = origin.filter(|origin| **origin != Origin::ABSENT);
            if !is_gone
                && let (Some(was), Some(current)) = (was, &current)
                && is_unchanged_copy(was, index, (&upper, &found), (&path, current))
            {
                continue;
            }
            let is_in_the_way = current.is_some() && (found.is_dir() || is_directory);
            self.add(Change {
                kind: if was.is_some() { ChangeKind::Modified } else { ChangeKind::Added },
                file_type: FileType::of(&found),
                conflict: describe_conflict(origin, current.as_ref()).or_else(|| {
                    // What the command made has a record: this directory was only looked into.
                    let is_lost = found.is_dir() && origin.is_none() && !is_gone;
                    is_lost.then(|| "it was removed meanwhile".to_owned())
                }),
                in_new_directory: false,
                replaces_other_type: is_in_the_way,
                path: path.clone(),
            });
            if found.is_dir() {
                self.add_new_directory(&upper, &path)?;
            }
        }
        Ok(())
    }

    /// Adds everything below a new directory.
    fn add_new_directory(&mut self, upper: &Path, path: &Path) -> Result<()> {
        for (entry, found) in self.entries(upper)? {
            let (upper, path) = (upper.join(&entry), path.join(&entry));
            self.add(Change {
                kind: ChangeKind::Added,
                file_type: FileType::of(&found),
                conflict: None,
                in_new_directory: true,
                replaces_other_type: false,
                path: path.clone(),
            });
            if found.is_dir() {
                self.add_new_directory(&upper, &path)?;
            }
        }
        Ok(())
    }

    /// Compares permissions, owners and times of a directory of both trees.
    fn compare_attributes(
        &mut self,
        (upper_path, upper): (&Path, &Metadata),
        path: &Path,
        current: Option<&Metadata>,
        origins: &Origins,
    ) {
        let Some(real) = current else { return };
        let time = |of: &Metadata| (of.mtime(), of.mtime_nsec());
        // Something was made in it and removed again.
        if time(upper) > time(real) {
            self.newer.insert(path.to_owned());
        }
        // Another process may have changed it later.
        self.times.insert(path.to_owned(), time(upper).max(time(real)));
        // Origins are recorded only for changes that were asked for.
        let Some(origin) = origins.of(path) else { return };
        let is_changed = upper.mode() != origin.mode as u32
            || !have_same_owners(upper, real)
            || !have_same_attributes(upper_path, path);
        if is_changed || time(upper) != (origin.mtime[0] as i64, origin.mtime[1] as i64) {
            self.times.insert(path.to_owned(), time(upper));
            let same = is_same_directory(origin, current);
            self.add(Change {
                path: path.to_owned(),
                kind: ChangeKind::Attributes,
                file_type: FileType::Directory,
                conflict: (!same).then(|| "its permissions have changed".to_owned()),
                in_new_directory: false,
                replaces_other_type: false,
            });
        }
    }

    /// Returns the entries of an upper directory, by name.
    fn entries(&mut self, directory: &Path) -> Result<Vec<(OsString, Metadata)>> {
        self.widened.add(directory);
        let list = fs::read_dir(directory).map_err(io_error("list", directory))?;
        let entries: std::io::Result<Vec<_>> = list
            .map(|entry| entry.and_then(|entry| Ok((entry.file_name(), entry.metadata()?))))
            .collect();
        let mut entries = entries.map_err(io_error("examine", directory))?;
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(entries)
    }

    /// Adds everything at and below a whiteout.
    fn add_deleted(
        &mut self,
        path: &Path,
        origins: &Origins,
        overlay_directory: &Path,
    ) -> Result<()> {
        let upper = overlay_directory.join(UPPER).join(path.strip_prefix("/").unwrap_or(path));
        let above = current_metadata(&upper)?;
        if let (Some(above), Some(current)) = (&above, current_metadata(path)?)
            && !above.is_dir()
            && !current.is_dir()
        {
            // A rename replaces it.
            return Ok(());
        }
        let is_replaced = above.is_some();
        for entry in walkdir::WalkDir::new(path).follow_root_links(false) {
            let listed = match entry {
                Ok(entry) => entry.into_path(),
                Err(error) => match (error.path().map(Path::to_owned), error.io_error()) {
                    (Some(path), Some(cause)) if is_absence(cause) => path,
                    (listed, _) => {
                        let path = listed.as_deref().unwrap_or(path);
                        return Err(io_error("examine", path)(error.into()));
                    }
                },
            };
            let current = current_metadata(&listed)?;
            let origin = origins.of(&listed);
            if current.is_none() && listed == path && has_directory(path)? {
                // Another process has removed it too.
                continue;
            }
            let conflict = match (origin, &current) {
                // Another process may be about to bring it back, with its directory.
                (_, None) => Some("it was removed meanwhile".to_owned()),
                (Some(origin), _) => describe_conflict(Some(origin), current.as_ref()),
                (None, _) => Some("it was made meanwhile".to_owned()),
            };
            let was = origin.map_or(FileType::File, |origin| FileType::of_mode(origin.mode as u32));
            let change = Change {
                path: listed,
                kind: ChangeKind::Deleted,
                file_type: current.as_ref().map_or(was, FileType::of),
                conflict,
                in_new_directory: false,
                replaces_other_type: false,
            };
            match is_replaced {
                true => _ = self.replaced.insert(change.path.clone(), change),
                false => self.add(change),
            }
        }
        Ok(())
    }
}

/// True if the upper file is an unchanged copy: opened for writing, and not written. If the lower
/// file has changed meanwhile this cannot be detected.
fn is_unchanged_copy(
    was: &Origin,
    index: &LinkIndex,
    upper: (&Path, &Metadata),
    real: (&Path, &Metadata),
) -> bool {
    let ((upper_path, upper), (real_path, real)) = (upper, real);
    let about = |of: &Metadata| (of.mode(), of.size(), of.mtime(), of.mtime_nsec());
    upper.is_file()
        && (upper.nlink() == 1 || index.original_of(upper) == Some(was.file))
        && about(upper) == about(real)
        && have_same_owners(upper, real)
        && is_unchanged(was, Some(real))
        && have_same_attributes(upper_path, real_path)
        && open_both(upper_path, real_path)
            .and_then(|(upper, real)| have_same_contents(upper, real))
            .unwrap_or(false)
}

fn open_both(a: &Path, b: &Path) -> std::io::Result<(fs::File, fs::File)> {
    Ok((fs::File::open(a)?, fs::File::open(b)?))
}

/// True if the try has not changed the owners of the entry `real`. A copy of an entry whose owners
/// the user cannot set belongs to the user.
pub(crate) fn have_same_owners(upper: &Metadata, real: &Metadata) -> bool {
    !could_change_owner(real) || (upper.uid(), upper.gid()) == (real.uid(), real.gid())
}

/// True if the directory of `path` exists.
fn has_directory(path: &Path) -> Result<bool> {
    path.parent().map_or(Ok(true), |parent| {
        let found = current_metadata(parent)?;
        Ok(found.is_some_and(|found| found.is_dir()))
    })
}

/// Describes what another process has done meanwhile to a name that led to `origin`.
fn describe_conflict(origin: Option<&Origin>, current: Option<&Metadata>) -> Option<String> {
    let origin = origin.unwrap_or(&Origin::ABSENT);
    if is_unchanged(origin, current) {
        return None;
    }
    let text = match (*origin == Origin::ABSENT, current) {
        (true, _) => "it was made meanwhile",
        (false, None) => "it was removed meanwhile",
        (false, Some(_)) => "it was changed meanwhile",
    };
    Some(text.to_owned())
}
