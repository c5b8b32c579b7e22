//! Names of one file (hard links): what a try did to a file of the lower tree with several names is
//! done to that file, and all names stay names of it.
//!
//! The index in the try's directory ([`LINKS`]) has the copies of such files. A commit first writes
//! each into its original. Then the copy's names in the upper tree become names of the original, so
//! that moving them into place joins them to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use runahead_abi::FileId;
use runahead_abi::overlay::{LINKS, read_index_name};
use rustix::fs::OFlags;

use crate::copied_entry::{CopiedFiles, copy_contents, have_same_contents};
use crate::entry_metadata::{copy_metadata, could_change_owner, have_same_attributes, modified_at};
use crate::held_tree::HeldEntry;
use crate::readable_entry::ReadableEntry;
use crate::recorded_origins::{Origins, origin};
use crate::{Result, io_error};
use crate::{entry_metadata, install};

/// Copies in the index.
#[derive(Debug, Default)]
pub(crate) struct LinkIndex {
    /// Originals by device and inode number of the copies.
    originals: BTreeMap<(u64, u64), FileId>,
    /// Paths of the copies by original.
    copies: BTreeMap<FileId, PathBuf>,
}

impl LinkIndex {
    /// Reads the index in the try's directory `overlay_directory`. Older tries have none.
    pub(crate) fn read(overlay_directory: &Path) -> Result<Self> {
        let directory = overlay_directory.join(LINKS);
        let mut index = LinkIndex::default();
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(index),
            entries => entries.map_err(io_error("list", &directory))?,
        };
        for entry in entries {
            let path = entry.map_err(io_error("list", &directory))?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(original) = name.and_then(read_index_name) else { continue };
            let found = fs::symlink_metadata(&path).map_err(io_error("examine", &path))?;
            index.originals.insert((found.dev(), found.ino()), original);
            index.copies.insert(original, path);
        }
        Ok(index)
    }

    /// Original of a file of the upper tree, if that is in the index.
    pub(crate) fn original_of(&self, upper: &Metadata) -> Option<FileId> {
        self.originals.get(&(upper.dev(), upper.ino())).copied()
    }
}

/// A copy of the index, its original, and the copy's names in the upper tree.
#[derive(Debug, Clone)]
pub(crate) struct LinkedNames {
    /// The original.
    pub(crate) file: FileId,
    /// Path of the copy in the index.
    pub(crate) copy: PathBuf,
    /// Path of the original in the lower tree.
    pub(crate) original: PathBuf,
    /// Upper names that are names of the original in the lower tree, too, and stay.
    pub(crate) kept: Vec<PathBuf>,
    /// Other upper names.
    pub(crate) joined: Vec<PathBuf>,
    /// Paths of all changes that are of names of this file, before the try or in it.
    pub(crate) changed: BTreeSet<PathBuf>,
}

/// Finds the names of each copy of the index. `changed` are the paths of the names that were added
/// or changed, and whether the lower tree's entry there is removed first.
pub(crate) fn find_linked_names<'a>(
    index: &LinkIndex,
    origins: &Origins,
    upper: &Path,
    changed: impl Iterator<Item = (&'a Path, bool)>,
) -> Result<Vec<LinkedNames>> {
    let mut all = BTreeMap::new();
    if index.copies.is_empty() {
        return Ok(Vec::new());
    }
    let is_file = |path: &Path, file: FileId| {
        fs::symlink_metadata(path).is_ok_and(|found| origin(&found).file == file)
    };
    for (path, was) in origins.iter() {
        if let Some(copy) = index.copies.get(&was.file)
            && !all.contains_key(&was.file)
            && is_file(path, was.file)
        {
            let names = LinkedNames {
                file: was.file,
                copy: copy.clone(),
                original: path.to_owned(),
                kept: vec![],
                joined: vec![],
                changed: BTreeSet::new(),
            };
            all.insert(was.file, names);
        }
    }
    let is_own = |path: &Path| {
        fs::symlink_metadata(path).is_ok_and(|original| entry_metadata::is_own(&original))
    };
    for (path, is_removed) in changed {
        let name = upper.join(path.strip_prefix("/").unwrap_or(path));
        let found = fs::symlink_metadata(&name).map_err(io_error("examine", &name))?;
        let Some(original) = index.original_of(&found) else { continue };
        let Some(names) = all.get_mut(&original) else { continue };
        names.changed.insert(path.to_owned());
        match !is_removed && is_file(path, original) {
            true => names.kept.push(name),
            // A link to another user's file could not be moved in a directory with the sticky bit.
            false if is_own(&names.original) => names.joined.push(name),
            false => {}
        }
    }
    Ok(all.into_values().collect())
}

