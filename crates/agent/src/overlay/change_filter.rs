//! Filter of the paths at or below which something changed, shared by all processes of the try.

use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::overlay::{ChangeFilter, FILTER, LAYERS_MAX, PathHash};

use super::kernel_calls::{OpenFile, syscall};
use super::layer::Layer;
use super::view_path::{self, ViewPath};
use crate::address_space;
use crate::sys::{self, Errno, Result, nr};

/// `LOCK_SH` of flock(2).
const LOCK_SHARED: u64 = 1;

static FILTERS: [AtomicPtr<ChangeFilter>; LAYERS_MAX] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; LAYERS_MAX];

/// Maps the filter of the layer. Processes of a nested try map it read-only, and the kernel denies
/// them writing to it.
pub(super) fn start(layer: Layer) -> Result<()> {
    let mut path = [0u8; view_path::UPPER_PREFIX_MAX + 1];
    let directory = layer.directory();
    path[..directory.len()].copy_from_slice(directory);
    path[directory.len()] = b'/';
    path[directory.len() + 1..][..FILTER.len()].copy_from_slice(FILTER.as_bytes());
    let is_own = layer == Layer::top();
    let file = OpenFile::at(path.as_ptr() as u64, if is_own { k::O_RDWR } else { k::O_RDONLY }, 0)?;
    // Kept by the mapping, in children too, until the last of them ends or executes a program.
    while syscall!(nr::FLOCK, file.0, LOCK_SHARED) == Err(Errno(sys::EINTR)) {}
    let at = match is_own {
        true => address_space::map_shared(file.0, ChangeFilter::BYTES as u64)?,
        false => address_space::map_shared_to_read(file.0, ChangeFilter::BYTES as u64)?,
    };
    // The tables are read at random: readahead would fill the file with pages that none reads.
    // SAFETY: the advice changes no contents.
    let _ = unsafe { sys::advise(at, ChangeFilter::BYTES as u64, k::MADV_RANDOM) };
    FILTERS[layer.index()].store(at as *mut ChangeFilter, Relaxed);
    if is_own {
        filter(layer).end_exec();
    }
    Ok(())
}

/// Filter of the layer.
pub(super) fn filter(layer: Layer) -> &'static ChangeFilter {
    // SAFETY: mapped before the policy is asked anything of the layer, and as long as this process;
    // of atomics.
    unsafe { &*FILTERS[layer.index()].load(Relaxed) }
}

/// Enters the path and all its parents into the filter, before a change at the path.
pub(super) fn mark_changed(name: &ViewPath) {
    let filter = filter(name.layer());
    let mut hash = PathHash::ROOT;
    filter.add(hash);
    for piece in name.as_bytes().split(|byte| *byte == b'/').filter(|piece| !piece.is_empty()) {
        hash = hash.append(b"/").append(piece);
        filter.add(hash);
    }
}
