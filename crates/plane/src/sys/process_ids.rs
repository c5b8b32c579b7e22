//! Numbers by which the kernel knows a thread, its process, its parent and its users.

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
