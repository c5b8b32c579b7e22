//! The part of a path that is still to be walked, with the texts of symbolic links in front of it.

use runahead_abi::PATH_MAX;

use crate::sys::{self, Errno, Result};

/// Size in bytes: the path, and the text of a symbolic link in front of it.
const PENDING_MAX: usize = 2 * PATH_MAX;

/// The part of a path that is still to be walked. It lies at the end of the buffer.
pub(super) struct PendingPath {
    bytes: [core::mem::MaybeUninit<u8>; PENDING_MAX],
    at: usize,
}

impl PendingPath {
    #[inline(always)]
    pub(super) fn new() -> Self {
        PendingPath {
            bytes: [const { core::mem::MaybeUninit::uninit() }; PENDING_MAX],
            at: PENDING_MAX,
        }
    }

    pub(super) fn text(&self) -> &[u8] {
        let bytes = &self.bytes[self.at..];
        // SAFETY: all bytes from `at` on have been written.
        unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }

    pub(super) fn prepend(&mut self, text: &[u8]) -> Result<()> {
        let at = self.at.checked_sub(text.len()).ok_or(Errno(sys::ENAMETOOLONG))?;
        for (place, byte) in self.bytes[at..self.at].iter_mut().zip(text) {
            place.write(*byte);
        }
        self.at = at;
        Ok(())
    }

    /// Drops `bytes` bytes at the front.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(PENDING_MAX);
    }

    /// Drops slashes at the front.
    pub(super) fn skip_slashes(&mut self) {
        self.at = PENDING_MAX - skip_slashes(self.text()).len();
    }
}

/// Returns `text` without the slashes at its front.
pub(super) fn skip_slashes(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte != b'/').unwrap_or(text.len());
    &text[end..]
}
