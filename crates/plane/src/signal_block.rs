//! Stretches of the agent's work in which no signal is delivered.
//!
//! What the program's mask was is remembered, so that a bug in such a stretch, which gives the rest
//! of it up ([`crate::fail_open`]), does not leave the program deaf.

use super::thread::{self, Thread};
use crate::sys;

/// Has signals wait. What is to be given to [`end`].
pub fn begin() -> u64 {
    let mask = sys::set_mask(!0);
    if let Some(thread) = thread::current()
        && thread.mask.get().is_none()
    {
        thread.mask.set(Some(mask));
    }
    mask
}

/// Has signals delivered again, as before the [`begin`] that returned `mask`.
pub fn end(mask: u64) {
    if let Some(thread) = thread::current()
        && thread.mask.get() == Some(mask)
    {
        thread.mask.set(None);
    }
    sys::set_mask(mask);
}

/// Ends the outermost stretch that was given up.
pub(super) fn abandon(thread: &Thread) {
    if let Some(mask) = thread.mask.take() {
        sys::set_mask(thread.as_believed(mask));
    }
    thread.release_held_signals();
}
