//! Budget of memory for prefetched data and for shadows.
//!
//! Prefetched data may take a part of what is available to the machine, or to the control group
//! that the supervisor is in. A process whose group has little room gets no shadows: each can come
//! to be as large as the process itself.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::process::proc_files::{number, quantity, stat, status};
use runahead_abi::Control;
use runahead_abi::shared_memory::MIRRORED_PAGES;
use runahead_abi::swapped_memory::PAGE_BYTES;
use runahead_estimators::access_identity::CHUNK_BYTES;

/// Part of memory, one in so many, that may hold what was prefetched and not used yet.
const SHARE: u64 = 8;
/// Room that a group must have for shadows beside twice the resident memory of the process, in
/// bytes.
const SLACK: u64 = 16 << 20;
/// A limit that is none, in whole pages (control groups of the first version).
const UNLIMITED: u64 = 1 << 62;
/// Bytes that a worker of the prefetcher takes: its stack, and on shares a buffer of one chunk.
const WORKER: u64 = CHUNK_BYTES + (64 << 10);
/// Workers of the prefetcher that there are however little room there is.
const FEWEST: usize = 16;
/// Time for which a measured size is valid.
const FRESH: Duration = Duration::from_millis(250);

/// Bytes that all processes of a session may have prefetched and not used.
///
/// Half of it is shared out evenly, so that no process waits because another has not used its data.
/// The other half goes to the first process that needs it. A process on its own has all of it.
///
/// Invariant: as long as the budget does not shrink and no process joins, the sum of the bytes
/// within the processes' allowances does not exceed it.
#[derive(Debug, Default)]
pub struct Budget {
    known: Mutex<Option<(Instant, u64)>>,
    members: AtomicU64,
    ahead: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    /// Returns the budget in bytes, measured within the last 250 ms.
    pub fn bytes(&self) -> u64 {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some((since, bytes)) if since.elapsed() < FRESH => bytes,
            _ => {
                let now = bytes();
                *known = Some((Instant::now(), now));
                now
            }
        }
    }

    /// Returns the budget in bytes as last measured; 0: never.
    pub fn latest(&self) -> u64 {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).map_or(0, |(_, bytes)| bytes)
    }

    /// Adds a process.
    pub(crate) fn join(&self) {
        self.members.fetch_add(1, Relaxed);
    }

    /// Removes a process, which had `own` bytes.
    pub(crate) fn leave(&self, own: u64) {
        self.members.fetch_sub(1, Relaxed);
        self.ahead.fetch_sub(own, Relaxed);
    }

    /// A process that had `before` now has `now`.
    pub(crate) fn change(&self, before: u64, now: u64) {
        let sum = self.ahead.fetch_add(now.wrapping_sub(before), Relaxed);
        self.peak.fetch_max(sum.wrapping_add(now).wrapping_sub(before), Relaxed);
    }

    /// Returns the bytes that a process may have that has `own`.
    pub(crate) fn allowance(&self, own: u64) -> u64 {
        self.allowance_of(self.bytes(), own)
    }

    fn allowance_of(&self, bytes: u64, own: u64) -> u64 {
        let members = self.members.load(Relaxed).max(1);
        if members == 1 {
            return bytes;
        }
        let others = self.ahead.load(Relaxed).saturating_sub(own);
        (bytes / 2 / members).max((bytes / 2).saturating_sub(others))
    }

    /// The most that processes have had together, in bytes.
    pub fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }
}

/// Returns the bytes that may be prefetched and not used yet, of all processes together, as things
/// are now.
pub fn bytes() -> u64 {
    available_memory().min(room_of("self").unwrap_or(u64::MAX)) / SHARE
}

/// Reads that may be under way at a time, at most `most`: each has a thread with a buffer of its
/// own, and all of them may take a quarter of what there is.
pub fn workers(most: usize) -> usize {
    let room = room_of("self").unwrap_or(u64::MAX);
    ((room / 4 / WORKER) as usize).clamp(FEWEST, most)
}

/// Bytes that a shadow takes that fetches its memory as it touches it, where memory is scarce.
const MIRROR: u64 = 3 << 20;

/// Returns the pages of its own that a process with `pages` may have for a template and a runner of
/// it to fit into the memory of its control group. They are fewer than it has if the two do not
/// fit. `None`: there is no limit, or the process has ended.
pub fn pages_most(process: u32, pages: u64) -> Option<u64> {
    let groups = groups_of(&process.to_string(), "memory");
    let room = room_for_copies(&groups)?;
    // Mapped files belong to no process alone, and a fork does not copy them.
    let shared = quantity(&status(process)?, "RssShmem:")? << 10;
    Some(most(pages, room, pages * PAGE_BYTES + shared))
}

