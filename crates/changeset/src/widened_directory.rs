//! Directories of an upper tree whose permissions are widened while a process looks into them.

use std::fs::{self, Metadata, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::widened_modes::{PERMISSIONS, WidenedModes};

/// Permissions of a directory's owner that reading and changing its entries takes.
const ALL: u32 = 0o700;

/// Directory that its owner may read, write and search until this is dropped. Then it has its own
/// permissions again.
#[derive(Debug)]
pub(crate) struct WidenedDirectory {
    /// Path and own metadata; `None` if the permissions allow everything already.
    narrow: Option<(PathBuf, Metadata)>,
    /// Notes of what is widened.
    modes: Rc<WidenedModes>,
}

impl WidenedDirectory {
    /// Widens the permissions of the directory at `path`, if it belongs to this user. Root needs
    /// none.
    fn new(path: &Path, modes: &Rc<WidenedModes>) -> Self {
        let user = rustix::process::geteuid();
        let is_narrow = |found: &fs::Metadata| {
            found.is_dir() && found.uid() == user.as_raw() && found.mode() & ALL != ALL
        };
        let found =
            fs::symlink_metadata(path).ok().filter(|found| !user.is_root() && is_narrow(found));
        let narrow = found.and_then(|found| {
            let wide = found.mode() & PERMISSIONS | ALL;
            modes.note_widened(path, &found, wide);
            fs::set_permissions(path, Permissions::from_mode(wide)).ok()?;
            Some((path.to_owned(), found))
        });
        WidenedDirectory { narrow, modes: modes.clone() }
    }
}

impl Drop for WidenedDirectory {
    fn drop(&mut self) {
        if let Some((path, own)) = self.narrow.take() {
            // It was removed, or moved by the commit that widened it.
            let own_mode = Permissions::from_mode(own.mode() & PERMISSIONS);
            let _ = fs::set_permissions(path, own_mode);
            self.modes.note_narrowed(&own);
        }
    }
}

/// Directories that are widened, each before those below it.
#[derive(Debug, Default)]
pub(crate) struct WidenedDirectories {
    all: Vec<WidenedDirectory>,
    modes: Rc<WidenedModes>,
}

impl WidenedDirectories {
    /// Empty list for an upper tree. What is widened is noted beside that tree.
    pub(crate) fn of(overlay_directory: &Path) -> Self {
        WidenedDirectories { all: Vec::new(), modes: WidenedModes::of(overlay_directory) }
    }

    /// Widens all directories from the top of an upper tree down to those that have the entries
    /// `paths`.
    pub(crate) fn above<'a>(upper: &Path, paths: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        let mut widened = WidenedDirectories::of(upper.parent().unwrap_or(upper));
        if rustix::process::geteuid().is_root() {
            return widened;
        }
        for path in paths {
            let mut above: Vec<_> =
                path.ancestors().skip(1).take_while(|above| above.starts_with(upper)).collect();
            above.reverse();
            above.into_iter().for_each(|directory| widened.add(directory));
        }
        widened
    }

    /// Widens one more directory.
    pub(crate) fn add(&mut self, directory: &Path) {
        self.all.push(WidenedDirectory::new(directory, &self.modes));
    }
}

impl Drop for WidenedDirectories {
    fn drop(&mut self) {
        // The deepest first: it can only be reached as long as those above it are widened.
        while self.all.pop().is_some() {}
    }
}
