//! The memory file that target, shadows and supervisor share.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::unistd::ftruncate;
use runahead_abi::Shared;

/// A mapping that lasts as long as this process: its threads and workers hold references to it.
pub struct SharedMemory {
    file: OwnedFd,
    shared: &'static Shared,
}

impl SharedMemory {
    /// Makes one, all zero.
    pub fn new() -> Result<Self, Errno> {
        let file = memfd_create(c"runahead", MFdFlags::MFD_CLOEXEC)?;
        ftruncate(&file, size_of::<Shared>() as i64)?;
        let len = std::num::NonZeroUsize::new(size_of::<Shared>()).ok_or(Errno::EINVAL)?;
        // SAFETY: a fresh mapping of a file of that size; nothing else is at the chosen address.
        let at: NonNull<Shared> = unsafe {
            mmap(
                None,
                len,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                &file,
                0,
            )?
        }
        .cast();
        // SAFETY: mapped above, page-aligned, never unmapped; Shared is atomics throughout, for
        // which any bytes are valid and which other processes may change at any time.
        Ok(SharedMemory { file, shared: unsafe { at.as_ref() } })
    }

    /// What is in it.
    pub fn get(&self) -> &'static Shared {
        self.shared
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
