//! Which file systems lie in memory, and which elsewhere.
//!
//! The former do not remember names that are not there, so that the kernel cannot answer for them from
//! its cache, and yet nobody waits for them. The latter ask for each name that it does not know. An
//! agent is told the device numbers of both.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::stat::{major, minor};
use runahead_abi::config::{MEMORY_DEVICES_MAX, REMOTE_DEVICES_MAX};

/// Types, as mountinfo has them. (What the kernel makes up, as in `/proc`, agents know by its path.)
const IN_MEMORY: [&str; 7] =
    ["tmpfs", "devtmpfs", "ramfs", "rootfs", "devpts", "mqueue", "hugetlbfs"];

/// The same of file systems that ask somebody else; of `fuse.` what follows.
const REMOTE: [&str; 11] =
    ["fuse", "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "lustre", "gpfs", "virtiofs"];

/// Device numbers as [`runahead_abi::config::AgentConfig::memory_devices`] has them; of those that are
/// mounted now.
pub fn in_memory() -> [u64; MEMORY_DEVICES_MAX] {
    first(devices(&table(), |kind| IN_MEMORY.contains(&kind)))
}

/// The same of [`runahead_abi::config::AgentConfig::remote_devices`].
pub fn remote() -> [u64; REMOTE_DEVICES_MAX] {
    first(devices(&table(), is_remote))
}

/// The device of the file at `path`, in the same form.
pub fn device(path: &Path) -> Option<u64> {
    let number = std::fs::metadata(path).ok()?.dev();
    Some(major(number) << 32 | minor(number))
}

/// As many as there is room for.
fn first<const N: usize>(devices: Vec<u64>) -> [u64; N] {
    let mut found = [0; N];
    found.iter_mut().zip(devices).for_each(|(place, device)| *place = device);
    found
}

fn is_remote(kind: &str) -> bool {
    REMOTE.contains(&kind.split('.').next().unwrap_or(kind))
}

fn table() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// The devices of a table of mounts whose type is such, once each.
fn devices(table: &str, is_such: impl Fn(&str) -> bool) -> Vec<u64> {
    let mut found = Vec::new();
    for (device, kind) in table.lines().filter_map(device_and_kind) {
        if is_such(kind) && !found.contains(&device) {
            found.push(device);
        }
    }
    found
}

/// What a line of mountinfo says (proc_pid_mountinfo(5)).
fn device_and_kind(line: &str) -> Option<(u64, &str)> {
    let (mount, source) = line.split_once(" - ")?;
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    let number = major.parse::<u64>().ok()? << 32 | minor.parse::<u64>().ok()?;
    Some((number, source.split(' ').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_in_memory_and_those_elsewhere_are_found_once_each() {
        let table = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:22 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw
24 22 0:5 / /proc rw - proc proc rw
25 22 0:22 /a /bound rw master:2 - tmpfs tmpfs rw
26 22 0:40 / /mnt rw - fuse.share share rw
28 22 0:41 / /home rw - nfs4 server:/home rw
29 22 0:42 / /sys/fs/fuse/connections rw - fusectl fusectl rw
27 22 0:6 / /dev rw - devtmpfs udev rw
nonsense
";
        assert_eq!(devices(table, |kind| IN_MEMORY.contains(&kind)), [22, 6]);
        assert_eq!(devices(table, is_remote), [40, 41]);
    }
}
