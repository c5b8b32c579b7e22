//! Forgetting what the kernel has cached.
//!
//! Invariant: dirty data are written first; a cold read sees what a warm one would.

use std::path::Path;

use crate::{Error, Missing, Step};

/// Writes what is dirty in all file systems and drops the page, directory entry and inode caches of
/// the whole machine.
///
/// # Errors
/// [`Missing::DropCaches`] without root.
pub fn drop_caches() -> Result<(), Error> {
    rustix::fs::sync();
    let switch = Path::new("/proc/sys/vm/drop_caches");
    std::fs::write(switch, "3").map_err(|e| match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => Missing::DropCaches.into(),
        _ => Error::system(Step::DropCaches, switch)(e),
    })
}

/// Result of `work` in a run during which no process emptied the machine's caches. `work` is
/// repeated if one did.
///
/// # Errors
/// After ten disturbed runs. Without proc_vmstat(5) no run counts as disturbed.
pub fn retry_if_caches_dropped<T>(mut work: impl FnMut() -> T) -> Result<T, String> {
    const TRIES: usize = 10;
    for _ in 0..TRIES {
        let before = drops();
        let result = work();
        if drops() == before {
            return Ok(result);
        }
    }
    Err("somebody empties the caches of this machine all the time".to_owned())
}

/// Lines of proc_vmstat(5) that count how often caches were emptied since the machine started.
fn drops() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("drop_")).map(str::to_owned).collect()
}

/// True if [`drop_caches`] can work here.
pub(crate) fn can_drop() -> bool {
    std::fs::OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").is_ok()
}
