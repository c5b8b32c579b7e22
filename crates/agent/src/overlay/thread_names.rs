//! Names of this process's threads, which it writes to `/proc` (`pthread_setname_np(3)`).
//!
//! Landlock denies opening any file of `/proc` for writing. The supervisor opens these instead: the
//! kernel lets only the threads of the same process write to them.

use linux_raw_sys::general as k;
use runahead_abi::control_protocol::THREAD_NAME;

use super::kernel_calls::{OpenFile, syscall};
use crate::control_client;
use crate::plane::signal_block;
use crate::session;
use crate::sys::{self, AT_FDCWD, Fd, Result, nr};

/// True if the path may be that of a thread's name.
pub(super) fn may_be_thread_name(path: &[u8]) -> bool {
    path.starts_with(b"/proc/") && path.ends_with(b"/comm")
}

/// Opens the name of a thread at address `path` to read and write it, with the flag `O_CLOEXEC` of
/// `flags`. `None` if it is none of this process.
pub(super) fn open(path: u64, flags: u32) -> Option<Result<Fd>> {
    let session = session::get()?;
    let mask = signal_block::begin();
    let place = syscall!(nr::OPENAT, AT_FDCWD, path, k::O_PATH | k::O_CLOEXEC, 0);
    let opened = place.ok().and_then(|place| {
        let place = OpenFile(place as Fd);
        control_client::exchange_file(session, THREAD_NAME, place.0)
    });
    // The program expects the lowest number that is free.
    let copied = if flags & k::O_CLOEXEC == 0 { k::F_DUPFD } else { k::F_DUPFD_CLOEXEC };
    let moved = opened.map(OpenFile).map(|file| syscall!(nr::FCNTL, file.0, copied, 0));
    signal_block::end(mask);
    moved.map(|copy| copy.map(|fd| fd as Fd))
}
