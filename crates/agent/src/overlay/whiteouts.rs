//! Whiteouts, and what names led to before their first change.
//!
//! A whiteout is never removed: what is made under the name later lies in the upper tree and covers
//! nothing. So a whiteout that was seen stays valid.

use linux_raw_sys::general as k;
use runahead_abi::overlay::{CHANGES, ORIGIN_MAX, Origin, WHITEOUT};

use super::change_filter;
use super::kernel_calls::{self, OpenFile};
use super::layer::Layer;
use super::view_path::{self, ViewPath};
use crate::sys::{self, Errno, Result};

/// True if the lower tree's name is hidden by a whiteout, whatever the upper tree has.
pub(super) fn is_whiteout(name: &ViewPath) -> bool {
    change_filter::filter(name.layer()).whiteouts.has(name.hash())
}

/// Adds a whiteout for a name of the lower tree that led to `origin`.
pub(super) fn add_whiteout(layer: Layer, name: &ViewPath, origin: &Origin) -> Result<()> {
    change_filter::mark_changed(name);
    if is_whiteout(name) {
        return Ok(());
    }
    append_record(layer, name, origin, &[WHITEOUT])?;
    match change_filter::filter(layer).whiteouts.add(name.hash()) {
        true => Ok(()),
        false => Err(Errno(sys::ENOSPC)),
    }
}

/// Records what a name led to before its first copy-up or creation.
pub(super) fn record_origin(layer: Layer, name: &ViewPath, origin: &Origin) -> Result<()> {
    append_record(layer, name, origin, &[])
}

/// Appends a record by one write(2), so that records of several processes do not mix.
fn append_record(layer: Layer, name: &ViewPath, origin: &Origin, front: &[u8]) -> Result<()> {
    let mut path = [0u8; view_path::UPPER_PREFIX_MAX + 1];
    let directory = layer.directory();
    path[..directory.len()].copy_from_slice(directory);
    path[directory.len()] = b'/';
    path[directory.len() + 1..][..CHANGES.len()].copy_from_slice(CHANGES.as_bytes());
    let mut text = [0u8; ORIGIN_MAX + 2];
    text[..front.len()].copy_from_slice(front);
    let words = origin.write(name.as_bytes(), &mut text[front.len()..ORIGIN_MAX + front.len()]);
    let len = front.len() + words.ok_or(Errno(sys::ENAMETOOLONG))?;
    let file = OpenFile::at(path.as_ptr() as u64, k::O_WRONLY | k::O_APPEND, 0)?;
    kernel_calls::write_all(file.0, &text[..len + 1])
}
