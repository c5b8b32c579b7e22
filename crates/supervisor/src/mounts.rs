//! Which file systems lie in memory.
//!
//! They do not remember names that are not there, so that the kernel cannot answer for them from its
//! cache, and yet nobody waits for them: an agent is told their device numbers.

use runahead_abi::config::MEMORY_DEVICES_MAX;

/// Types, as mountinfo has them. (What the kernel makes up, as in `/proc`, agents know by its path.)
const IN_MEMORY: [&str; 7] =
    ["tmpfs", "devtmpfs", "ramfs", "rootfs", "devpts", "mqueue", "hugetlbfs"];

/// Device numbers as [`runahead_abi::config::AgentConfig::memory_devices`] has them; of those that are
/// mounted now.
pub fn in_memory() -> [u64; MEMORY_DEVICES_MAX] {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    devices(&table)
}

fn devices(table: &str) -> [u64; MEMORY_DEVICES_MAX] {
    let mut found = [0; MEMORY_DEVICES_MAX];
    let mut free = found.iter_mut();
    let mut seen = Vec::new();
    for device in table.lines().filter_map(device_in_memory) {
        if !seen.contains(&device)
            && let Some(place) = free.next()
        {
            *place = device;
            seen.push(device);
        }
    }
    found
}

/// The device number of a line of mountinfo (proc_pid_mountinfo(5)), if it is of such a file system.
fn device_in_memory(line: &str) -> Option<u64> {
    let (mount, source) = line.split_once(" - ")?;
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    let kind = source.split(' ').next()?;
    let number = major.parse::<u64>().ok()? << 32 | minor.parse::<u64>().ok()?;
    IN_MEMORY.contains(&kind).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_in_memory_are_found_once_each() {
        let table = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:22 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw
24 22 0:5 / /proc rw - proc proc rw
25 22 0:22 /a /bound rw master:2 - tmpfs tmpfs rw
26 22 0:40 / /mnt rw - fuse.share share rw
27 22 0:6 / /dev rw - devtmpfs udev rw
nonsense
";
        assert_eq!(devices(table)[..3], [22, 6, 0]);
    }

    #[test]
    fn more_than_are_told_are_left_out() {
        let line = |n| format!("1 1 0:{n} / /m{n} rw - tmpfs tmpfs rw\n");
        let table: String = (100..200).map(line).collect();
        assert_eq!(devices(&table)[MEMORY_DEVICES_MAX - 1], 99 + MEMORY_DEVICES_MAX as u64);
    }
}
