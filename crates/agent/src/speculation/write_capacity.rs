//! Bytes that a stream or a regular file certainly accepts.
//!
//! Held output is answered as if it had been written, and is written later, by a thread for which
//! all others wait. So that write must not wait: the reader of a stream may be one of these
//! threads, or the same thread one call later. A nonblocking descriptor would have returned EAGAIN
//! to the program. The write must not fail either: the result of a write to a device, or the fate
//! of a message, is not known in advance.
//!
//! For a file two conditions must hold: no size limit of the process or file system is in the way,
//! and storage has room. A process that exceeds its own limit also gets a signal.

use core::mem::MaybeUninit;

use linux_raw_sys::general as k;

use crate::sys::{self, Fd, nr};

// From ioctl_tty(2) and socket(7).
const TCGETS: u64 = 0x5401;
const TOSTOP: u32 = 0o400;
const FIONREAD: u64 = 0x541b;
const SOL_SOCKET: u64 = 1;
const SO_TYPE: u64 = 3;
const SO_SNDBUF: u64 = 7;
const SO_DOMAIN: u64 = 39;
/// Local and internet sockets (AF_UNIX, AF_INET, AF_INET6).
const KNOWN_DOMAINS: [u64; 3] = [1, 2, 10];
const SOCK_STREAM: u64 = 1;

/// Flags not to wait and to raise no SIGPIPE (send(2), recv(2)).
const MSG_DONTWAIT: u64 = 0x40;
const MSG_NOSIGNAL: u64 = 0x4000;
/// Flags with which a call still sends or receives the next bytes of a stream.
pub const PLAIN_FLAGS: u64 = MSG_DONTWAIT | MSG_NOSIGNAL;

/// `PIPE_BUF`: bytes that are written at once if poll(2) reports room (pipe(7)).
const PIPE_BUF: u64 = 4096;
/// Upper bound of a call's memory besides its bytes. The bytes themselves take up to twice their
/// size.
const MESSAGE_OVERHEAD: u64 = 1024;
/// Reciprocal of the part of its buffer that a writable socket has left at least: three quarters
/// for a local socket, a third for others.
const SOCKET_SHARE: u64 = 4;

/// Returns the bytes that `calls` calls together can certainly write without a wait, if the last
/// `is_message` (send(2)).
pub fn stream_capacity(fd: Fd, is_message: bool, calls: u64) -> u64 {
    if poll(fd, 0) != Ok(POLLOUT) {
        return 0;
    }
    if socket_option(fd, SO_TYPE) == Some(SOCK_STREAM) {
        let is_known =
            socket_option(fd, SO_DOMAIN).is_some_and(|domain| KNOWN_DOMAINS.contains(&domain));
        let room =
            socket_option(fd, SO_SNDBUF).filter(|_| is_known && is_connected(fd)).unwrap_or(0);
        return (room / SOCKET_SHARE).saturating_sub(calls * MESSAGE_OVERHEAD) / 2;
    }
    if is_message {
        return 0;
    }
    if let Ok(size) = make_call(nr::FCNTL, [fd as u64, k::F_GETPIPE_SZ.into(), 0, 0, 0, 0]) {
        // Two consecutive writes that do not share a page hold more than a page together.
        let all = (size / 2).saturating_sub(PIPE_BUF);
        return if is_empty(fd) { all.max(PIPE_BUF) } else { PIPE_BUF };
    }
    if is_null(fd) {
        return u64::MAX;
    }
    if is_terminal(fd) { PIPE_BUF } else { 0 }
}

/// True if a stream socket is connected and not shut down. With TCP_FASTOPEN_CONNECT (tcp(7)) it
/// connects only when it sends. Sends nothing.
fn is_connected(fd: Fd) -> bool {
    let (mut name, mut len) = ([0u64; 16], 128u32);
    let at = [name.as_mut_ptr() as u64, (&raw mut len) as u64];
    make_call(nr::GETPEERNAME, [fd as u64, at[0], at[1], 0, 0, 0]).is_ok()
        && make_call(nr::SENDTO, [fd as u64, 0, 0, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0]).is_ok()
}

/// True if `fd` is a terminal to which any process may write (ioctl_tty(2)).
fn is_terminal(fd: Fd) -> bool {
    // `struct termios`: four words of flags, the last with TOSTOP, and control characters.
    let mut told = [0u32; 16];
    let args = [fd as u64, TCGETS, told.as_mut_ptr() as u64, 0, 0, 0];
    make_call(nr::IOCTL, args).is_ok() && told[3] & TOSTOP == 0
}

