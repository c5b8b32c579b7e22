//! Bytes that a regular file certainly accepts.
//!
//! A held write is answered as if it had succeeded, so two conditions must hold: no size limit of
//! the process or file system is in the way, and storage has room. A process that exceeds its own
//! limit also gets a signal.

use core::mem::MaybeUninit;

use linux_raw_sys::general as k;

use crate::sys::{self, Fd, nr};

/// File size that every file system supports.
const LARGEST: u64 = (1 << 31) - 1;
/// Safety margin below the free space, 16 MiB: other processes write too before the release, and
/// file systems allocate metadata.
const SPARE: u64 = 16 << 20;

/// Returns how many bytes the file certainly accepts at offset `at` (None: the descriptor's
/// offset). `held` bytes are still to be written before, perhaps at its end, which may be at
/// `reaches` by then.
pub fn capacity(fd: Fd, at: Option<u64>, [held, reaches]: [u64; 2]) -> u64 {
    try_capacity(fd, at, [held, reaches]).unwrap_or(0)
}

fn try_capacity(fd: Fd, at: Option<u64>, [held, reaches]: [u64; 2]) -> sys::Result<u64> {
    let told = sys::statx_fd(fd, k::STATX_SIZE)?;
    if told.stx_attributes & u64::from(k::STATX_ATTR_IMMUTABLE) != 0 {
        return Ok(0);
    }
    let at = at.map_or_else(|| sys::lseek(fd, 0, k::SEEK_CUR), Ok)?;
    // With O_APPEND each write goes to the end of the file.
    let end = at.max(told.stx_size).max(reaches).saturating_add(held);
    let below = size_limit()?.min(LARGEST).saturating_sub(end);
    Ok(below.min(free_bytes(fd)?.saturating_sub(held + SPARE)))
}

/// Returns the largest file size that the process may create (RLIMIT_FSIZE).
fn size_limit() -> sys::Result<u64> {
    let mut limit = MaybeUninit::<k::rlimit64>::uninit();
    let args = [0, k::RLIMIT_FSIZE.into(), 0, limit.as_mut_ptr() as u64, 0, 0];
    // SAFETY: prlimit(2) without a new limit writes the current one.
    sys::check(unsafe { sys::raw(nr::PRLIMIT64, args) })?;
    // SAFETY: written by the call above.
    Ok(unsafe { limit.assume_init() }.rlim_cur)
}

/// Returns the bytes that an unprivileged process may still write to the file system.
fn free_bytes(fd: Fd) -> sys::Result<u64> {
    let told = sys::filesystem(fd)?;
    match told.f_blocks {
        // No fixed size: as much as there is memory.
        0 => Ok(u64::MAX),
        _ => Ok((told.f_bavail as u64).saturating_mul(told.f_bsize as u64)),
    }
}
