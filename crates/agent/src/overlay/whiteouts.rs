//! Names of the real tree that are not there in the view, and what names led to when they were first changed.
//!
//! What is gone stays so: what is made under its name later lies in the upper tree and covers nothing. So marks are only ever
//! added, and a mark that was seen is as true a moment later.

use linux_raw_sys::general as k;
use runahead_abi::overlay::{CHANGES, GONE, ORIGIN_MAX, Origin};

use super::change_filter;
use super::kernel_calls::{self, Open};
use super::layer::Layer;
use super::view_path::{self, Name};
use crate::sys::{self, Errno, Result};

/// Whether the real tree's name is not there in the view, whatever is above it.
pub(super) fn is_gone(name: &Name) -> bool {
    change_filter::filter(name.layer()).gone.has(name.hash())
}

/// From here on the real tree's name is not there, which led to `origin`.
pub(super) fn mark(layer: Layer, name: &Name, origin: &Origin) -> Result<()> {
    change_filter::note(name);
    if is_gone(name) {
        return Ok(());
    }
    write(layer, name, origin, &[GONE])?;
    match change_filter::filter(layer).gone.add(name.hash()) {
        true => Ok(()),
        false => Err(Errno(sys::ENOSPC)),
    }
}

/// Remembers what a name led to before its file was first copied, or something was made there.
pub(super) fn record(layer: Layer, name: &Name, origin: &Origin) -> Result<()> {
    write(layer, name, origin, &[])
}

/// One call, so that what several processes write is not mixed.
fn write(layer: Layer, name: &Name, origin: &Origin, front: &[u8]) -> Result<()> {
    let mut path = [0u8; view_path::FRONT_MAX + 1];
    let held = layer.held();
    path[..held.len()].copy_from_slice(held);
    path[held.len()] = b'/';
    path[held.len() + 1..][..CHANGES.len()].copy_from_slice(CHANGES.as_bytes());
    let mut text = [0u8; ORIGIN_MAX + 2];
    text[..front.len()].copy_from_slice(front);
    let words = origin.write(name.text(), &mut text[front.len()..ORIGIN_MAX + front.len()]);
    let len = front.len() + words.ok_or(Errno(sys::ENAMETOOLONG))?;
    let file = Open::at(path.as_ptr() as u64, k::O_WRONLY | k::O_APPEND, 0)?;
    kernel_calls::write(file.0, &text[..len + 1])
}
