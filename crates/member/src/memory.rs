//! Memory files: one that each process of the session shares with us, and that of the agent.

use std::io::Write;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::ftruncate;
use runahead_abi::unwatched::Unwatched;
use runahead_abi::{AgentConfig, Shared, SlowDevices};

/// A [`Shared`], all zero at first, as long as this is kept.
pub struct Mapping {
    at: NonNull<Shared>,
}

// SAFETY: a Shared consists of atomics, and the mapping belongs to this value alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes one, and the file by which another process can map it.
    pub fn new() -> Result<(Mapping, OwnedFd), Errno> {
        let file = memory_file()?;
        ftruncate(&file, size_of::<Shared>() as i64)?;
        // Whoever has the file could end us by making it shorter.
        seal(&file, SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW)?;
        let len = NonZeroUsize::new(size_of::<Shared>()).ok_or(Errno::EINVAL)?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh mapping of a file of that size; nothing else is at the chosen address.
        let at = unsafe { mmap(None, len, rights, MapFlags::MAP_SHARED, file.as_fd(), 0)? };
        Ok((Mapping { at: at.cast() }, file))
    }
}

impl Deref for Mapping {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: mapped above, page-aligned; Shared is atomics throughout, for which any bytes are
        // valid and which other processes may change at any time, while the file keeps its length.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; references borrow from `self`.
        let _ = unsafe { munmap(self.at.cast(), size_of::<Shared>()) };
    }
}

/// An empty file for the agent, under a number that no program is likely to miss: should we be
/// killed between the command's exec and the agent's start, nobody closes it there.
pub fn agent_file() -> Result<OwnedFd, Errno> {
    // The last one for which the kernel need not enlarge the table, which can be seen in proc(5).
    const LAST: i32 = 63;
    let file = memory_file()?;
    Ok(match fcntl(&file, FcntlArg::F_DUPFD_CLOEXEC(LAST)) {
        // SAFETY: a new descriptor of ours.
        Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
        // The limit is lower.
        Err(_) => file,
    })
}

/// The part of the agent's file that changes later.
pub struct Front {
    at: NonNull<u8>,
}

// SAFETY: only atomics are reached through it, and the mapping belongs to this value alone.
unsafe impl Send for Front {}
// SAFETY: as above.
unsafe impl Sync for Front {}

const FRONT: NonZeroUsize = NonZeroUsize::new(AgentConfig::CHANGES_IN).unwrap();

impl Front {
    /// See there.
    pub fn slow_devices(&self) -> &SlowDevices {
        // SAFETY: mapped below, of that length, for as long as this value is there, from which the
        // reference borrows.
        unsafe { AgentConfig::slow_devices(self.at.as_ptr()) }
    }

    /// See there.
    pub fn unwatched(&self) -> &Unwatched {
        // SAFETY: as above.
        unsafe { AgentConfig::unwatched(self.at.as_ptr()) }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // SAFETY: mapped by `fill`; references borrow from `self`.
        let _ = unsafe { munmap(self.at.cast(), FRONT.get()) };
    }
}

/// Writes `front` and `image` to `file`, for good: every program of the session gets it, and none is to
/// change what the others execute. Only we can, what is in the front.
pub fn fill(file: &OwnedFd, front: &[u8], image: &[u8]) -> std::io::Result<Front> {
    let mut contents = std::fs::File::from(file.try_clone()?);
    contents.write_all(front)?;
    contents.write_all(image)?;
    let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a fresh mapping of a file that is longer; nothing else is at the chosen address.
    let at = unsafe { mmap(None, FRONT, rights, MapFlags::MAP_SHARED, file.as_fd(), 0)? };
    let front = Front { at: at.cast() };
    // Of all mappings that may write, this is the last.
    let all = SealFlag::F_SEAL_FUTURE_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    seal(file, all)?;
    Ok(front)
}

/// From here on nobody else of this user may look into this process: pieces of what programs read pass through it, and
/// of those that do not let themselves be looked into, too.
pub fn hide() {
    // SAFETY: concerns this process only.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

fn memory_file() -> Result<OwnedFd, Errno> {
    memfd_create(c"runahead", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
}

fn seal(file: &OwnedFd, seals: SealFlag) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_ADD_SEALS(seals | SealFlag::F_SEAL_SEAL)).map(drop)
}
