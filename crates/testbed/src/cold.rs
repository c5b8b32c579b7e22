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

/// Whether [`drop_caches`] can work here.
pub(crate) fn can_drop() -> bool {
    std::fs::OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").is_ok()
}
