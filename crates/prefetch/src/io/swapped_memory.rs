//! Memory of a process that is swapped out.
//!
//! A page is fetched by reading a byte of it (process_vm_readv(2)): the kernel brings it into the
//! process's own tables, as if the process had touched it, and the process's lock on its mappings
//! is not held meanwhile. Which pages are swapped out `/proc/PID/pagemap` tells
//! (proc_pid_pagemap(5)); others are not touched, so that no memory comes to be by this.
//!
//! A fetched page is in the process's page tables, if the process uses it or not. To tell these
//! apart, one page in [`SAMPLES`] is not fetched ([`is_sample_page`]): it is present once the
//! process has used it.

use std::io::IoSliceMut;
use std::ops::Range;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use runahead_abi::swapped_memory::{ENTRY_BYTES, PAGE_BYTES, addresses, is_swapped_out};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, Result, pread};

/// No file has such a name.
const PREFIX: &[u8] = b"\0memory/";

/// Pages that are asked about at a time.
const PAGES: usize = 64;
/// Pages of which one is never fetched, as a sample.
const SAMPLES: u64 = 64;

/// The name of a process's memory, for hints.
pub fn memory_path(process: i32) -> Vec<u8> {
    [PREFIX, process.to_string().as_bytes()].concat()
}

/// True if the page at `at` is a sample, which is never fetched.
pub const fn is_sample_page(at: u64) -> bool {
    // Fibonacci hashing: neighbours are far apart.
    (at / PAGE_BYTES).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SAMPLES.ilog2()) == 0
}

/// The memory of one process.
pub(crate) struct Memory {
    process: Pid,
    pagemap: OwnedFd,
}

impl Memory {
    /// The process that `path` names, if it is such a name.
    pub(crate) fn process(path: &[u8]) -> Option<i32> {
        std::str::from_utf8(path.strip_prefix(PREFIX)?).ok()?.parse().ok()
    }

    pub(crate) fn of(process: i32) -> Result<Self> {
        let path = format!("/proc/{process}/pagemap");
        let pagemap = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Memory { process: Pid::from_raw(process), pagemap })
    }

    /// Calls `each` with the pages of `range`, of the log, that are swapped out and no samples,
    /// until it fails.
    pub(crate) fn swapped(
        &self,
        range: &Range<u64>,
        mut each: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let Range { start, end } = addresses(range);
        let mut entries = [0; PAGES * ENTRY_BYTES];
        for at in (start..end).step_by(PAGES * PAGE_BYTES as usize) {
            let count = (((end - at) / PAGE_BYTES) as usize).min(PAGES);
            let told = &mut entries[..count * ENTRY_BYTES];
            let got = pread(&self.pagemap, &mut *told, at / PAGE_BYTES * ENTRY_BYTES as u64)?;
            for (entry, n) in told[..got].chunks_exact(ENTRY_BYTES).zip(0..) {
                let page = at + n * PAGE_BYTES;
                if is_swapped_out(entry) && !is_sample_page(page) {
                    each(page)?;
                }
            }
        }
        Ok(())
    }

    /// Fetches the page at that address.
    pub(crate) fn fetch(&self, page: u64) -> Result<()> {
        let mut byte = [0];
        let there = RemoteIoVec { base: page as usize, len: 1 };
        match process_vm_readv(self.process, &mut [IoSliceMut::new(&mut byte)], &[there]) {
            // It has gone meanwhile, or may not be read.
            Ok(_) | Err(nix::Error::EFAULT) => Ok(()),
            Err(error) => Err(Errno::from_raw_os_error(error as i32)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_of_a_file_is_memory() {
        assert_eq!(Memory::process(&memory_path(4711)), Some(4711));
        for path in [&b"/proc/4711/mem"[..], b"/", b"memory/4711", b"\0memory/", b"\0memory/x"] {
            assert_eq!(Memory::process(path), None);
        }
    }

    #[test]
    fn samples_are_as_many_as_they_should_be() {
        let pages = 1 << 16;
        let count = (0..pages)
            .filter(|page| is_sample_page(0x7f00_0000_0000 + page * PAGE_BYTES))
            .count() as u64;
        assert!((pages / SAMPLES * 9 / 10..pages / SAMPLES * 11 / 10).contains(&count), "{count}");
    }

    #[test]
    fn what_is_not_swapped_out_is_left_alone() {
        let own = Memory::of(std::process::id() as i32).expect("this process");
        let text = vec![1u8; 1 << 20];
        let at = text.as_ptr() as u64 * runahead_abi::swapped_memory::SCALE;
        // Some that is there, some that is not mapped, and more than there are addresses.
        for range in [at..at + (1 << 20), 0..1 << 20, u64::MAX - (1 << 20)..u64::MAX] {
            let failed = own.swapped(&range, |page| panic!("{page:x} is said to be swapped out"));
            assert!(failed.is_ok(), "{failed:?}");
        }
    }

    #[test]
    fn a_page_is_fetched_by_reading_it_and_none_where_there_is_none() {
        let own = Memory::of(std::process::id() as i32).expect("this process");
        let text = vec![1u8; 4096];
        assert_eq!(own.fetch(text.as_ptr() as u64), Ok(()));
        assert_eq!(own.fetch(8), Ok(()));
    }
}
