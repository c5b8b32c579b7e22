//! Files for which any process of the session holds output: a process that depends on another must
//! not look at them.
//!
//! Files are counted by a hash of device and inode. Two files with the same hash make a process
//! wait without need. So does a process that was killed with held output.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::pipe_tails::hash_numbers;

const COUNTS: usize = 1024;

/// Counts of held writes by hash of the file. All-zero is valid: none is held.
#[repr(C)]
pub struct HeldFiles {
    total: AtomicU32,
    counts: [AtomicU32; COUNTS],
}

impl HeldFiles {
    fn count(&self, device: u64, inode: u64) -> &AtomicU32 {
        &self.counts[hash_numbers(device, inode) as usize % COUNTS]
    }

    /// Counts a held write to this file.
    pub fn hold(&self, device: u64, inode: u64) {
        self.count(device, inode).fetch_add(1, SeqCst);
        self.total.fetch_add(1, SeqCst);
    }

    /// Uncounts a held write, which was written or dropped.
    pub fn release(&self, device: u64, inode: u64) {
        self.count(device, inode).fetch_sub(1, SeqCst);
        self.total.fetch_sub(1, SeqCst);
    }

    /// True if output is held for any file.
    pub fn any_held(&self) -> bool {
        self.total.load(SeqCst) > 0
    }

    /// True if output may be held for this file.
    pub fn may_be_held(&self, device: u64, inode: u64) -> bool {
        self.any_held() && self.count(device, inode).load(SeqCst) > 0
    }
}
