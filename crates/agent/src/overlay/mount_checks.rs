//! Mounts that names of the view are on: no rename and no link leaves one (rename(2), `EXDEV`).
//!
//! Everything that a try makes lies in one upper tree, so that the kernel would not object there.

use linux_raw_sys::general as k;
use runahead_abi::PATH_MAX;

use super::kernel_calls::syscall;
use super::layer::Layer;
use super::view_entry::Resolved;
use super::view_path::ViewPath;
use crate::sys::{self, AT_FDCWD, Errno, Result, nr};

/// Mount and device of a directory: parts of one mount may have devices of their own, as
/// subvolumes of btrfs do.
#[derive(PartialEq, Eq)]
struct Mount {
    id: u64,
    device: [u32; 2],
}

/// Fails with EXDEV if the parent directories of the two names are on different mounts.
pub(super) fn check_one_mount(from: &Resolved, to: &Resolved) -> Result<()> {
    check(&from.path, &to.path)
}

/// Fails with EXDEV if the file that the path of a descriptor leads to is on another mount than the
/// parent directory of `to`.
pub(super) fn check_mount_of_descriptor(layer: Layer, link: u64, to: &Resolved) -> Result<()> {
    let mut text = [0u8; PATH_MAX];
    // Another entry outside the view, which the kernel knows.
    let Ok(len) = sys::readlinkat(AT_FDCWD, link, &mut text) else { return Ok(()) };
    let path = layer.view_of_upper(&text[..len]).unwrap_or(&text[..len]);
    // A file that never had a name is no path: the kernel decides.
    let Some(path) = path.strip_prefix(b"/") else { return Ok(()) };
    let mut from = ViewPath::root(layer);
    from.push_raw(path)?;
    check(&from, &to.path)
}

fn check(from: &ViewPath, to: &ViewPath) -> Result<()> {
    if parent(from.as_bytes()) == parent(to.as_bytes()) {
        return Ok(());
    }
    match mount_above(from)? == mount_above(to)? {
        true => Ok(()),
        false => Err(Errno(sys::EXDEV)),
    }
}

fn parent(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &path[..slash]
}

/// Mount of the nearest directory above the name that the lowest layer's lower tree has. What a try
/// makes is on the mount of the directory in which it is made.
fn mount_above(name: &ViewPath) -> Result<Mount> {
    let mut above = name.copy()?;
    loop {
        above.pop();
        match mount_of(&above) {
            Err(errno) if above.is_root() => return Err(errno),
            Err(_) => {}
            Ok(mount) => return Ok(mount),
        }
    }
}

fn mount_of(directory: &ViewPath) -> Result<Mount> {
    // SAFETY: integers, for which zero is valid.
    let mut statx: k::statx = unsafe { core::mem::zeroed() };
    let (path, flags) = (directory.lower_address(), k::AT_SYMLINK_NOFOLLOW);
    syscall!(nr::STATX, AT_FDCWD, path, flags, k::STATX_MNT_ID, &raw mut statx)?;
    Ok(Mount { id: statx.stx_mnt_id, device: [statx.stx_dev_major, statx.stx_dev_minor] })
}
