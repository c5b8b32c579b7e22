//! Allowlist of the opens that a shadow makes, where the kernel must see no others.
//!
//! Before Linux 6.2 Landlock cannot refuse an open that truncates, and seccomp sees the arguments
//! of openat2(2) but not the structure that the third points to. There the filter allows only
//! structures in an agent's page at [`OPENINGS_START`], and no call that would write, replace, move
//! or unmap that page (`shadow_sandbox` in crate `supervisor`).
//!
//! Invariant: in a sandboxed process the page holds the [`ALLOWED_OPENS`] or zeroes (madvise(2) may
//! drop it). Each of these only reads.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux_raw_sys::general as k;
use runahead_abi::AgentConfig;
use runahead_abi::agent_config::{OPENING_BYTES, OPENINGS_END, OPENINGS_START};

use crate::sys::{self, Errno, Fd};

const PLACE: u32 = k::O_PATH | k::O_CLOEXEC;
const DIRECTORY: u32 = k::O_RDONLY | k::O_CLOEXEC | k::O_DIRECTORY;
const FILE: u32 = k::O_RDONLY | k::O_CLOEXEC | k::O_NONBLOCK | k::O_NOCTTY;

/// Open flags and resolve flags.
const ALLOWED_OPENS: [(u32, u32); 8] = [
    (PLACE, k::RESOLVE_CACHED),
    (PLACE | k::O_NOFOLLOW, k::RESOLVE_CACHED),
    (PLACE, 0),
    (PLACE | k::O_NOFOLLOW, 0),
    (DIRECTORY, 0),
    (DIRECTORY | k::O_NOATIME, 0),
    (FILE, 0),
    (FILE | k::O_NOATIME, 0),
];

/// True if this process, or the one that it was forked from, is confined to [`ALLOWED_OPENS`].
static IS_CONFINED: AtomicBool = AtomicBool::new(false);

fn allowed_open_address(way: usize) -> u64 {
    OPENINGS_START + way as u64 * OPENING_BYTES
}

/// Writes the allowlist, if `config` demands it. Fails with `EEXIST` if the program uses that page.
pub(super) fn prepare(config: &AgentConfig) -> sys::Result<()> {
    const BYTES: u64 = OPENINGS_END - OPENINGS_START;
    const { assert!(ALLOWED_OPENS.len() as u64 * OPENING_BYTES <= BYTES) };
    const { assert!(size_of::<k::open_how>() as u64 <= OPENING_BYTES) };
    if config.openings == 0 {
        return Ok(());
    }
    // SAFETY: new memory, where none is.
    unsafe { sys::map_private(sys::Place::IfFree(OPENINGS_START), BYTES) }?;
    for (way, &(flags, resolve)) in ALLOWED_OPENS.iter().enumerate() {
        let how = k::open_how { flags: flags.into(), mode: 0, resolve: resolve.into() };
        // SAFETY: within the page that has just been mapped, aligned.
        unsafe { (allowed_open_address(way) as *mut k::open_how).write(how) };
    }
    // SAFETY: no reference to it exists.
    unsafe { sys::protect(OPENINGS_START, BYTES, k::PROT_READ) }?;
    IS_CONFINED.store(true, Relaxed);
    Ok(())
}

/// openat2(2) like [`sys::openat2`]; in a confined process only one of the allowed opens.
pub(super) fn open(dir: Fd, path: u64, flags: u32, resolve: u32) -> sys::Result<Fd> {
    if !IS_CONFINED.load(Relaxed) {
        return sys::openat2(dir, path, flags, 0, resolve);
    }
    let way =
        ALLOWED_OPENS.iter().position(|&way| way == (flags, resolve)).ok_or(Errno(sys::EPERM))?;
    // SAFETY: `prepare` has written it there.
    sys::openat2_as(dir, path, unsafe { &*(allowed_open_address(way) as *const k::open_how) })
}
