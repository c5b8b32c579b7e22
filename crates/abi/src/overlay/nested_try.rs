//! Tries inside a try.
//!
//! They are kept below the directory that is held apart ([`super::Overlay::held`]), where its commands may write: in [`TRIES`],
//! a directory for each, in which what it holds apart is in [`APART`]. All that names files is as in any other try; the real tree is
//! what the try around it shows. So the directory that is held apart tells all layers: each is held apart at a front of it.
//!
//! `runahead` asks the agent that it has inside it, as a command of the try around, by prctl(2) with [`PRCTL`] as its first argument,
//! which the kernel does not know, and what is asked for as its second.

/// Where tries inside a try are kept.
pub const TRIES: &str = "tries";
/// What one holds apart.
pub const DIRECTORY: &str = "held";

/// First argument of prctl(2).
pub const PRCTL: u32 = 0x7261_7472;
/// The directory in which the try is held apart of which the process is. It is put to the third argument, an address, where there is room for as
/// many bytes as the fourth says; the answer is how many it has.
pub const GET_DIRECTORY: u64 = 1;
/// The process, which has one thread, and all that it starts are from here on of a try inside the one of which it is. The third and
/// fourth argument are address and bytes of the directory in which that is held apart; the fifth is a filter of system calls that
/// is to be installed (`struct sock_fprog`), or 0.
pub const ENTER: u64 = 2;

/// Devices that may be written to: nothing of it is kept.
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

/// What Landlock is to deny (landlock(7)), in this kernel's terms.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LandlockRights {
    /// Bytes of the structure that says so; 0: it cannot.
    pub size: u64,
    /// Everything that changes files.
    pub changing: u64,
    /// Of that what a device may be allowed.
    pub writing: u64,
    /// Scopes.
    pub scoped: u64,
}

impl LandlockRights {
    /// None.
    pub const NONE: LandlockRights = LandlockRights { size: 0, changing: 0, writing: 0, scoped: 0 };
}

/// Bytes at the front of `path` that lead from where a try is held apart to where one inside it is; `path` has a slash at its
/// front.
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
    fn a_path_tells_its_layers() {
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
