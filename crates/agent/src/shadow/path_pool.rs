//! Text of paths that a runner keeps.

use crate::sys;

/// Bytes for the paths of one run's descriptors. Runs that need more do without names.
const ARENA_BYTES: usize = 4 << 20;

/// Text that outlives a call, and room to build more.
pub struct PathPool {
    arena: u64,
    used: usize,
    /// The working directory's, once it is known.
    pub(super) cwd: (u32, u32),
}

impl PathPool {
    pub(super) fn new() -> sys::Result<Self> {
        Ok(PathPool { arena: sys::map_anywhere(ARENA_BYTES)?, used: 0, cwd: (0, 0) })
    }

    /// Keeps a copy: where it is. Empty if there is no room.
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

    /// What was kept there.
    pub(super) fn get(&self, (at, len): (u32, u32)) -> &'static [u8] {
        // SAFETY: `store` wrote these bytes of the arena, which is never unmapped or rewritten.
        unsafe {
            core::slice::from_raw_parts((self.arena + u64::from(at)) as *const u8, len as usize)
        }
    }
}