/// True if `fd` is /dev/null (null(4)).
fn is_null(fd: Fd) -> bool {
    const NULL: (u32, u32) = (1, 3);
    sys::statx_fd(fd, k::STATX_TYPE).is_ok_and(|told| {
        let is_device = u32::from(told.stx_mode) & k::S_IFMT == k::S_IFCHR;
        is_device && (told.stx_rdev_major, told.stx_rdev_minor) == NULL
    })
}

/// True if the stream written to `fd` still has a reader.
pub fn has_reader(fd: Fd) -> bool {
    poll(fd, 0).is_ok_and(|events| events & (POLLERR | POLLHUP) == 0)
}

/// True if `fd` has nothing to read.
pub fn is_empty(fd: Fd) -> bool {
    let mut waiting = 0u32;
    let args = [fd as u32 as u64, FIONREAD, (&raw mut waiting) as u64, 0, 0, 0];
    make_call(nr::IOCTL, args).is_ok() && waiting == 0
}

/// Events of poll(2): room for a write; the reader is gone.
pub const POLLOUT: u64 = 4;
const POLLERR: u64 = 8;
const POLLHUP: u64 = 16;

/// Returns what poll(2) reports for a write to `fd` within `ms` milliseconds; `u64::MAX` waits
/// without limit.
pub fn poll(fd: Fd, ms: u64) -> sys::Result<u64> {
    let mut entry = [fd as u32 as u64 | POLLOUT << 32];
    make_call(nr::POLL, [entry.as_mut_ptr() as u64, 1, ms, 0, 0, 0])?;
    Ok(entry[0] >> 48)
}

/// Returns a socket option (socket(7)). None: `fd` is no socket.
pub fn socket_option(fd: Fd, option: u64) -> Option<u64> {
    let (mut value, mut len) = (0u32, 4u32);
    let at = [(&raw mut value) as u64, (&raw mut len) as u64];
    let args = [fd as u64, SOL_SOCKET, option, at[0], at[1], 0];
    make_call(nr::GETSOCKOPT, args).ok().map(|_| value.into())
}

fn make_call(number: u64, args: [u64; 6]) -> sys::Result<u64> {
    // SAFETY: poll(2), fcntl(2), ioctl(2), getsockopt(2), getpeername(2) and an empty send(2) with
    // the arguments above write only to the callers' stacks.
    sys::check(unsafe { sys::raw(number, args) })
}

/// File size that every file system supports.
const LARGEST: u64 = (1 << 31) - 1;
/// Safety margin below the free space, 16 MiB: other processes write too before the release, and
/// file systems allocate metadata.
const SPARE: u64 = 16 << 20;

/// Output for files that is still to be written.
#[derive(Clone, Copy)]
pub struct PendingOutput {
    /// Bytes of it, perhaps for the end of the file.
    pub bytes: u64,
    /// Offset at which the file may end by then, because of writes at explicit offsets.
    pub end: u64,
}

/// Returns how many bytes the file certainly accepts at offset `at` (None: the descriptor's
/// offset). `pending` is written before.
pub fn file_capacity(fd: Fd, at: Option<u64>, pending: PendingOutput) -> u64 {
    try_capacity(fd, at, pending).unwrap_or(0)
}

fn try_capacity(fd: Fd, at: Option<u64>, pending: PendingOutput) -> sys::Result<u64> {
    let told = sys::statx_fd(fd, k::STATX_SIZE)?;
    if told.stx_attributes & u64::from(k::STATX_ATTR_IMMUTABLE) != 0 {
        return Ok(0);
    }
    let at = at.map_or_else(|| sys::lseek(fd, 0, k::SEEK_CUR), Ok)?;
    // With O_APPEND each write goes to the end of the file.
    let end = at.max(told.stx_size).max(pending.end).saturating_add(pending.bytes);
    let below = size_limit()?.min(LARGEST).saturating_sub(end);
    Ok(below.min(free_bytes(fd)?.saturating_sub(pending.bytes + SPARE)))
}

/// Returns the largest file size that the process may create (RLIMIT_FSIZE).
fn size_limit() -> sys::Result<u64> {
    let mut limit = MaybeUninit::<k::rlimit64>::uninit();
    let args = [0, k::RLIMIT_FSIZE.into(), 0, limit.as_mut_ptr() as u64, 0, 0];
    // SAFETY: prlimit(2) without a new limit writes the current one.
    sys::check(unsafe { sys::raw(nr::PRLIMIT64, args) })?;
    // SAFETY: written by the call above.
    Ok(unsafe { limit.assume_init() }.rlim_cur)
}

/// Returns the bytes that an unprivileged process may still write to the file system.
fn free_bytes(fd: Fd) -> sys::Result<u64> {
    let told = sys::filesystem(fd)?;
    match told.f_blocks {
        // No fixed size: as much as there is memory.
        0 => Ok(u64::MAX),
        _ => Ok((told.f_bavail as u64).saturating_mul(told.f_bsize as u64)),
    }
}
