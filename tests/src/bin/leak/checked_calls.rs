//! System calls that the world is made of, and looked at with.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Makes a call whose arguments are numbers, or addresses of live objects of the size that the call
/// reads and writes; every caller passes such.
pub fn call<const N: usize>(nr: libc::c_long, args: [usize; N]) -> io::Result<usize> {
    let mut six = [0; 6];
    six[..N].copy_from_slice(&args);
    let [a, b, c, d, e, f] = six;
    // SAFETY: as promised by the callers, all of which are in this program.
    let ret = unsafe { libc::syscall(nr, a, b, c, d, e, f) };
    if ret == -1 { Err(io::Error::last_os_error()) } else { Ok(ret as usize) }
}

/// Makes a [`call`] that must work for the suite to show anything.
pub fn must<const N: usize>(what: &str, nr: libc::c_long, args: [usize; N]) -> usize {
    call(nr, args).unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// A call that gives a descriptor.
pub fn open<const N: usize>(what: &str, nr: libc::c_long, args: [usize; N]) -> OwnedFd {
    let fd = must(what, nr, args);
    // SAFETY: the kernel has just made it, and no other code holds it.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// Two descriptors made by pipe2(2) or socketpair(2).
pub fn two(what: &str, make: impl FnOnce(*mut RawFd) -> io::Result<usize>) -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    make(fds.as_mut_ptr()).unwrap_or_else(|e| panic!("{what}: {e}"));
    // SAFETY: as above.
    unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) }
}

/// An ioctl that fills in a `T`.
pub fn ask<T: Default>(fd: &impl AsRawFd, request: usize) -> io::Result<T> {
    let mut value = T::default();
    let at = std::ptr::from_mut(&mut value) as usize;
    call(libc::SYS_ioctl, [fd.as_raw_fd() as usize, request, at])?;
    Ok(value)
}

/// Bytes that can be read, or -1.
pub fn unread(fd: &impl AsRawFd) -> i32 {
    ask(fd, libc::FIONREAD as usize).unwrap_or(-1)
}

/// The events of `wanted` that poll(2) gives now.
pub fn ready(fd: &impl AsRawFd, wanted: i16) -> i16 {
    let mut asked = libc::pollfd { fd: fd.as_raw_fd(), events: wanted, revents: 0 };
    // SAFETY: one live entry.
    unsafe { libc::poll(&mut asked, 1, 0) };
    asked.revents
}

/// A socket option that is a number.
pub fn option(fd: &impl AsRawFd, name: i32) -> io::Result<i32> {
    let (mut value, mut len) = (0i32, 4u32);
    let at = [std::ptr::from_mut(&mut value) as usize, std::ptr::from_mut(&mut len) as usize];
    let args = [fd.as_raw_fd() as usize, libc::SOL_SOCKET as usize, name as usize, at[0], at[1]];
    call(libc::SYS_getsockopt, args)?;
    Ok(value)
}

/// `path` for a call.
pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("paths hold no NUL")
}

/// mount(2).
pub fn mount(kind: &str, source: &Path, at: &Path, options: &str) {
    let (source, target) = (c_path(source), c_path(at));
    let (kind, options) = (CString::new(kind), CString::new(options));
    let (kind, options) = (kind.expect("no NUL"), options.expect("no NUL"));
    // SAFETY: four strings that live.
    let done = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast())
    };
    assert!(done == 0, "mount {kind:?} at {target:?}: {}", io::Error::last_os_error());
}

/// Memory shared with all that are forked; leaked.
pub fn shared_memory(fd: Option<RawFd>, at: usize, len: usize) -> *mut u8 {
    let flags = libc::MAP_SHARED | if fd.is_none() { libc::MAP_ANONYMOUS } else { 0 };
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory at a place of the kernel's choice.
    let p = unsafe {
        libc::mmap(std::ptr::null_mut(), len, prot, flags, fd.unwrap_or(-1), at as libc::off_t)
    };
    assert!(p != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
    p.cast()
}

/// Waits until `done`, for at most `patience`; false if it did not come to that.
pub fn eventually(patience: Duration, mut done: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + patience;
    while !done() {
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}
