//! Probable device of a path.
//!
//! Each lookup tells it for the directory that the name is in, for certain but for mounts; and for
//! the directories above that as long as nothing better is known of them. A path then has the
//! device of its nearest directory that is known. A wrong answer costs one lookup that is counted
//! for another device: what the lookup brings is right.
//!
//! Invariant: at most [`MOST`] directories are remembered.

use std::hash::{DefaultHasher, Hash, Hasher};

use hashbrown::HashMap;

use crate::device_number::{DeviceNumber, Home};

/// Directories that are remembered; then all are forgotten.
const MOST: usize = 1 << 14;

/// Devices of directories.
#[derive(Default)]
pub(crate) struct DeviceMap {
    /// Device by hash of the path, and true if it is certain. A collision gives a wrong answer like
    /// others.
    directories: HashMap<u64, (DeviceNumber, bool)>,
}

fn hash(directory: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    directory.hash(&mut hasher);
    hasher.finish()
}

/// The directories that `path` is in, from the nearest; the root is the empty one.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let cut = |path: &[u8]| path.iter().rposition(|&byte| byte == b'/');
    let first = cut(path).map(|end| &path[..end]);
    std::iter::successors(first, move |path| cut(path).map(|end| &path[..end]))
}

impl DeviceMap {
    /// The device of the nearest directory of `path` that is known.
    pub(crate) fn find(&self, path: &[u8]) -> Home {
        if self.directories.is_empty() {
            return None;
        }
        above(path).find_map(|directory| self.directories.get(&hash(directory))).map(|at| at.0)
    }

    /// `path` was found to lie on `device`.
    pub(crate) fn learn(&mut self, path: &[u8], device: DeviceNumber, is_directory: bool) {
        if self.directories.len() >= MOST {
            self.directories.clear();
        }
        if is_directory {
            self.directories.insert(hash(path), (device, true));
        }
        // What is mounted at a name says nothing of the directory that the name is in, unless
        // nothing else is known.
        let mut certain = !is_directory;
        for directory in above(path) {
            let known = self.directories.entry(hash(directory)).or_insert((device, false));
            if known.1 {
                break;
            }
            if certain {
                *known = (device, true);
            }
            certain = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DeviceNumber = (8, 0);
    const SHARE: DeviceNumber = (0, 40);

    #[test]
    fn a_path_has_the_device_of_its_nearest_directory() {
        let mut at = DeviceMap::default();
        assert_eq!(at.find(b"/a/b"), None);
        at.learn(b"/a/b/c", DISK, false);
        for path in [&b"/a/b/d"[..], b"/a/b/d/e", b"/a/x", b"/y"] {
            assert_eq!(at.find(path), Some(DISK));
        }
        at.learn(b"/mnt/share", SHARE, true);
        at.learn(b"/mnt/share/f", SHARE, false);
        assert_eq!(at.find(b"/mnt/share/g/h"), Some(SHARE));
        assert_eq!(at.find(b"/a/b/d"), Some(DISK));
        // Better knowledge comes later: what lies beside the mount.
        at.learn(b"/mnt/local", DISK, false);
        assert_eq!(at.find(b"/mnt/other"), Some(DISK));
        assert_eq!(at.find(b"/mnt/share/g"), Some(SHARE));
    }

    #[test]
    fn not_every_directory_is_remembered() {
        let mut at = DeviceMap::default();
        for n in 0..3 * MOST {
            at.learn(format!("/d{n}/f").as_bytes(), DISK, false);
        }
        assert!(at.directories.len() <= MOST + 2);
    }
}
