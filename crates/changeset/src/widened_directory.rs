//! Permissions of directories that are widened while a commit looks into them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Permissions of a directory's owner that reading and changing its entries takes.
const ALL: u32 = 0o700;

/// Directory that its owner may read, write and search until this is dropped. Then it has its own
/// permissions again.
#[derive(Debug)]
pub(crate) struct WidenedDirectory {
    /// Path and own permissions; `None` if they allow everything already.
    narrow: Option<(PathBuf, Permissions)>,
}

impl WidenedDirectory {
    /// Widens the permissions of the directory at `path`, if it belongs to this user. Root needs
    /// none.
    pub(crate) fn new(path: &Path) -> Self {
        let user = rustix::process::geteuid();
        let is_narrow = |found: &fs::Metadata| {
            found.is_dir() && found.uid() == user.as_raw() && found.mode() & ALL != ALL
        };
        let found =
            fs::symlink_metadata(path).ok().filter(|found| !user.is_root() && is_narrow(found));
        let narrow = found.and_then(|found| {
            let wide = Permissions::from_mode(found.mode() & 0o7777 | ALL);
            fs::set_permissions(path, wide).ok()?;
            Some((path.to_owned(), Permissions::from_mode(found.mode() & 0o7777)))
        });
        WidenedDirectory { narrow }
    }
}

impl Drop for WidenedDirectory {
    fn drop(&mut self) {
        if let Some((path, permissions)) = self.narrow.take() {
            // It was removed, or moved by the commit that widened it.
            let _ = fs::set_permissions(path, permissions);
        }
    }
}

/// Directories that are widened, each before those below it.
#[derive(Debug, Default)]
pub(crate) struct WidenedDirectories(Vec<WidenedDirectory>);

impl WidenedDirectories {
    /// Widens all directories from `top` down to those that have the entries `paths`.
    pub(crate) fn above<'a>(top: &Path, paths: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        let mut widened = WidenedDirectories::default();
        if rustix::process::geteuid().is_root() {
            return widened;
        }
        for path in paths {
            let mut above: Vec<_> =
                path.ancestors().skip(1).take_while(|above| above.starts_with(top)).collect();
            above.reverse();
            above.into_iter().for_each(|directory| widened.add(directory));
        }
        widened
    }

    /// Widens one more directory.
    pub(crate) fn add(&mut self, directory: &Path) {
        self.0.push(WidenedDirectory::new(directory));
    }
}

impl Drop for WidenedDirectories {
    fn drop(&mut self) {
        // The deepest first: it can only be reached as long as those above it are widened.
        while self.0.pop().is_some() {}
    }
}
