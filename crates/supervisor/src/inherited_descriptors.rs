//! Closes the descriptors that the supervisor inherited, which only the command needs.
//!
//! If the supervisor held an end of a pipe, the other end would not notice that the command has
//! closed it: readers wait for end of file, writers for SIGPIPE. Files would stay locked, and file
//! systems busy, for the same reason.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use nix::libc;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Descriptors that are open before this process opens its own.
pub fn open_descriptors() -> Vec<libc::c_int> {
    let Ok(list) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let names = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // The descriptor of the directory itself is listed, too, but closed by now.
    let open: Vec<libc::c_int> = names.collect();
    // SAFETY: asks about numbers.
    open.into_iter().filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1).collect()
}

/// Moves `fd` above the three standard descriptors, which are replaced later. A new descriptor gets
/// one of these numbers if the caller was started without it.
pub fn beyond_standard(fd: OwnedFd) -> rustix::io::Result<OwnedFd> {
    if fd.as_raw_fd() > libc::STDERR_FILENO {
        return Ok(fd);
    }
    fcntl_dupfd_cloexec(&fd, libc::STDERR_FILENO + 1)
}

/// Closes descriptors as [`close_all_but`] does, while other threads open and close files: closes
/// only those that were [open before](open_descriptors).
pub fn close_inherited(speak: bool, inherited: &[libc::c_int]) {
    for &fd in inherited.iter().filter(|&&fd| fd > libc::STDERR_FILENO) {
        close_range(fd, fd);
    }
    replace_standard(speak);
}

/// Closes every descriptor but `ours`: the caller does not use them any more. Standard input and
/// output become a pipe with neither data nor reader, which keeps no file system busy. So does
/// standard error, unless this process will `speak` later. A reader of the command's standard error
/// then has to wait for the end of this process as well.
pub fn close_all_but(speak: bool, ours: &[libc::c_int]) {
    let mut ours = ours.to_vec();
    ours.sort_unstable();
    let mut first = libc::STDERR_FILENO + 1;
    for fd in ours.into_iter().filter(|&fd| fd > libc::STDERR_FILENO) {
        close_range(first, fd - 1);
        first = fd + 1;
    }
    close_range(first, libc::c_int::MAX);
    replace_standard(speak);
}

fn replace_standard(speak: bool) {
    // After closing the others a pipe can be opened.
    if let Ok((reader, writer)) = io::pipe() {
        // The writer's number may be a standard one, if that was closed.
        drop(writer);
        let _ = dup2_stdin(&reader);
        let _ = dup2_stdout(&reader);
        if !speak {
            let _ = dup2_stderr(&reader);
        }
        if reader.as_raw_fd() <= libc::STDERR_FILENO {
            let _ = reader.into_raw_fd();
        }
    }
}

/// Closes all descriptors from `first` to `last`, both included.
fn close_range(first: libc::c_int, last: libc::c_int) {
    if first > last {
        return;
    }
    // SAFETY: the caller guarantees that no code uses these descriptors.
    let closed = unsafe {
        libc::syscall(libc::SYS_close_range, first as libc::c_uint, last as libc::c_uint, 0)
    };
    if closed == 0 {
        return;
    }
    // The kernel is older than 5.9, or a seccomp filter refuses the call.
    for fd in open_descriptors().into_iter().filter(|fd| (first..=last).contains(fd)) {
        // SAFETY: as above; the directory's own descriptor is closed already.
        unsafe { libc::close(fd) };
    }
}
