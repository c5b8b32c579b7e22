//! What is known of directories, by the hashes of their paths, as of the filter's generation: the real tree is taken not to change
//! while the try lasts, as that below an overlayfs is.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runahead_abi::overlay::{LAYERS_MAX, PathHash};

use super::change_filter;
use super::layer::Layer;

/// Directories remembered.
const CACHED: usize = 1024;

/// How a directory stands in the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DirectoryState {
    /// In the real tree.
    Lower,
    /// In both trees.
    Merged,
    /// In the upper tree, and so is all that is in it.
    Upper,
}

/// Of each layer hashes of paths, the lowest two bits replaced by how the directory stands (0: nothing is known).
static CACHE: [[AtomicU64; CACHED]; LAYERS_MAX] =
    [const { [const { AtomicU64::new(0) }; CACHED] }; LAYERS_MAX];

fn key(layer: Layer, path: PathHash) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    (path.bits() ^ change_filter::filter(layer).generation().wrapping_mul(STEP)) & !3
}

fn slot(layer: Layer, key: u64) -> &'static AtomicU64 {
    &CACHE[layer.index()][(key >> 2) as usize % CACHED]
}

/// How the directory stands, if that is known.
pub(super) fn cached_state(layer: Layer, path: PathHash) -> Option<DirectoryState> {
    let key = key(layer, path);
    let word = slot(layer, key).load(Relaxed);
    if word & !3 != key {
        return None;
    }
    match word & 3 {
        1 if !change_filter::filter(layer).has(path) => Some(DirectoryState::Lower),
        2 => Some(DirectoryState::Merged),
        3 => Some(DirectoryState::Upper),
        _ => None,
    }
}

/// The directory stands so.
pub(super) fn cache_state(layer: Layer, path: PathHash, directory: DirectoryState) {
    let how = match directory {
        DirectoryState::Lower => 1,
        DirectoryState::Merged => 2,
        DirectoryState::Upper => 3,
    };
    let key = key(layer, path);
    slot(layer, key).store(key | how, Relaxed);
}
