//! Index of the copies of files that have several names in the lower tree (hard links).
//!
//! As in overlayfs's index, a copy has a name that is made from its original's inode. The first
//! name that is changed adds the copy. Every other name of the original then shows the copy, and
//! becomes a link to it when it is changed itself.

use runahead_abi::overlay::{INDEX_NAME_BYTES, LINKS, LinkTable, write_index_name};

use super::change_filter;
use super::inode_numbers;
use super::kernel_calls::{self, Stat};
use super::layer::Layer;
use super::view_entry::{Resolved, ViewEntry};
use super::view_path;
use crate::sys::{self, Errno};

/// Path of a copy in the index.
pub(super) struct IndexPath {
    path: [u8; view_path::UPPER_PREFIX_MAX + INDEX_NAME_BYTES + 2],
    len: usize,
}

impl IndexPath {
    /// Path of the copy of a file of the lower tree.
    pub(super) fn new(layer: Layer, original: &Stat) -> Self {
        let mut path = [0u8; view_path::UPPER_PREFIX_MAX + INDEX_NAME_BYTES + 2];
        let mut name = [0u8; INDEX_NAME_BYTES];
        write_index_name(original.origin().file, &mut name);
        let mut at = 0;
        for part in [layer.directory(), b"/", LINKS.as_bytes(), b"/", &name] {
            path[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        IndexPath { path, len: at }
    }

    /// Path of the copy that an entry is shown as, if that has no name in the upper tree.
    pub(super) fn of(found: &Resolved) -> Option<Self> {
        match &found.entry {
            ViewEntry::Indexed(stat) => Some(Self::new(found.path.layer(), stat)),
            _ => None,
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.path[..self.len]
    }

    pub(super) fn address(&self) -> u64 {
        self.path.as_ptr() as u64
    }
}

/// Table of the files that have several names.
pub(super) fn table(layer: Layer) -> &'static LinkTable {
    &change_filter::filter(layer).links
}

/// True if the entry of the lower tree has several names.
fn has_more_names(lower: &Stat) -> bool {
    lower.links > 1 && !lower.is_directory()
}

/// True if the entry of the lower tree is another name of a file that was copied up.
pub(super) fn has_copy(layer: Layer, lower: &Stat) -> bool {
    has_more_names(lower)
        && table(layer).has_copies()
        && table(layer).is_copied(lower.origin().file)
}

/// Adds the complete copy at address `copy` of a file with several names to the index. Returns
/// false if it does not belong there, or no link can be made.
///
/// If another process has added a copy meanwhile, that one is kept: making the link decides.
pub(super) fn add(layer: Layer, copy: u64, lower: &Stat) -> bool {
    let original = lower.origin().file;
    if !has_more_names(lower) || !table(layer).reserve(original) {
        return false;
    }
    match kernel_calls::link(copy, IndexPath::new(layer, lower).address()) {
        Ok(_) => {}
        Err(Errno(sys::EEXIST)) => {
            if let Ok(dropped) = Stat::of_path(copy) {
                inode_numbers::forget(layer, &dropped);
            }
        }
        Err(_) => return false,
    }
    table(layer).set_copied(original, lower.links);
    true
}

/// Counts a name that was made for a file of the upper tree.
pub(super) fn count_added_name(layer: Layer, upper: &Stat) {
    count_upper_name(layer, upper, 1);
}

/// Counts a name of the view that was removed or replaced, and forgets a copy whose last name it
/// was.
pub(super) fn count_removed_name(layer: Layer, entry: &ViewEntry) {
    match entry {
        ViewEntry::Lower(stat) | ViewEntry::Indexed(stat) if has_more_names(stat) => {
            table(layer).add_links(stat.origin().file, -1);
        }
        ViewEntry::Upper(stat) => {
            count_upper_name(layer, stat, -1);
            inode_numbers::forget(layer, stat);
        }
        _ => {}
    }
}

fn count_upper_name(layer: Layer, upper: &Stat, by: i64) {
    if table(layer).has_copies() {
        let original = inode_numbers::file_in_view(layer, upper);
        if table(layer).is_copied(original) {
            table(layer).add_links(original, by);
        }
    }
}

/// True if two entries of the view are names of one file.
pub(super) fn are_one_file(layer: Layer, a: &ViewEntry, b: &ViewEntry) -> bool {
    let file = |entry: &ViewEntry| match entry {
        ViewEntry::Lower(stat) | ViewEntry::Indexed(stat) => Some(stat.origin().file),
        ViewEntry::Upper(stat) => Some(inode_numbers::file_in_view(layer, stat)),
        _ => None,
    };
    matches!((file(a), file(b)), (Some(a), Some(b)) if a == b)
}
