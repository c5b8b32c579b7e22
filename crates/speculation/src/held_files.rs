//! For which files output is held, in all processes of a session together: a process that depends on one of them must not look
//! there.
//!
//! Files are counted by a hash of their numbers. Two that share a count have a process wait that need not have; so has a process
//! that was killed with output held.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::pipe_tails::mixed;

const COUNTS: usize = 1024;

/// See the module's text. All-zero is valid: for none.
#[repr(C)]
pub struct Files {
    all: AtomicU32,
    of: [AtomicU32; COUNTS],
}

impl Files {
    fn of(&self, device: u64, inode: u64) -> &AtomicU32 {
        &self.of[mixed(device, inode) as usize % COUNTS]
    }

    /// A process holds output for this file.
    pub fn hold(&self, device: u64, inode: u64) {
        self.of(device, inode).fetch_add(1, SeqCst);
        self.all.fetch_add(1, SeqCst);
    }

    /// It was written, or never will be.
    pub fn release(&self, device: u64, inode: u64) {
        self.of(device, inode).fetch_sub(1, SeqCst);
        self.all.fetch_sub(1, SeqCst);
    }

    /// Whether any is held.
    pub fn any(&self) -> bool {
        self.all.load(SeqCst) > 0
    }

    /// Whether some may be held for this one.
    pub fn has(&self, device: u64, inode: u64) -> bool {
        self.any() && self.of(device, inode).load(SeqCst) > 0
    }
}