/// Writes the copy into its original and joins the upper names to that. Can be repeated.
pub(crate) fn join(
    copy: &HeldEntry,
    original: &HeldEntry,
    kept: impl Iterator<Item = Result<HeldEntry>>,
    joined: impl Iterator<Item = Result<HeldEntry>>,
    copied: &mut CopiedFiles,
) -> Result<()> {
    let path = original.path();
    write_into_original(copy, original).map_err(io_error("write", &path))?;
    for name in kept {
        let name = name?;
        unless_absent(name.remove_file()).map_err(io_error("remove", &name.path()))?;
    }
    for name in joined {
        let name = name?;
        if !name.exists() {
            // An earlier commit moved it.
            continue;
        }
        match replace_by_link(original, &name) {
            // The names that are moved to the original's file system become links to it there.
            Err(error) if error.kind() == ErrorKind::CrossesDevices => {
                let found = copy.metadata().map_err(io_error("examine", &copy.path()))?;
                copied.add(&found, &path);
            }
            // The user may not make links to the file: the name stays one of the copy.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            done => done.map_err(io_error("replace", &name.path()))?,
        }
    }
    Ok(())
}

fn unless_absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Replaces a name of the upper tree by a link to the original.
fn replace_by_link(original: &HeldEntry, name: &HeldEntry) -> io::Result<()> {
    let before = name.directory().metadata()?;
    let beside = install::temporary_sibling(name);
    let replace = || {
        unless_absent(beside.remove_file())?;
        original.link_to(&beside)?;
        beside.rename_to(name)?;
        // A rename to another name of one file leaves both.
        unless_absent(beside.remove_file())
    };
    let replaced = replace();
    // A new directory is moved into place as the try has left it.
    name.directory().set_times(&modified_at((before.mtime(), before.mtime_nsec())))?;
    replaced
}

/// Makes a name of the upper tree, which may be joined to the original, a name of the copy again.
pub(crate) fn link_again(copy: &HeldEntry, name: &HeldEntry) -> io::Result<()> {
    let number = |of: &Metadata| (of.dev(), of.ino());
    let found = copy.metadata()?;
    if name.metadata().is_ok_and(|there| number(&there) == number(&found)) {
        return Ok(());
    }
    replace_by_link(copy, name)
}

/// Gives the original the copy's contents and metadata, unless it has them.
pub(crate) fn write_into_original(copy: &HeldEntry, original: &HeldEntry) -> io::Result<()> {
    let (from, to) = (copy.metadata()?, original.metadata()?);
    let is_owner = could_change_owner(&to);
    let _readable = ReadableEntry::new(copy, &from)?;
    let about = |of: &Metadata| {
        (of.mode(), if is_owner { (of.uid(), of.gid()) } else { (0, 0) }, of.size())
    };
    let times = |of: &Metadata| (of.mtime(), of.mtime_nsec());
    let open = |entry: &HeldEntry| entry.open(OFlags::RDONLY);
    let is_written = !from.is_file() || {
        // An interrupted commit has given it the copy's permissions.
        let _readable = ReadableEntry::new(original, &to)?;
        have_same_contents(open(copy)?, open(original)?)?
    };
    if !is_written {
        let target = install::open_to_write(original, &to)?;
        target.set_len(0)?;
        copy_contents(&open(copy)?, &target)?;
    }
    let have_same_attributes = || {
        let paths = (copy.path_through_descriptor(), original.path_through_descriptor());
        have_same_attributes(&paths.0, &paths.1)
    };
    let dress = || {
        if !is_written || about(&from) != about(&to) || !have_same_attributes() {
            copy_metadata(copy, original, &from)?;
        }
        if !is_written || times(&from) != times(&to) {
            original.set_times(&modified_at(times(&from)))?;
        }
        Ok(())
    };
    match dress() {
        // Of another user's file the try could not change them, either.
        Err(_) if !is_owner => Ok(()),
        dressed => dressed,
    }
}
