//! The harness's own mount namespace.
//!
//! A disk can be mounted anew only if no other namespace has it mounted, and every new mount
//! namespace on the machine (a container, a sandbox, another test) begins with a copy of all
//! mounts. So the slow disks are mounted where no other namespace copies from. Copies of other
//! processes' slow disks are unmounted here, so that those can be unmounted there.

use std::fs;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

use crate::error::Error;

/// Moves this process, which has no threads yet, into a mount namespace of its own.
pub fn enter() -> Result<(), Error> {
    // SAFETY: only the mount namespace is unshared: no descriptors, and no memory that anything
    // here relies on being shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
        .map_err(|e| Error::system("make a mount namespace for", "/proc/self")(e.into()))?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private)
        .map_err(|e| Error::system("make private", "/")(e.into()))?;
    let table = Path::new("/proc/self/mounts");
    let mounts = fs::read_to_string(table).map_err(Error::system("read", table))?;
    for at in mounts.lines().rev().filter_map(slow) {
        // It may lie below one that is unmounted already.
        let _ = rustix::mount::unmount(at.as_str(), UnmountFlags::DETACH);
    }
    Ok(())
}

/// Returns the mount point of a slow disk or share, if this line of `/proc/self/mounts` is one's.
fn slow(line: &str) -> Option<String> {
    let mut fields = line.split(' ');
    let (device, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
    let ours = kind == "ext4" && device.starts_with("/dev/loop") || kind == "fuse.runahead-testbed";
    ours.then(|| at.replace("\\040", " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slow_disks_are_unmounted() {
        assert_eq!(slow("/dev/loop3 /a\\040b ext4 rw,relatime 0 0").as_deref(), Some("/a b"));
        let share = "runahead-testbed /s fuse.runahead-testbed rw 0 0";
        assert_eq!(slow(share).as_deref(), Some("/s"));
        assert_eq!(slow("/dev/loop3 /snap/core squashfs ro 0 0"), None);
        assert_eq!(slow("/dev/vda / ext4 rw 0 0"), None);
        assert_eq!(slow(""), None);
    }
}
