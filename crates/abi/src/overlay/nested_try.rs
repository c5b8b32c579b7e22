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

/// Length in bytes of the prefix of `path` that leads from a try's directory to that of one nested
/// in it. `path` starts with a slash.
pub fn nested_prefix_len(path: &[u8]) -> Option<usize> {
    let rest = path.strip_prefix(b"/")?.strip_prefix(TRIES.as_bytes())?.strip_prefix(b"/")?;
    let name = rest.iter().position(|byte| *byte == b'/')?;
    let behind = rest[name + 1..].strip_prefix(DIRECTORY.as_bytes())?;
    let is_whole = name > 0 && !matches!(&rest[..name], b"." | b"..");
    let ends = matches!(behind, [] | [b'/', ..]);
    (is_whole && ends).then_some(path.len() - behind.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_a_path_are_its_layers() {
        let path = b"/tries/abc/held/tries/d/held";
        assert_eq!(nested_prefix_len(path), Some(15));
        assert_eq!(nested_prefix_len(&path[15..]), Some(13));
        let others = [
            "",
            "/",
            "/tries",
            "/tries/a",
            "/tries//held",
            "/tries/../held",
            "/tries/a/upper",
            "/tries/a/heldx",
            "tries/a/held",
        ];
        assert!(others.iter().all(|path| nested_prefix_len(path.as_bytes()).is_none()));
    }
}