/// Bytes that may be taken for copies of a process in `groups`, the innermost first; `None`: there
/// is no limit.
///
/// A process that grows after it was copied may have no room left. Then the kernel ends the copy;
/// but where it is to end whole groups (`memory.oom.group`), the process with it. There half of the
/// limit is left alone.
fn room_for_copies(groups: &[PathBuf]) -> Option<u64> {
    let mut ends_all = false;
    let rooms = groups.iter().filter_map(|group| {
        ends_all |= std::fs::read_to_string(group.join("memory.oom.group"))
            .is_ok_and(|text| text.trim() == "1");
        let GroupMemory { bytes, limit } = group_memory(group)?;
        Some(if ends_all { bytes.saturating_sub(limit / 2) } else { bytes })
    });
    rooms.min()
}

/// Returns the most pages for a process that has `own` bytes.
fn most(pages: u64, room: u64, own: u64) -> u64 {
    match room.checked_sub(2 * own + SLACK) {
        // Each page more takes the room of one, and two copies of it need as much again.
        Some(spare) => pages + spare / (3 * PAGE_BYTES),
        None => pages.saturating_sub(1),
    }
}

/// Memory of its own of a process; 0 for values that cannot be read.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory {
    /// Anonymous memory, in pages of 4 KiB.
    pub pages: u64,
    /// Page faults without a device that it had had before that was counted (proc_pid_stat(5)).
    pub faults: u64,
    /// Pages that are swapped out.
    pub swapped: u64,
    /// Its threads.
    pub threads: u64,
}

impl ProcessMemory {
    /// Reads the values of `process` (proc_pid_status(5)).
    pub fn of(process: u32) -> Self {
        /// Index among the fields behind the name; the first of these is the third field.
        const MINFLT: usize = 10 - 3;
        let faults = stat(process as i32).and_then(|fields| fields.get(MINFLT)?.parse().ok());
        let text = status(process).unwrap_or_default();
        let line = |name| quantity(&text, name).unwrap_or(0);
        ProcessMemory {
            pages: line("RssAnon:") / 4,
            faults: faults.unwrap_or(0),
            swapped: line("VmSwap:") / 4,
            threads: line("Threads:"),
        }
    }

    /// The process is told of it.
    pub fn tell(&self, control: &Control) {
        control.tell_pages(self.pages, self.faults);
        control.swapped.store((self.swapped > 0).into(), Relaxed);
    }

    /// Its shadows fetch its memory as they touch it, and copy none (the agent's `kept_out`); and
    /// the control group of `process`, whose it is, has room for those.
    pub fn has_room_for_mirrors(&self, process: u32) -> bool {
        let is_mirrored = self.threads == 1 && (self.swapped > 0 || self.pages >= MIRRORED_PAGES);
        let has_room = || {
            let groups = groups_of(&process.to_string(), "memory");
            room_for_copies(&groups).is_none_or(|room| room >= 3 * MIRROR)
        };
        is_mirrored && has_room()
    }
}

/// Bytes that a process's control groups may still take; `None`: there is no limit.
fn room_of(process: &str) -> Option<u64> {
    groups_of(process, "memory").iter().filter_map(|dir| Some(group_memory(dir)?.bytes)).min()
}

/// The directories of the groups by which `controller` limits a process, the innermost first.
pub fn groups_of(process: &str, controller: &str) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let mount = Path::new("/sys/fs/cgroup");
    text.lines().flat_map(|line| groups(mount, line, controller)).collect()
}

/// `MemAvailable` of proc_meminfo(5), in bytes; a gigabyte if it cannot be read.
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    quantity(&text, "MemAvailable:").map_or(1 << 30, |kib| kib << 10)
}

/// The group of a line of /proc/self/cgroup (cgroups(7)), and those around it.
fn groups(mount: &Path, line: &str, controller: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let root = match controllers {
        "" if mount.join("cgroup.controllers").exists() => mount.to_owned(),
        "" => mount.join("unified"),
        list if list.split(',').any(|c| c == controller) => mount.join(controller),
        _ => return Vec::new(),
    };
    let group = root.join(path.trim_start_matches('/'));
    // In a container the path may be one of outside, and the group be mounted as the root.
    let group = if group.exists() { group } else { root.clone() };
    let groups = group.ancestors().take_while(|dir| dir.starts_with(&root));
    groups.map(Path::to_owned).collect()
}

/// Bytes that a group may still take, and its limit.
struct GroupMemory {
    bytes: u64,
    limit: u64,
}

