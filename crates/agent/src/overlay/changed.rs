//! Which paths have anything changed at or below them, as all processes of the try know it.

use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::overlay::{FILTER, Filter, PathHash};

use super::kernel::Open;
use super::name::{self, Name};
use crate::room;
use crate::session::Session;
use crate::sys::Result;

static FILTER_AT: AtomicPtr<Filter> = AtomicPtr::new(core::ptr::null_mut());

/// Maps the filter that the processes of the try share.
pub(super) fn start(session: &Session) -> Result<()> {
    let mut path = [0u8; name::FRONT_MAX + 1];
    let held = name::held(session);
    path[..held.len()].copy_from_slice(held);
    path[held.len()] = b'/';
    path[held.len() + 1..][..FILTER.len()].copy_from_slice(FILTER.as_bytes());
    let file = Open::at(path.as_ptr() as u64, k::O_RDWR, 0)?;
    let at = room::map_shared(file.0, Filter::BYTES as u64)?;
    FILTER_AT.store(at as *mut Filter, Relaxed);
    Ok(())
}

/// What has been changed.
pub(super) fn filter() -> &'static Filter {
    // SAFETY: mapped at the start, before the policy is asked anything, and as long as this process; of atomics.
    unsafe { &*FILTER_AT.load(Relaxed) }
}

/// Something at the name is about to be changed: it and all above it are entered into the filter.
pub(super) fn note(name: &Name) {
    let filter = filter();
    let mut hash = PathHash::ROOT;
    filter.add(hash);
    for piece in name.text().split(|byte| *byte == b'/').filter(|piece| !piece.is_empty()) {
        hash = hash.and(b"/").and(piece);
        filter.add(hash);
    }
}
