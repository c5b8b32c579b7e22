//! Credentials by which the kernel judges the calling thread's changes to files.

use linux_raw_sys::general as k;

use super::kernel_calls::syscall;
use crate::sys::{self, nr};

/// Version 3 of capget(2)'s structures (linux/capability.h).
const VERSION: u32 = k::_LINUX_CAPABILITY_VERSION_3;

/// Capability that a check asks for (capabilities(7)).
#[derive(Clone, Copy)]
pub(super) enum Capability {
    /// Change of owners.
    Chown = 0,
    /// Changes that only the owner may make.
    Fowner = 3,
    /// Attributes `trusted.*`.
    SysAdmin = 21,
}

/// User ID for access to files: the effective one, unless setfsuid(2) has set another.
pub(super) fn user() -> u32 {
    const UNKNOWN: u64 = u32::MAX as u64;
    // An ID that does not exist changes nothing; the call returns the current one.
    syscall!(nr::SETFSUID, UNKNOWN).map_or(u32::MAX, |user| user as u32)
}

/// True if this process can give a copy another owner, and set its metadata all the same.
pub(super) fn copies_owners() -> bool {
    has_all(&[Capability::Chown, Capability::Fowner])
}

/// True if the capability is in effect.
pub(super) fn has(capability: Capability) -> bool {
    has_all(&[capability])
}

fn has_all(capabilities: &[Capability]) -> bool {
    let header = [VERSION, 0];
    // Effective, permitted and inheritable ones, of 32 capabilities each.
    let mut sets = [0u32; 6];
    let read = syscall!(nr::CAPGET, header.as_ptr(), sets.as_mut_ptr());
    let has = |capability: &Capability| sets[0] & 1 << *capability as u32 != 0;
    read.is_ok() && capabilities.iter().all(has)
}
