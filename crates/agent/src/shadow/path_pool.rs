//! Pool of the path texts that a runner keeps.

use crate::sys;

/// Bytes for the paths of one run. A run that needs more leaves out the names.
const ARENA_BYTES: usize = 4 << 20;

/// Pool of texts that outlive a call.
pub struct PathPool {
    arena: u64,
    used: usize,
    /// Path of the working directory, once it is known.
    pub(super) cwd: (u32, u32),
}

impl PathPool {
    pub(super) fn new() -> sys::Result<Self> {
        Ok(PathPool { arena: sys::map_anywhere(ARENA_BYTES)?, used: 0, cwd: (0, 0) })
    }

    /// Stores a copy. Returns its place, which is empty without room.
    pub(super) fn store(&mut self, text: &[u8]) -> (u32, u32) {
        if self.used + text.len() > ARENA_BYTES {
            return (0, 0);
        }
        let at = self.used;
        // SAFETY: within the arena, which is ours; these bytes have not been handed out.
        unsafe {
            let to = (self.arena + at as u64) as *mut u8;
            core::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len());
        }
        self.used += text.len();
        (at as u32, text.len() as u32)
    }

    /// Text stored at that place.
    pub(super) fn get(&self, (at, len): (u32, u32)) -> &'static [u8] {
        // SAFETY: `store` wrote these bytes of the arena, which is never unmapped or rewritten.
        unsafe {
            core::slice::from_raw_parts((self.arena + u64::from(at)) as *const u8, len as usize)
        }
    }
}
