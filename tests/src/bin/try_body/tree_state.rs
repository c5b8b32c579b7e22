//! Everything that a program can see of a tree, as text.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, SeekFrom, StatxAttributes, StatxFlags};

use crate::other_owners::{OTHER, OTHERS_MODE};

/// Modification times after this one, in seconds, are those of the run itself.
const NOW: i64 = 1_500_000_000;

/// Prints a line for each entry below `root`. Further names of a file are printed with the first.
pub fn print(root: &Path) {
    let mut numbers = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let Ok(found) = path.symlink_metadata() else { continue };
        let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
        let first: &PathBuf = numbers.entry((found.dev(), found.ino())).or_insert(name.clone());
        let other_name = if *first == name { String::new() } else { format!(" = {first:?}") };
        // Times of the root, of files of another user and of append-only directories cannot be set
        // (docs/guide/try.md).
        let is_anothers = found.uid() == OTHER && found.mode() & 0o777 == OTHERS_MODE;
        let is_kept = path == root || is_anothers || found.is_dir() && is_append_only(&path);
        let time = if is_kept {
            String::new()
        } else if found.mtime() >= NOW {
            "now".into()
        } else {
            format!("{}.{}", found.mtime(), found.mtime_nsec())
        };
        // Sizes and numbers of links of directories are the file system's own.
        let (size, links) = if found.is_dir() { (0, 0) } else { (found.size(), found.nlink()) };
        let (mode, owner) = (found.mode(), (found.uid(), found.gid()));
        println!(
            "{name:?}{other_name} {mode:o} {owner:?} {size} {links} {time} {} {}",
            attributes(&path),
            contents(&path, &found)
        );
        if found.is_dir() {
            let mut names: Vec<PathBuf> = fs::read_dir(&path)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
                .collect();
            names.sort_by(|a, b| b.cmp(a));
            pending.extend(names);
        }
    }
}

fn is_append_only(path: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let found = rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::TYPE);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::APPEND))
}

/// Extended attributes and their values, sorted.
fn attributes(path: &Path) -> String {
    let mut names = [0; 4096];
    let count = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let text = String::from_utf8_lossy(&names[..count]).into_owned();
    let mut all: Vec<String> = text
        .split_terminator('\0')
        .map(|name| {
            let mut value = [0; 1024];
            let count = rustix::fs::lgetxattr(path, name, &mut value).unwrap_or(0);
            format!("{name}={:?}", &value[..count])
        })
        .collect();
    all.sort();
    all.join(",")
}

/// Length in bytes of a hole that is looked at. In memory (tmpfs) a hole of less is filled where it
/// is read through a mapping.
const HOLE: u64 = 64 << 10;

/// Target of a link; or hash of the contents, and whether there are holes.
fn contents(path: &Path, found: &fs::Metadata) -> String {
    if found.is_symlink() {
        return format!("-> {:?}", fs::read_link(path).unwrap_or_default());
    }
    if !found.is_file() {
        return String::new();
    }
    let mut hasher = DefaultHasher::new();
    fs::read(path).ok().hash(&mut hasher);
    let has_hole = fs::File::open(path)
        .ok()
        .and_then(|file| rustix::fs::seek(&file, SeekFrom::Hole(0)).ok())
        .is_some_and(|hole| hole + HOLE <= found.size());
    format!("{:x} {}", hasher.finish(), if has_hole { "holes" } else { "" })
}
