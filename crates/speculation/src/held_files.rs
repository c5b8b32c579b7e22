//! For which files output is held, in all processes of a session together: a process that depends on one of them must not look
//! there.
//!
//! Files are counted by a hash of their numbers. Two that share a count have a process wait that need not have; so has a process
//! that was killed with output held.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::pipe_tails::hash_numbers;

const COUNTS: usize = 1024;

/// See the module's text. All-zero is valid: for none.
#[repr(C)]
pub struct HeldFiles {
    total: AtomicU32,
    counts: [AtomicU32; COUNTS],
}

impl HeldFiles {
    fn count(&self, device: u64, inode: u64) -> &AtomicU32 {
        &self.counts[hash_numbers(device, inode) as usize % COUNTS]
    }

    /// A process holds output for this file.
    pub fn hold(&self, device: u64, inode: u64) {
        self.count(device, inode).fetch_add(1, SeqCst);
        self.total.fetch_add(1, SeqCst);
    }

    /// It was written, or never will be.
    pub fn release(&self, device: u64, inode: u64) {
        self.count(device, inode).fetch_sub(1, SeqCst);
        self.total.fetch_sub(1, SeqCst);
    }

    /// Whether any is held.
    pub fn any_held(&self) -> bool {
        self.total.load(SeqCst) > 0
    }

    /// Whether some may be held for this one.
    pub fn may_be_held(&self, device: u64, inode: u64) -> bool {
        self.any_held() && self.count(device, inode).load(SeqCst) > 0
    }
}
