//! How much memory there is for us: prefetched data may take a part of what is available, to the machine
//! or to the control group that we are in; and a process whose group has little room gets no shadows,
//! each of which can come to be as large as itself.

use std::path::Path;

/// Part of it that may hold what was prefetched and not used yet.
const SHARE: u64 = 8;
/// Room that a group must have beside that for shadows.
const SLACK: u64 = 16 << 20;
/// A limit that is none, in whole pages (control groups of the first version).
const UNLIMITED: u64 = 1 << 62;

/// In bytes.
pub fn bytes() -> u64 {
    machine().min(room_of("self").unwrap_or(u64::MAX)) / SHARE
}

/// Whether a template and a runner of `process` fit into the memory of its control group.
pub fn allows_shadows(process: u32) -> bool {
    let Some(room) = room_of(&process.to_string()) else { return true };
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.is_none_or(|kib: u64| room >= 2 * (kib << 10) + SLACK)
}

/// Bytes that a process's control groups may still take; `None`: there is no limit.
fn room_of(process: &str) -> Option<u64> {
    let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    groups.lines().filter_map(|line| room(Path::new("/sys/fs/cgroup"), line)).min()
}

/// `MemAvailable` of proc_meminfo(5), in bytes; a gigabyte if it cannot be read.
fn machine() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")).and_then(|n| n.trim().parse().ok());
    kib.map_or(1 << 30, |k: u64| k << 10)
}

/// What the group of a line of /proc/self/cgroup (cgroups(7)) and the groups around it may still take.
/// Caches that could be given back count as free.
fn room(mount: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (root, limit, used, cache) = match controllers {
        "" if mount.join("cgroup.controllers").exists() => {
            (mount.to_owned(), "memory.max", "memory.current", "file")
        }
        "" => (mount.join("unified"), "memory.max", "memory.current", "file"),
        list if list.split(',').any(|c| c == "memory") => {
            let (limit, used) = ("memory.limit_in_bytes", "memory.usage_in_bytes");
            (mount.join("memory"), limit, used, "total_cache")
        }
        _ => return None,
    };
    let group = root.join(path.trim_start_matches('/'));
    // In a container the path may be one of outside, and the group be mounted as the root.
    let group = if group.exists() { group } else { root.clone() };
    let groups = group.ancestors().take_while(|dir| dir.starts_with(&root));
    groups.filter_map(|dir| left(dir, limit, used, cache)).min()
}

fn left(group: &Path, limit: &str, used: &str, cache: &str) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        std::fs::read_to_string(group.join(name)).ok()?.trim().parse().ok()
    };
    let limit = number(limit).filter(|&limit| limit < UNLIMITED)?;
    let text = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(cache)?.strip_prefix(' '));
    let cache: u64 = line.and_then(|n| n.trim().parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(number(used)?.saturating_sub(cache)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(root: &Path, path: &str, files: &[(&str, &str)]) {
        let dir = root.join(path);
        std::fs::create_dir_all(&dir).expect("ours");
        files.iter().for_each(|(name, text)| std::fs::write(dir.join(name), text).expect("ours"));
    }

    #[test]
    fn the_narrowest_group_counts() {
        let dir = std::env::temp_dir().join(format!("runahead-budget-{}", std::process::id()));
        group(&dir, "memory", &[("memory.limit_in_bytes", "9223372036854771712\n")]);
        let files = [
            ("memory.limit_in_bytes", "1000\n"),
            ("memory.usage_in_bytes", "700\n"),
            ("memory.stat", "cache 1\ntotal_cache 100\n"),
        ];
        group(&dir, "memory/a", &files);
        group(&dir, "memory/a/b", &[]);
        assert_eq!(room(&dir, "4:memory:/a/b"), Some(400));
        assert_eq!(room(&dir, "4:cpu,memory:/a"), Some(400));
        assert_eq!(room(&dir, "4:cpu:/a"), None);
        group(&dir, "", &[("cgroup.controllers", "memory")]);
        group(&dir, "c", &[("memory.max", "max\n"), ("memory.current", "5\n")]);
        assert_eq!(room(&dir, "0::/c"), None);
        group(&dir, "c", &[("memory.max", "50\n")]);
        assert_eq!(room(&dir, "0::/c/"), Some(45));
        std::fs::remove_dir_all(dir).expect("ours");
    }
}
