//! Test for programs that would lose privileges if they were traced at their exec.
//!
//! For a file that begins with `#!` the kernel executes the interpreter that the line names, and
//! the process gets the interpreter's privileges (execve(2)). The interpreter of a script may
//! itself be a script.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::libc;

use crate::not_injected::NotInjected;

/// Interpreters of interpreters that the kernel follows.
const INTERPRETERS: usize = 5;
/// Bytes that the kernel looks at for `#!` (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: usize = 256;

/// Why what executing `path` would run is not to be traced, if it is not.
pub(crate) fn forbids(path: &Path) -> Option<NotInjected> {
    let mut path = path.to_owned();
    for _ in 0..=INTERPRETERS {
        if is_privileged(&path) {
            return Some(NotInjected::Privileged);
        }
        match interpreter(&path) {
            Ok(Some(next)) => path = next,
            Ok(None) => return None,
            // The kernel may read it, and finds what we cannot see.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Some(NotInjected::Unreadable);
            }
            // Nor will the exec succeed.
            Err(_) => return None,
        }
    }
    None
}

fn is_privileged(path: &Path) -> bool {
    const SET_ID: u32 = 0o6000;
    let set_id = path.metadata().is_ok_and(|m| m.mode() & SET_ID != 0);
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: two strings that live, and no buffer: only the attribute's size is asked for.
    let capabilities = unsafe {
        libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0)
    };
    set_id || capabilities > 0
}

/// Interpreter that the first line of the file names, if it is a script.
fn interpreter(path: &Path) -> std::io::Result<Option<PathBuf>> {
    // Nothing else can be executed, and some of it should not be opened.
    if !path.metadata()?.is_file() {
        return Ok(None);
    }
    let mut head = [0; HEAD_BYTES];
    let got = File::open(path)?.read_at(&mut head, 0)?;
    Ok(named_by(&head[..got]).map(PathBuf::from))
}

fn named_by(head: &[u8]) -> Option<&OsStr> {
    let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n' || b == 0).next()?;
    let mut words = line.split(|&b| b == b' ' || b == b'\t').filter(|word| !word.is_empty());
    words.next().map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_is_the_first_word_of_the_first_line() {
        let check = |head: &[u8], name: Option<&str>| {
            assert_eq!(named_by(head), name.map(OsStr::new), "{:?}", head.utf8_chunks());
        };
        check(b"#!/bin/sh\necho", Some("/bin/sh"));
        check(b"#! \t/usr/bin/env -S python3 -u\n", Some("/usr/bin/env"));
        check(b"#!/bin/sh", Some("/bin/sh"));
        check(b"#!bin/sh\0rest", Some("bin/sh"));
        check(b"#!\n/bin/sh\n", None);
        check(b"#!   ", None);
        check(b"\x7fELF", None);
        check(b"#", None);
    }
}
