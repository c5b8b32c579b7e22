//! The bytes of a disk: an unnamed sparse file, read through a mapping.
//!
//! The mapping keeps pages that were written in memory: dropping the kernel's caches evicts
//! unmapped page cache only, so a cold read of the simulated disk costs what the model says and not
//! what the machine's own disk takes.
//!
//! Invariant: the file has no name once it is open; however the server ends, the space is free.
//!
//! # Safety
//!
//! The unsafe code is the mapping. Nothing else can open the file, so it never shrinks under the
//! mapping.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::FallocateFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};

const PAGE: u64 = 4096;

/// Bytes of a disk.
pub(super) struct BackingFile {
    file: File,
    map: NonNull<u8>,
    size: u64,
}

// SAFETY: the pointer is to a mapping that this owns and that lives until the process ends; all
// access through it is reading.
unsafe impl Send for BackingFile {}
// SAFETY: as above; the file's own methods are thread-safe.
unsafe impl Sync for BackingFile {}

impl BackingFile {
    /// A disk full of zeros.
    pub(super) fn create(dir: &Path, size: u64) -> io::Result<Self> {
        // With a name for an instant rather than O_TMPFILE, which not every file system has.
        let path = dir.join(format!(".runahead-testbed-{}", std::process::id()));
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        std::fs::remove_file(&path)?;
        file.set_len(size)?;
        let len = usize::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs no other memory.
        let map = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        let map = NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { file, map, size })
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The bytes at `offset`, fewer at the end of the disk.
    pub(super) fn read(&self, offset: u64, len: u64) -> &[u8] {
        let Range { start, end } = self.clamp(offset, len);
        // SAFETY: `start <= end <= size`, the length of the mapping, which lives as long as `self`.
        // A write at the same time may change the bytes, as on a real disk; the slice is only ever
        // handed to the kernel, so no Rust code depends on their staying as they are.
        unsafe {
            std::slice::from_raw_parts(
                self.map.as_ptr().add(start as usize),
                (end - start) as usize,
            )
        }
    }

    /// Writes through the file and not the mapping, where a full host file system would be a
    /// signal, not an error.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = self.clamp(offset, data.len() as u64);
        if range.end - range.start != data.len() as u64 {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.file.write_all_at(data, offset)?;
        self.hold(range);
        Ok(())
    }

    /// Makes a range read as zeros and frees its space.
    pub(super) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, offset, len)?)
    }

    /// Maps the pages that were just written, which holds them in memory. Failing costs speed only.
    fn hold(&self, range: Range<u64>) {
        let start = range.start / PAGE * PAGE;
        let len = range.end.next_multiple_of(PAGE).min(self.size) - start;
        // SAFETY: the range lies in the mapping, and populating changes no content.
        let _ = unsafe {
            let at = self.map.as_ptr().add(start as usize);
            rustix::mm::madvise(at.cast(), len as usize, Advice::LinuxPopulateRead)
        };
    }

    fn clamp(&self, offset: u64, len: u64) -> Range<u64> {
        let start = offset.min(self.size);
        start..offset.saturating_add(len).min(self.size).max(start)
    }
}
