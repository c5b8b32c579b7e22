//! Trees that the steps of a commit work on.

use std::path::{Path, PathBuf};

use runahead_abi::overlay::UPPER;

use crate::held_tree::{HeldEntry, HeldTree};
use crate::store::Try;
use crate::widened_modes::WidenedModes;
use crate::{Result, io_error};

/// Trees that the steps of a commit work on.
#[derive(Debug)]
pub(super) struct HeldTrees {
    /// The tree that is changed.
    pub(super) lower: HeldTree,
    /// The upper tree of the try.
    pub(super) upper: HeldTree,
    /// The try's directory of changes.
    overlay: HeldTree,
    overlay_directory: PathBuf,
    /// The directory of the try in the store.
    pub(super) own: HeldTree,
}

impl HeldTrees {
    pub(super) fn hold(tried: &Try) -> Result<Self> {
        let overlay_directory = tried.overlay_directory();
        let upper = overlay_directory.join(UPPER);
        let modes = WidenedModes::of(&overlay_directory);
        let of_try =
            |path: &Path| HeldTree::of_try(path, modes.clone()).map_err(io_error("open", path));
        Ok(HeldTrees {
            lower: HeldTree::whole(modes.clone()).map_err(io_error("open", Path::new("/")))?,
            upper: of_try(&upper)?,
            overlay: of_try(&overlay_directory)?,
            own: of_try(tried.directory())?,
            overlay_directory,
        })
    }

    /// Holds no directory of the try any more, so that each has its own permissions.
    pub(super) fn release(&self) {
        self.upper.forget();
        self.overlay.forget();
    }

    /// Path of an entry of the try's directory of changes, for [`HeldTrees::in_overlay`].
    pub(super) fn path_in_overlay<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.overlay_directory).unwrap_or(path)
    }

    /// Entry of the try's directory of changes.
    pub(super) fn in_overlay(&self, path: &Path) -> Result<HeldEntry> {
        self.overlay.entry(path).map_err(io_error("find", path))
    }
}
