//! How much a regular file surely takes.
//!
//! What is held is answered as if it had been written, so that has to be known: no limit is in the way, of the process (which would
//! get a signal as well) or of the file system, and there is room.

use core::mem::MaybeUninit;

use linux_raw_sys::general as k;

use crate::sys::{self, Fd, nr};

/// Files of every file system may be as large as this.
const LARGEST: u64 = (1 << 31) - 1;
/// Of what is free so much may be gone when what is held is written: others write, too, and file systems keep accounts.
const SPARE: u64 = 16 << 20;

/// How many bytes a file of this machine's storage surely takes at `at` (None: where the descriptor is), where so many are still to be
/// written before, perhaps to its end, which may lie at `reaches` then.
pub fn capacity(fd: Fd, at: Option<u64>, [held, reaches]: [u64; 2]) -> u64 {
    try_capacity(fd, at, [held, reaches]).unwrap_or(0)
}

fn try_capacity(fd: Fd, at: Option<u64>, [held, reaches]: [u64; 2]) -> sys::Result<u64> {
    let told = sys::statx_fd(fd, k::STATX_SIZE)?;
    if told.stx_attributes & u64::from(k::STATX_ATTR_IMMUTABLE) != 0 {
        return Ok(0);
    }
    let at = at.map_or_else(|| sys::lseek(fd, 0, k::SEEK_CUR), Ok)?;
    // (With O_APPEND it is written to the end, wherever that is then.)
    let end = at.max(told.stx_size).max(reaches).saturating_add(held);
    let below = size_limit()?.min(LARGEST).saturating_sub(end);
    Ok(below.min(free_bytes(fd)?.saturating_sub(held + SPARE)))
}

/// How large the process may make a file (RLIMIT_FSIZE).
fn size_limit() -> sys::Result<u64> {
    let mut limit = MaybeUninit::<k::rlimit64>::uninit();
    let args = [0, k::RLIMIT_FSIZE.into(), 0, limit.as_mut_ptr() as u64, 0, 0];
    // SAFETY: prlimit(2) without a new limit writes the one that there is.
    sys::check(unsafe { sys::raw(nr::PRLIMIT64, args) })?;
    // SAFETY: written.
    Ok(unsafe { limit.assume_init() }.rlim_cur)
}

/// What any process may still write to the file system.
fn free_bytes(fd: Fd) -> sys::Result<u64> {
    let told = sys::filesystem(fd)?;
    match told.f_blocks {
        // As much as there is memory.
        0 => Ok(u64::MAX),
        _ => Ok((told.f_bavail as u64).saturating_mul(told.f_bsize as u64)),
    }
}
