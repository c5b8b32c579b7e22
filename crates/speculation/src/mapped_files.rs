//! Files that some process of the session has mapped: what is written to such a file appears in
//! memory, without a call of the process that looks.
//!
//! A file is noted for good. Forked children inherit mappings, and processes end without a call.
//! Files are noted by a hash of device and inode: two files with one hash count as mapped together.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::pipe_tails::hash_numbers;

const WORDS: usize = 1024;

/// Set of mapped files. All-zero is valid and empty.
#[repr(C)]
pub struct MappedFiles([AtomicU64; WORDS]);

impl MappedFiles {
    fn word_and_bit(&self, device: u64, inode: u64) -> (&AtomicU64, u64) {
        let hash = hash_numbers(device, inode);
        (&self.0[(hash >> 6) as usize % WORDS], 1 << (hash % 64))
    }

    /// Notes that a process is about to map this file.
    pub fn note(&self, device: u64, inode: u64) {
        let (word, bit) = self.word_and_bit(device, inode);
        if word.load(SeqCst) & bit == 0 {
            word.fetch_or(bit, SeqCst);
        }
    }

    /// True if a process of the session may have mapped this file.
    pub fn may_be_mapped(&self, device: u64, inode: u64) -> bool {
        let (word, bit) = self.word_and_bit(device, inode);
        word.load(SeqCst) & bit != 0
    }
}
