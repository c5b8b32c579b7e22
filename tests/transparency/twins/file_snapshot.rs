//! Snapshot of a directory that a program has written to.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Times before 2020 are not those of the run: the program has set them.
const LONG_AGO: i64 = 1_577_836_800;

/// Mode, owner, links, size, device and contents of every file below `root`, by its path.
pub fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let Ok(meta) = path.symlink_metadata() else { continue };
        let kind = meta.file_type();
        let what = if kind.is_file() {
            // As bytes: two texts that are no UTF-8 may still differ.
            format!("{} bytes {:?}", meta.len(), Text(fs::read(&path).unwrap_or_default()))
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).unwrap_or_default();
            format!("to {:?}", Text(target.as_os_str().as_bytes().to_vec()))
        } else if kind.is_dir() {
            pending.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
            String::new()
        } else if kind.is_char_device() || kind.is_block_device() {
            format!("device {:x}", meta.rdev())
        } else {
            String::new()
        };
        let time =
            if meta.mtime() < LONG_AGO { format!(" of {}", meta.mtime()) } else { String::new() };
        let (mode, links, user, group) = (meta.mode(), meta.nlink(), meta.uid(), meta.gid());
        let line = format!("{mode:o} {links} {user}:{group}{time} {what}");
        found.insert(path.strip_prefix(root).unwrap_or(&path).to_owned(), line);
    }
    found
}

/// Contents, shown in part but for their hash.
struct Text(Vec<u8>);

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 200;
        let hash = self.0.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let shown = &self.0[..self.0.len().min(SHOWN)];
        write!(f, "{hash:016x} `{}`", shown.escape_ascii())
    }
}
