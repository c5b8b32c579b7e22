//! Everything that a program can see of a tree, as text.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;

/// Modification times after this one, in seconds, are those of the run itself.
const NOW: i64 = 1_500_000_000;

/// Prints a line for each entry below `root`. Names of one file are numbered together.
pub fn print(root: &Path) {
    let mut numbers = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let Ok(found) = path.symlink_metadata() else { continue };
        let next = numbers.len();
        let number = *numbers.entry((found.dev(), found.ino())).or_insert(next);
        // Times of the root, which belongs to another user, cannot be set (docs/guide/try.md).
        let time = if path == root {
            String::new()
        } else if found.mtime() >= NOW {
            "now".into()
        } else {
            format!("{}.{}", found.mtime(), found.mtime_nsec())
        };
        let name = path.strip_prefix(root).unwrap_or(&path).display();
        // Sizes and numbers of links of directories are the file system's own.
        let (size, links) = if found.is_dir() { (0, 0) } else { (found.size(), found.nlink()) };
        let (mode, owner) = (found.mode(), (found.uid(), found.gid()));
        println!(
            "{name:?} #{number} {mode:o} {owner:?} {size} {links} {time} {} {}",
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
        .is_some_and(|hole| hole < found.size());
    format!("{:x} {}", hasher.finish(), if has_hole { "holes" } else { "" })
}
