//! Tries inside a try.
//!
//! They are kept in the outer try's directory ([`super::Overlay::directory`]), where its commands
//! may write. [`TRIES`] there has a directory for each, and [`DIRECTORY`] in that is the nested
//! try's own. Its lower tree is the outer try's view. So the path of the innermost directory names
//! all layers: the directory of each layer is a prefix of it.
//!
//! `runahead`, as a command of the outer try, asks the agent inside it by prctl(2). The first
//! argument is [`PRCTL`], which the kernel does not know, and the second is the request.

/// Name of the directory of nested tries.
pub const TRIES: &str = "tries";
/// Name of a nested try's own directory.
pub const DIRECTORY: &str = "held";

/// First argument of prctl(2).
pub const PRCTL: u32 = 0x7261_7472;
/// Request for the path of the top try's directory.
///
/// It is written to the address in the third argument, which has as many bytes as the fourth says.
/// Returns its length in bytes.
pub const GET_DIRECTORY: u64 = 1;
/// Request to move the process, which has one thread, and all that it starts into a nested try.
///
/// The third and fourth argument are address and length of the path of its directory. The fifth is
/// a seccomp filter to install (`struct sock_fprog`), or 0.
pub const ENTER: u64 = 2;

/// Devices that may be written to: they keep nothing.
pub const WRITABLE_DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// Landlock rights as this kernel defines them (landlock(7)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LandlockRights {
    /// Size in bytes of `struct landlock_ruleset_attr`; 0 if the kernel cannot deny them.
    pub size: u64,
    /// Rights that change files.
    pub changing: u64,
    /// Rights of these that are allowed for a device.
    pub writing: u64,
    /// Scopes, as bits of `scoped`.
    pub scoped: u64,
}

impl LandlockRights {
    /// Value where the kernel cannot deny them.
    pub const NONE: LandlockRights = LandlockRights { size: 0, changing: 0, writing: 0, scoped: 0 };
}
