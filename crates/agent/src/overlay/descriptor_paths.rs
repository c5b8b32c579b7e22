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