/// Returns the bytes that `group` may still take, and its limit; `None` without a limit.
/// Reclaimable file pages count as free, those in active use by half, as in the kernel's own
/// estimate (`MemAvailable`). In a group that swaps, so does half of what could be swapped out.
fn group_memory(group: &Path) -> Option<GroupMemory> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let limit = |name: &str| -> Option<u64> {
        read(name)?.trim().parse().ok().filter(|&limit| limit < UNLIMITED)
    };
    let (limit, used, prefix) = match limit("memory.limit_in_bytes") {
        Some(limit) => (limit, read("memory.usage_in_bytes")?, "total_"),
        None => {
            // Above the second the kernel holds a group up until it has given something back.
            let limits = [limit("memory.max"), limit("memory.high")];
            (limits.into_iter().flatten().min()?, read("memory.current")?, "")
        }
    };
    let text = read("memory.stat").unwrap_or_default();
    let bytes = |name: &str| number(&text, &format!("{prefix}{name}")).unwrap_or(0);
    let swapped = bytes("swap")
        + read("memory.swap.current").and_then(|n| n.trim().parse().ok()).unwrap_or(0);
    let anonymous = if swapped > 0 { bytes("inactive_anon") + bytes("active_anon") } else { 0 };
    let cache = bytes("inactive_file") + bytes("active_file") / 2 + anonymous / 2;
    let used: u64 = used.trim().parse().ok()?;
    Some(GroupMemory { bytes: limit.saturating_sub(used.saturating_sub(cache)), limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(root: &Path, path: &str, files: &[(&str, &str)]) {
        let dir = root.join(path);
        std::fs::create_dir_all(&dir).expect("ours");
        files.iter().for_each(|(name, text)| std::fs::write(dir.join(name), text).expect("ours"));
    }

    fn room(mount: &Path, line: &str) -> Option<u64> {
        groups(mount, line, "memory").iter().filter_map(|dir| Some(group_memory(dir)?.bytes)).min()
    }

    #[test]
    fn a_group_that_is_ended_whole_keeps_half_of_its_limit() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        group(dir, "", &[("cgroup.controllers", "memory")]);
        group(
            dir,
            "a",
            &[("memory.max", "1000"), ("memory.current", "100"), ("memory.oom.group", "0\n")],
        );
        group(
            dir,
            "a/b",
            &[("memory.max", "max\n"), ("memory.current", "100"), ("memory.oom.group", "0\n")],
        );
        let room = || room_for_copies(&groups(dir, "0::/a/b", "memory"));
        assert_eq!(room(), Some(900));
        // The limit is that of the outer group: all of the inner one is ended.
        group(dir, "a/b", &[("memory.oom.group", "1\n")]);
        assert_eq!(room(), Some(400));
        group(dir, "a", &[("memory.current", "700")]);
        assert_eq!(room(), Some(0));
        // What is outside of where the limit is met is not asked.
        group(dir, "", &[("memory.oom.group", "1\n")]);
        group(dir, "a/b", &[("memory.oom.group", "0\n")]);
        assert_eq!(room(), Some(300));
    }

    #[test]
    fn the_narrowest_group_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        group(dir, "memory", &[("memory.limit_in_bytes", "9223372036854771712\n")]);
        let files = [
            ("memory.limit_in_bytes", "1000\n"),
            ("memory.usage_in_bytes", "700\n"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 80\ntotal_active_file 40\n"),
        ];
        group(dir, "memory/a", &files);
        group(dir, "memory/a/b", &[]);
        assert_eq!(room(dir, "4:memory:/a/b"), Some(400));
        assert_eq!(room(dir, "4:cpu,memory:/a"), Some(400));
        assert_eq!(room(dir, "4:cpu:/a"), None);
        assert_eq!(room(dir, "nonsense"), None);
        group(dir, "", &[("cgroup.controllers", "memory")]);
        group(dir, "c", &[("memory.max", "max\n"), ("memory.current", "5\n")]);
        assert_eq!(room(dir, "0::/c"), None);
        group(dir, "c", &[("memory.max", "50\n")]);
        assert_eq!(room(dir, "0::/c/"), Some(45));
        group(dir, "c", &[("memory.high", "30\n"), ("memory.stat", "active_file 4\n")]);
        assert_eq!(room(dir, "0::/c"), Some(27));
        group(dir, "c/d", &[("memory.max", "1000\n"), ("memory.current", "4\n")]);
        assert_eq!(room(dir, "0::/c/d"), Some(27), "those around it count");
    }

    #[test]
    fn who_grows_is_copied_as_long_as_two_copies_have_room() {
        let mebibytes = |n: u64| n << 20;
        let pages = |n: u64| mebibytes(n) / 4096;
        // 10 MiB of 100: with 28 there would be room for two copies of it in the other 72.
        let most_of = |room, own| most(pages(10), mebibytes(room), mebibytes(own));
        assert_eq!(most_of(90, 10), pages(28));
        assert_eq!(most_of(36, 10), pages(10));
        assert!(most_of(35, 10) < pages(10));
        assert!(most_of(0, 10) < pages(10));
    }

    #[test]
    fn each_process_gets_a_part_and_all_together_no_more_than_the_budget() {
        let budget = Budget::default();
        budget.join();
        assert_eq!(budget.allowance_of(800, 0), 800);
        (0..3).for_each(|_| budget.join());
        let mut own = [0u64; 4];
        for turn in 0..100 {
            let who = turn % 4;
            let more = budget.allowance_of(800, own[who]).saturating_sub(own[who]).min(70);
            budget.change(own[who], own[who] + more);
            own[who] += more;
            assert!(own.iter().sum::<u64>() <= 800, "{own:?}");
        }
        assert!(own.iter().all(|&bytes| bytes >= 100), "{own:?}");
        assert_eq!(budget.peak(), own.iter().sum::<u64>());
        budget.leave(own[0]);
        assert_eq!(budget.ahead.load(Relaxed), own[1..].iter().sum::<u64>());
    }
}
