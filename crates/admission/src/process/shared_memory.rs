//! Memory files: one that each process of the session shares with us, and that of the agent.

use std::io::Write;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

use runahead_abi::{AgentConfig, Shared};
use runahead_estimators::SlowDevices;
use runahead_estimators::follow_filter::FollowFilter;
use runahead_speculation::Session;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

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
        ftruncate(&file, size_of::<Shared>() as u64)?;
        // A process that has the file could end us by making it shorter.
        seal(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok((Mapping { at: map(&file, size_of::<Shared>())?.cast() }, file))
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
        let _ = unsafe { munmap(self.at.as_ptr().cast(), size_of::<Shared>()) };
    }
}

/// Speculation state that a session shares, all zero at first; it lives as long as this value.
pub struct Speculations {
    at: NonNull<Session>,
    /// File by which another process can map it.
    pub file: OwnedFd,
}

// SAFETY: a Session consists of atomics, and of bytes that no code here touches, and the mapping
// belongs to this value alone.
unsafe impl Send for Speculations {}
// SAFETY: as above.
unsafe impl Sync for Speculations {}

impl Speculations {
    /// Makes one.
    pub fn new() -> Result<Self, Errno> {
        let file = memory_file()?;
        ftruncate(&file, size_of::<Session>() as u64)?;
        seal(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Speculations { at: map(&file, size_of::<Session>())?.cast(), file })
    }
}

impl Deref for Speculations {
    type Target = Session;

    fn deref(&self) -> &Session {
        // SAFETY: mapped above, page-aligned; a Session is atomics and bytes throughout, for which
        // any bytes are valid and which other processes may change at any time, while the file
        // keeps its length.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for Speculations {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; references borrow from `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), size_of::<Session>()) };
    }
}

/// Creates an empty file for the agent, under a number that no program is likely to miss: if we are
/// killed between the command's exec and the agent's start, no code closes it there.
pub fn agent_file() -> Result<OwnedFd, Errno> {
    // The last one for which the kernel need not enlarge the table, which can be seen in proc(5).
    const LAST: i32 = 63;
    let file = memory_file()?;
    // Unless the limit is lower.
    Ok(fcntl_dupfd_cloexec(&file, LAST).unwrap_or(file))
}

/// The part of the agent's file that changes later.
pub struct AgentFileFront {
    at: NonNull<u8>,
}

// SAFETY: only atomics are reached through it, and the mapping belongs to this value alone.
unsafe impl Send for AgentFileFront {}
// SAFETY: as above.
unsafe impl Sync for AgentFileFront {}

impl AgentFileFront {
    /// Returns the config's slow devices.
    pub fn slow_devices(&self) -> &SlowDevices {
        // SAFETY: mapped below, of that length, for as long as this value is there, from which the
        // reference borrows.
        unsafe { AgentConfig::slow_devices(self.at.as_ptr()) }
    }

    /// Returns the config's PID of the I/O process.
    pub fn io_process_pid(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AgentConfig::io_process_pid(self.at.as_ptr()) }
    }

    /// Returns the config's follow filter.
    pub fn follow_filter(&self) -> &FollowFilter {
        // SAFETY: as above.
        unsafe { AgentConfig::follow_filter(self.at.as_ptr()) }
    }
}

impl Drop for AgentFileFront {
    fn drop(&mut self) {
        // SAFETY: mapped by `fill`; references borrow from `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), AgentConfig::CHANGES_IN) };
    }
}

/// Writes `front` and `image` to `file`, for good: every program of the session gets it, and none
/// is to change what the others execute. Only we can, what is in the front.
pub fn fill(file: &OwnedFd, front: &[u8], image: &[u8]) -> std::io::Result<AgentFileFront> {
    let mut contents = std::fs::File::from(file.try_clone()?);
    contents.write_all(front)?;
    contents.write_all(image)?;
    let front = AgentFileFront { at: map(file, AgentConfig::CHANGES_IN)? };
    // Of all mappings that may write, this is the last.
    seal(file, SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(front)
}

/// From here on no other process of this user may look into this process: pieces of what programs
/// read pass through it, also of programs that do not let themselves be looked into.
pub fn hide() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

fn memory_file() -> Result<OwnedFd, Errno> {
    memfd_create(c"runahead", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
}

/// Maps the first `bytes` of `file`, which is not shorter, to be shared.
fn map(file: &OwnedFd, bytes: usize) -> Result<NonNull<u8>, Errno> {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping; nothing else is at the chosen address.
    let at = unsafe { mmap(null_mut(), bytes, rights, MapFlags::SHARED, file, 0)? };
    NonNull::new(at.cast()).ok_or(Errno::NOMEM)
}

fn seal(file: &OwnedFd, seals: SealFlags) -> Result<(), Errno> {
    fcntl_add_seals(file, seals | SealFlags::SEAL)
}
