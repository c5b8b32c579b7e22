//! Paths of this process's descriptors.

use crate::path_text::FdPath;
use crate::sys::{self, AT_FDCWD, Fd};

/// Returns the descriptor that a path in `/proc/self/fd`, `/proc/PID/fd` or `/dev` names, if it is
/// one of this process.
pub(super) fn descriptor_of_path(name: &[u8]) -> Option<Fd> {
    let standard = [&b"/dev/stdin"[..], b"/dev/stdout", b"/dev/stderr"];
    if let Some(number) = standard.iter().position(|standard| *standard == name) {
        return Some(number as Fd);
    }
    let own = name.strip_prefix(b"/proc/self/fd/").or_else(|| name.strip_prefix(b"/dev/fd/"));
    let digits = own.or_else(|| {
        let rest = name.strip_prefix(b"/proc/")?;
        let end = rest.iter().position(|byte| *byte == b'/')?;
        let is_own = number(&rest[..end]) == Some(sys::getpid());
        rest[end..].strip_prefix(b"/fd/").filter(|_| is_own)
    })?;
    number(digits).map(|fd| fd as Fd)
}

/// Directory of this process that a path below `/proc` or `/dev` starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnDirectory {
    /// Root directory.
    Root,
    /// Directory of a descriptor, or the working directory (`AT_FDCWD`).
    Descriptor(Fd),
}

/// Finds the directory of this process that `rest`, a path in the directory `top`, goes through:
/// `self/cwd/x` or `self/fd/3/x` in `/proc`, `fd/3/x` in `/dev`. Returns it and the length of its
/// name in `rest`. The name alone, without anything behind it, is a symbolic link and not found.
pub(super) fn own_directory(top: &[u8], rest: &[u8]) -> Option<(OwnDirectory, usize)> {
    let split = |text: &[u8]| text.iter().position(|byte| *byte == b'/');
    let start = match top {
        b"/dev" => 0,
        b"/proc" => {
            let end = split(rest)?;
            let is_own = match &rest[..end] {
                b"self" | b"thread-self" => true,
                digits => number(digits).is_some_and(|pid| pid == sys::getpid()),
            };
            is_own.then_some(end + 1)?
        }
        _ => return None,
    };
    let end = split(&rest[start..])?;
    let behind = start + end;
    match &rest[start..behind] {
        b"cwd" if start > 0 => Some((OwnDirectory::Descriptor(AT_FDCWD), behind)),
        b"root" if start > 0 => Some((OwnDirectory::Root, behind)),
        b"fd" => {
            let end = split(&rest[behind + 1..])?;
            let fd = number(&rest[behind + 1..behind + 1 + end])?;
            Some((OwnDirectory::Descriptor(fd as Fd), behind + 1 + end))
        }
        _ => None,
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u32, |sum, digit| {
        let digit = (*digit as char).to_digit(10)?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Writes the path of a descriptor, as the kernel reports it, to `to`. Returns its length.
pub(super) fn path_of_descriptor(fd: Fd, to: &mut [u8]) -> sys::Result<usize> {
    sys::readlinkat(AT_FDCWD, FdPath::new(fd).address(), to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_below_own_directories_are_found() {
        let found = |top: &str, rest: &str| own_directory(top.as_bytes(), rest.as_bytes());
        assert_eq!(found("/proc", "self/fd/12/a/b"), Some((OwnDirectory::Descriptor(12), 10)));
        assert_eq!(found("/proc", "thread-self/cwd/a"), Some((OwnDirectory::Descriptor(-100), 15)));
        assert_eq!(found("/proc", "self/root/"), Some((OwnDirectory::Root, 9)));
        assert_eq!(found("/dev", "fd/3/a"), Some((OwnDirectory::Descriptor(3), 4)));
        let others =
            ["self/fd/3", "self/fd/x/a", "self/cwd", "1x/fd/3/a", "self/fdinfo/3/a", "fd/3/a"];
        assert!(others.iter().all(|rest| found("/proc", rest).is_none()));
        assert!(
            ["cwd/a", "root/a", "fd/3", "shm/fd/3/a"]
                .iter()
                .all(|rest| found("/dev", rest).is_none())
        );
    }
}
