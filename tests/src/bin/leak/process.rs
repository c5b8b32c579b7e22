//! Facts about a process that the kernel shows to every process.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::checked_calls::call;

/// Observed values by name.
pub type Seen = BTreeMap<String, String>;

const STATUS: &[&str] = &[
    "Name",
    "Umask",
    "TracerPid",
    "Uid",
    "Gid",
    "Groups",
    "VmLck",
    "Threads",
    "SigPnd",
    "ShdPnd",
    "SigBlk",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "Cpus_allowed",
    "Mems_allowed",
    "THP_enabled",
];

fn read(pid: i32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

/// The fields of proc_pid_stat(5) behind the name; the first is the state.
pub fn stat(pid: i32) -> Vec<String> {
    let text = read(pid, "stat");
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_whitespace().map(str::to_owned).collect()
}

/// Its parent; `None` when it is gone.
pub fn parent(pid: i32) -> Option<i32> {
    stat(pid).get(1)?.parse().ok()
}

/// It is there and not a zombie.
pub fn is_alive(pid: i32) -> bool {
    stat(pid).first().is_some_and(|s| s != "Z" && s != "X")
}

/// It is about to become a zombie, and loses one thing after the other.
pub fn is_ending(pid: i32) -> bool {
    const PF_EXITING: u64 = 4;
    let flags = stat(pid).get(9 - 3).and_then(|flags| flags.parse().ok()).unwrap_or(0u64);
    flags & PF_EXITING != 0
}

/// It has both filters of a runner, and can get no privileges.
pub fn is_sandboxed(pid: i32) -> bool {
    let status = read(pid, "status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    field("NoNewPrivs") == 1 && field("Seccomp_filters") >= 2
}

/// Every process of this namespace.
pub fn all() -> Vec<i32> {
    let dir = fs::read_dir("/proc").expect("/proc is mounted");
    dir.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Pending signals except SIGKILL. The session may end a shadow at any time, which is no effect of
/// its call; a shadow that reads from a slow disk ends only after that.
fn without_kill(field: &str, value: &str) -> String {
    const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
    match u64::from_str_radix(value, 16) {
        Ok(set) if field.ends_with("Pnd") => format!("{:016x}", set & !SIGKILL),
        _ => value.to_owned(),
    }
}

/// Adds what is known of `pid` under `name`.
pub fn look(pid: i32, name: &str, seen: &mut Seen) {
    let mut put = |key: &str, value: String| seen.insert(format!("{name}/{key}"), value);
    for line in read(pid, "status").lines() {
        if let Some((field, value)) = line.split_once(':')
            && STATUS.contains(&field)
        {
            put(field, without_kill(field, value.trim()));
        }
    }
    let stat = stat(pid);
    // Numbered as in proc_pid_stat(5), where the state is the third.
    for (field, at) in
        [("pgrp", 5), ("session", 6), ("tty", 7), ("nice", 19), ("realtime", 40), ("policy", 41)]
    {
        put(field, stat.get(at - 3).cloned().unwrap_or_default());
    }
    for file in ["limits", "personality", "timers", "oom_score_adj", "timerslack_ns", "cgroup"] {
        put(file, read(pid, file));
    }
    put("priority", stat.get(18 - 3).cloned().unwrap_or_default());
    for ns in ["uts", "mnt", "ipc", "net", "pid", "user", "cgroup", "time"] {
        let link = fs::read_link(format!("/proc/{pid}/ns/{ns}")).unwrap_or_default();
        put(&format!("ns:{ns}"), link.display().to_string());
    }
    for place in ["cwd", "root"] {
        let meta = fs::metadata(format!("/proc/{pid}/{place}/."));
        put(place, meta.map_or_else(|e| e.to_string(), |m| format!("{}:{}", m.dev(), m.ino())));
    }
    let maps = read(pid, "maps");
    // The fourth letter of the second field tells.
    let shared = maps.lines().filter(|l| l.split(' ').nth(1).is_some_and(|p| p.ends_with('s')));
    put("shared maps", shared.collect::<Vec<_>>().join("\n"));
    let io = call(libc::SYS_ioprio_get, [1, pid as usize]);
    put("ioprio", format!("{io:?}"));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|l| l.split(' ').next().map(str::to_owned));
    let mounts: Vec<String> = mounts.collect();
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    for fd in fds {
        // Regular files and directories that have a name are what a shadow may have.
        let plain = fs::metadata(fd.path()).is_ok_and(|m| m.is_file() || m.is_dir());
        let number = fd.file_name().display().to_string();
        let info = read(pid, &format!("fdinfo/{number}"));
        let mount = info.lines().find_map(|l| l.strip_prefix("mnt_id:"));
        let mounted = mount.is_some_and(|id| mounts.contains(&id.trim().to_owned()));
        if let Ok(link) = fs::read_link(fd.path())
            && !(plain && mounted)
        {
            put(&format!("fd:{number}"), link.display().to_string());
        }
    }
}
