//! Kind of a file that a process is about to execute.
//!
//! The process cannot examine the file itself: it would lose its locks on it (fcntl(2)). It sends a
//! descriptor of it (`O_PATH`), and learns nothing that it could not read.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use nix::libc;
use runahead_abi::control_protocol::ANSWER_BYTES;
use runahead_admission::process::read_rights::RightsCheck;
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::process::Pid;

use crate::shadow_sandbox::CACHESTAT;

/// Kind of file that exec would run.
#[derive(Debug, PartialEq, Eq)]
pub enum ExecFile {
    /// A program for which there is an agent: x86-64 ELF.
    Supported,
    /// A script, and the name of its interpreter.
    Script(Vec<u8>),
    /// Anything else.
    Other,
    /// The file cannot be examined without a wait.
    NotCached,
}

/// Examines the file at `place` for `process`. Waits for storage only if `patient`.
pub fn examine(place: &OwnedFd, process: Pid, patient: bool) -> ExecFile {
    try_examine(place, process, patient).unwrap_or(ExecFile::Other)
}

fn try_examine(place: &OwnedFd, process: Pid, patient: bool) -> std::io::Result<ExecFile> {
    const BY_ANYBODY: u32 = 0o004;
    let name = format!("/proc/self/fd/{}", place.as_raw_fd());
    // Opens only regular files: opening a device or a pipe has effects.
    let it = std::fs::metadata(&name)?;
    if !it.is_file()
        || it.mode() & BY_ANYBODY == 0 && !RightsCheck::new(process)?.includes_ours()?
    {
        return Ok(ExecFile::Other);
    }
    let flags = (OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(name)?;
    if !patient && is_cold(&file) {
        return Ok(ExecFile::NotCached);
    }
    // The first byte of an answer is its kind.
    let mut head = [0; ANSWER_BYTES - 1];
    let got = file.read_at(&mut head, 0)?;
    Ok(parse(&head[..got]))
}

/// True if the first byte of the file is not cached.
fn is_cold(file: &File) -> bool {
    let mut byte = [0];
    match preadv2(file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT) {
        Err(Errno::AGAIN) => true,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => cached_pages(file) == Some(0),
        _ => false,
    }
}

/// Number of cached pages at the start of the file: 0 or 1.
fn cached_pages(file: &File) -> Option<u64> {
    let (range, mut out) = ([0u64, 1], [0u64; 5]);
    // SAFETY: cachestat(2) reads a range of two words, and writes five.
    let got =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), out.as_mut_ptr(), 0) };
    (got == 0).then_some(out[0])
}

fn parse(head: &[u8]) -> ExecFile {
    // ELF, 64 bits, little-endian; `e_machine` is at offset 18 (elf(5)).
    const EM_X86_64: u8 = 62;
    if let Some(line) = head.strip_prefix(b"#!") {
        return interpreter(line).map_or(ExecFile::Other, |name| ExecFile::Script(name.to_owned()));
    }
    match head.starts_with(b"\x7fELF\x02\x01") && head.get(18..20) == Some(&[EM_X86_64, 0]) {
        true => ExecFile::Supported,
        false => ExecFile::Other,
    }
}

/// Name of the interpreter in a script's first line; `None` if `line` may not hold all of it.
fn interpreter(line: &[u8]) -> Option<&[u8]> {
    let start = line.iter().position(|b| !matches!(b, b' ' | b'\t'))?;
    let rest = &line[start..];
    let end = rest.iter().position(|b| matches!(b, b' ' | b'\t' | b'\n' | 0))?;
    (end > 0).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_named_as_the_kernel_reads_them() {
        let script = |name: &[u8]| ExecFile::Script(name.to_owned());
        assert_eq!(parse(b"#!/bin/sh\n"), script(b"/bin/sh"));
        assert_eq!(parse(b"#! \t/bin/sh -e\n"), script(b"/bin/sh"));
        assert_eq!(parse(b"#!relative/one\0"), script(b"relative/one"));
        for none in [&b"#!"[..], b"#!\n", b"#!  \n", b"#!/cut/off", b"", b"#", b"text\n"] {
            assert_eq!(parse(none), ExecFile::Other, "{none:?}");
        }
    }

    #[test]
    fn elf_for_this_processor_is_supported() {
        let mut head = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0";
        assert_eq!(parse(&head), ExecFile::Supported);
        assert_eq!(parse(&head[..19]), ExecFile::Other);
        head[18] = 3;
        assert_eq!(parse(&head), ExecFile::Other);
    }
}
