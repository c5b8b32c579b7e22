//! Descriptors of files and directories that this process alone has open, and what the program wants done with what it writes.
//!
//! One that was inherited, or that a child has inherited or somebody was sent, shares its offset with another process, which
//! would see it move.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::sys::Fd;

/// Descriptors that are looked after; others are taken to be shared.
pub const DESCRIPTORS: usize = 1024;

static OWN: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
static POLICIES: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];

fn place(fd: Fd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OWN.get(fd / 64)?, 1 << (fd % 64)))
}

/// Whether no other process has it.
pub fn is(fd: Fd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// Whether that is so from here on.
pub fn set(fd: Fd, own: bool) {
    if let Some((word, bit)) = place(fd) {
        match own {
            true => word.fetch_or(bit, Relaxed),
            false => word.fetch_and(!bit, Relaxed),
        };
    }
}

/// Another process has, or may have, all of them.
pub fn forget_all() {
    OWN.iter().for_each(|word| word.store(0, Relaxed));
}

/// What the program has said of what it writes to `fd`: a value of the interface, 0 for nothing.
pub fn policy(fd: Fd) -> u8 {
    usize::try_from(fd)
        .ok()
        .and_then(|fd| POLICIES.get(fd))
        .map_or(0, |policy| policy.load(Relaxed))
}

/// The program says so; what it had said before. None: it is no descriptor that is looked after.
pub fn set_policy(fd: Fd, policy: u8) -> Option<u8> {
    let place = usize::try_from(fd).ok().and_then(|fd| POLICIES.get(fd))?;
    Some(place.swap(policy, Relaxed))
}
