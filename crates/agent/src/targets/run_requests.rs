//! Requests to templates: another run from where the newest shadow was made, or the end of all
//! existing shadows.

use core::sync::atomic::Ordering::{Relaxed, Release};

use runahead_abi::Control;

use crate::sys;

/// Makes every existing shadow end itself. Returns the number of the sync that takes over.
pub(super) fn supersede(control: &Control) -> u32 {
    // The supervisor supersedes shadows in the same way.
    let sync = control.sync.fetch_add(1, Relaxed).wrapping_add(1);
    request_run(control, sync);
    sync
}

/// Asks the template of that sync for another run.
pub(super) fn request_run(control: &Control, sync: u32) {
    control.run_sync.store(sync, Relaxed);
    control.run_request.fetch_add(1, Release);
    sys::futex_wake(&control.run_request);
}
