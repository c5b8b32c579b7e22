//! Numbers by which the kernel knows a thread, its process, its parent and its users; and a signal
//! to the calling thread.

use super::{Result, check, nr};
use crate::arch::syscall;

/// gettid(2).
pub fn gettid() -> u32 {
    call!(nr::GETTID).map_or(0, |p| p as u32)
}

/// getpid(2).
pub fn getpid() -> u32 {
    call!(nr::GETPID).map_or(0, |p| p as u32)
}

/// getresuid(2): the real, effective and saved user.
pub fn users() -> Result<[u32; 3]> {
    ids(nr::GETRESUID)
}

/// getresgid(2): the real, effective and saved group.
pub fn groups() -> Result<[u32; 3]> {
    ids(nr::GETRESGID)
}

fn ids(nr: u64) -> Result<[u32; 3]> {
    let mut ids = [0u32; 3];
    let at = ids.as_mut_ptr();
    call!(nr, at, at.wrapping_add(1), at.wrapping_add(2))?;
    Ok(ids)
}

/// getppid(2).
pub fn getppid() -> u32 {
    call!(nr::GETPPID).map_or(0, |p| p as u32)
}

/// rt_sigqueueinfo(2) to this thread.
pub fn queue_to_self(signal: u32, value: u64) -> Result<u64> {
    const SI_QUEUE: i32 = -1;
    let mut info = [0u64; 16];
    info[0] = signal.into();
    info[1] = SI_QUEUE as u32 as u64;
    info[3] = value;
    call!(nr::RT_TGSIGQUEUEINFO, getpid(), gettid(), signal, info.as_ptr())
}
