//! Names of threads that a process of a try wants to write (`/proc/PID/task/TID/comm`).

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, PROC_SUPER_MAGIC, fstatfs, open, readlink};
use rustix::io::Errno;
use rustix::process::Pid;

/// Opens the name of a thread of `process`, of which `place` is a descriptor. The kernel refuses
/// writes by other processes, so the process gains nothing by this that it had not outside the try.
pub(crate) fn open_name(place: &OwnedFd, process: Pid) -> Result<OwnedFd, Errno> {
    if fstatfs(place)?.f_type != PROC_SUPER_MAGIC {
        return Err(Errno::ACCESS);
    }
    let link = format!("/proc/self/fd/{}", place.as_raw_fd());
    let path = readlink(&link, Vec::new())?.into_string().map_err(|_| Errno::ACCESS)?;
    if !is_name_of(Path::new(&path), process.as_raw_pid()) {
        return Err(Errno::ACCESS);
    }
    open(link, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// True if the path is that of the name of a thread of the process.
fn is_name_of(path: &Path, process: i32) -> bool {
    let Ok(rest) = path.strip_prefix(format!("/proc/{process}")) else { return false };
    let parts: Vec<_> = rest.iter().filter_map(|part| part.to_str()).collect();
    match parts[..] {
        ["comm"] => true,
        ["task", thread, "comm"] => thread.bytes().all(|byte| byte.is_ascii_digit()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_own_threads_are_opened() {
        let is_name = |path: &str| is_name_of(Path::new(path), 12);
        assert!(is_name("/proc/12/comm") && is_name("/proc/12/task/13/comm"));
        let others =
            ["/proc/1/comm", "/proc/123/comm", "/proc/12/mem", "/proc/12/task/13/mem", "/x/comm"];
        assert!(!others.into_iter().any(is_name));
    }
}
