//! Probes of what this machine and user can do, by trying the first harmless step.
//!
//! Invariant: probing leaves nothing behind.

use std::fs::OpenOptions;
use std::path::PathBuf;

use crate::Missing;

/// CAP_SYS_ADMIN is bit 21 of the effective set, capabilities(7). Being user 0 proves nothing in a
/// container.
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// True if mount(2) and loop devices may be used here.
pub(crate) fn can_mount() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return false;
    };
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|effective| effective & CAP_SYS_ADMIN != 0)
}

pub(crate) fn disk() -> Result<(), Missing> {
    if !can_mount() {
        return Err(Missing::Root);
    }
    open("/dev/fuse").map_err(Missing::Fuse)?;
    open("/dev/loop-control").map_err(Missing::Loop)?;
    if find_program("mkfs.ext4").is_none() {
        return Err(Missing::Program { program: "mkfs.ext4", package: "e2fsprogs" });
    }
    Ok(())
}

pub(crate) fn share() -> Result<(), Missing> {
    // The helper is setuid, but opens the device with the caller's rights.
    open("/dev/fuse").map_err(Missing::Fuse)?;
    if !can_mount() && find_program("fusermount3").is_none() {
        return Err(Missing::Program { program: "fusermount3", package: "fuse3" });
    }
    Ok(())
}

fn open(path: &str) -> Result<(), i32> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => Ok(()),
        Err(e) => Err(e.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// The path of a program, in PATH or in the system directories that an ordinary user's PATH may
/// lack.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
}
