//! Cache of the states of directories, by the hashes of their paths.
//!
//! An entry is valid for one generation of the filter. As below an overlayfs, the lower tree is
//! assumed not to change while the try lasts.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runahead_abi::overlay::{LAYERS_MAX, PathHash};

use super::change_filter;
use super::layer::Layer;

/// Number of cached directories per layer.
const CACHED: usize = 1024;

/// State of a directory in the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DirectoryState {
    /// Only the lower tree has it.
    Lower,
    /// Both trees have it.
    Merged,
    /// Only the upper tree has it, with all its contents.
    Upper,
}

/// Hashes of paths for each layer. The lowest three bits are the state of the directory: 0 none, 1
/// lower, 2 merged, 3 upper, 4 merged with [`has_equal_rights`].
static CACHE: [[AtomicU64; CACHED]; LAYERS_MAX] =
    [const { [const { AtomicU64::new(0) }; CACHED] }; LAYERS_MAX];

/// Bits of the state, and its value for merged directories whose rights are equal in both trees.
const STATE: u64 = 7;
const EQUAL_RIGHTS: u64 = 4;

fn key(layer: Layer, path: PathHash) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    (path.bits() ^ change_filter::filter(layer).generation().wrapping_mul(STEP)) & !STATE
}

fn slot(layer: Layer, key: u64) -> &'static AtomicU64 {
    &CACHE[layer.index()][(key >> 3) as usize % CACHED]
}

/// Returns the state of a directory if it is cached.
pub(super) fn cached_state(layer: Layer, path: PathHash) -> Option<DirectoryState> {
    let key = key(layer, path);
    let word = slot(layer, key).load(Relaxed);
    if word & !STATE != key {
        return None;
    }
    match word & STATE {
        1 if !change_filter::filter(layer).has(path) => Some(DirectoryState::Lower),
        2 | EQUAL_RIGHTS => Some(DirectoryState::Merged),
        3 => Some(DirectoryState::Upper),
        _ => None,
    }
}

/// Caches the state of a directory.
pub(super) fn cache_state(layer: Layer, path: PathHash, directory: DirectoryState) {
    let how = match directory {
        DirectoryState::Lower => 1,
        DirectoryState::Merged => 2,
        DirectoryState::Upper => 3,
    };
    let key = key(layer, path);
    slot(layer, key).store(key | how, Relaxed);
}

/// True if a merged directory is known to have one owner and mode in both trees, and no attributes
/// of chattr(1). So the kernel checks a change in the upper directory as it would in the lower one.
pub(super) fn has_equal_rights(layer: Layer, path: PathHash) -> bool {
    let key = key(layer, path);
    slot(layer, key).load(Relaxed) == key | EQUAL_RIGHTS
}

/// Caches that a merged directory has equal rights.
pub(super) fn cache_equal_rights(layer: Layer, path: PathHash) {
    let key = key(layer, path);
    slot(layer, key).store(key | EQUAL_RIGHTS, Relaxed);
}
