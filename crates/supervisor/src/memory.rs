//! The memory file that target, shadows and supervisor share.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::unistd::ftruncate;
use runahead_abi::Shared;

/// A mapping that lasts as long as this process: its threads and workers hold references to it.
/// Dropping this closes the file only.
pub struct SharedMemory {
    file: OwnedFd,
    shared: &'static Shared,
}

impl SharedMemory {
    /// Makes one, all zero.
    pub fn new() -> Result<Self, Errno> {
        let file = memfd_create(c"runahead", MFdFlags::MFD_CLOEXEC)?;
        let file = out_of_the_way(file);
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

/// Gives `file` a number that no program is likely to miss: should we be killed between the
/// command's exec and the agent's start, nobody closes it there.
fn out_of_the_way(file: OwnedFd) -> OwnedFd {
    // The last one for which the kernel need not enlarge the table, which can be seen in proc(5).
    const LAST: i32 = 63;
    match fcntl(&file, FcntlArg::F_DUPFD_CLOEXEC(LAST)) {
        // SAFETY: a new descriptor of ours.
        Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
        // The limit is lower.
        Err(_) => file,
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
