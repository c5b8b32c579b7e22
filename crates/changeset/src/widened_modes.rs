//! Notes of permissions that are widened for a while. They lie beside the upper tree of a try. A
//! process that is killed meanwhile leaves the permissions wide, and the next commit or undo sets
//! them back (`narrowed_modes.rs`).

use std::cell::OnceCell;
use std::fs::{File, Metadata};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::{Deserialize, Serialize};

/// Name of the notes in the directory of a try's changes.
pub(crate) const NOTES: &str = "widened";

/// Permission bits of a mode.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// Device and inode number.
pub(crate) type FileNumber = (u64, u64);

/// Line of the notes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Note {
    /// The entry is about to get the permissions `wide`.
    Widened(Widened),
    /// It has its own permissions again.
    Narrowed(FileNumber),
}

/// Entry that is widened.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Widened {
    /// Absolute path, as bytes.
    pub(crate) path: Vec<u8>,
    pub(crate) file: FileNumber,
    /// Own permissions.
    pub(crate) own: u32,
    /// Wider permissions.
    pub(crate) wide: u32,
}

/// Device and inode number of an entry.
pub(crate) fn number(found: &Metadata) -> FileNumber {
    (found.dev(), found.ino())
}

/// Notes of what is widened. The file is made with the first note.
#[derive(Debug, Default)]
pub(crate) struct WidenedModes {
    /// Path of the notes; `None` if nothing is noted.
    path: Option<PathBuf>,
    file: OnceCell<Option<File>>,
}

impl WidenedModes {
    /// Notes in the directory of a try's changes.
    pub(crate) fn of(overlay_directory: &Path) -> Rc<Self> {
        Rc::new(WidenedModes { path: Some(overlay_directory.join(NOTES)), file: OnceCell::new() })
    }

    /// Notes that the entry at `path`, whose metadata is `found`, is about to get wider
    /// permissions. That the note has no room changes nothing but what is left by a kill.
    pub(crate) fn note_widened(&self, path: &Path, found: &Metadata, wide: u32) {
        self.note(&Note::Widened(Widened {
            path: path.as_os_str().as_bytes().to_vec(),
            file: number(found),
            own: found.mode() & PERMISSIONS,
            wide: wide & PERMISSIONS,
        }));
    }

    /// Notes that an entry has its own permissions again.
    pub(crate) fn note_narrowed(&self, found: &Metadata) {
        self.note(&Note::Narrowed(number(found)));
    }

    fn note(&self, note: &Note) {
        let open = || File::options().append(true).create(true).open(self.path.as_ref()?).ok();
        let Some(mut file) = self.file.get_or_init(open).as_ref() else { return };
        // A line that was cut off is ended first.
        let text = [b"\n", &serde_json::to_vec(note).unwrap_or_default()[..], b"\n"].concat();
        let _ = file.write_all(&text);
    }
}
