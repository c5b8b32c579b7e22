//! How much a stream surely takes before anybody reads from it.
//!
//! What is held is answered as if it had been written, and is written later, by a thread for which all others wait. So it must not have
//! to wait itself: who reads from that stream may be one of them, or the same thread a call later. And where a descriptor does not
//! block, the program would have been told that there is no room.

use linux_raw_sys::general as k;

use crate::sys::{self, Fd, nr};

// Of ioctl_tty(2) and socket(7).
const FIONREAD: u64 = 0x541b;
const SOL_SOCKET: u64 = 1;
const SO_TYPE: u64 = 3;
const SO_SNDBUF: u64 = 7;
const SOCK_STREAM: u64 = 1;

/// Do not wait; raise no SIGPIPE (send(2), recv(2)).
pub const MSG_DONTWAIT: u64 = 0x40;
pub const MSG_NOSIGNAL: u64 = 0x4000;

/// So many bytes are written at once where there is room for any (pipe(7)).
const AT_ONCE: u64 = 4096;
/// Of memory that one message takes besides its bytes, which take up to twice as much, not more than this.
const MESSAGE: u64 = 1024;
/// A socket into which one can write has at least this part of its buffer left: three quarters if it is local, a third if not.
const PART: u64 = 4;

/// Most bytes that so many calls together can write without waiting.
pub fn room(fd: Fd, calls: u64) -> u64 {
    if poll(fd, 0) != Ok(POLLOUT) {
        return 0;
    }
    if let Ok(size) = made(nr::FCNTL, [fd as u64, k::F_GETPIPE_SZ.into(), 0, 0, 0, 0]) {
        // Of two writes, one upon the other, that are not put into one page, the bytes are more than a page.
        let all = (size / 2).saturating_sub(AT_ONCE);
        return if is_empty(fd) { all.max(AT_ONCE) } else { AT_ONCE };
    }
    match option(fd, SO_TYPE) {
        Some(kind) if kind == SOCK_STREAM || calls == 1 => {
            let room = option(fd, SO_SNDBUF).unwrap_or(0) / PART;
            room.saturating_sub(calls * MESSAGE) / 2
        }
        // Of messages the receiver has room for a few.
        Some(_) => 0,
        // A terminal, or a device.
        None => AT_ONCE,
    }
}

/// Whether what is written can be read by somebody yet.
pub fn is_read(fd: Fd) -> bool {
    poll(fd, 0).is_ok_and(|events| events & (POLLERR | POLLHUP) == 0)
}

/// Whether nothing waits there to be read.
pub fn is_empty(fd: Fd) -> bool {
    let mut waiting = 0u32;
    let args = [fd as u32 as u64, FIONREAD, (&raw mut waiting) as u64, 0, 0, 0];
    made(nr::IOCTL, args).is_ok() && waiting == 0
}

/// There is room for what is written; nobody reads it any more (poll(2)).
pub const POLLOUT: u64 = 4;
const POLLERR: u64 = 8;
const POLLHUP: u64 = 16;

/// What poll(2) says of writing to `fd` within so many milliseconds; `u64::MAX`: whenever that is.
pub fn poll(fd: Fd, ms: u64) -> sys::Result<u64> {
    let mut entry = [fd as u32 as u64 | POLLOUT << 32];
    made(nr::POLL, [entry.as_mut_ptr() as u64, 1, ms, 0, 0, 0])?;
    Ok(entry[0] >> 48)
}

/// An option of a socket (socket(7)). None: it is none.
pub fn option(fd: Fd, option: u64) -> Option<u64> {
    let (mut value, mut len) = (0u32, 4u32);
    let at = [(&raw mut value) as u64, (&raw mut len) as u64];
    let args = [fd as u64, SOL_SOCKET, option, at[0], at[1], 0];
    made(nr::GETSOCKOPT, args).ok().map(|_| value.into())
}

fn made(number: u64, args: [u64; 6]) -> sys::Result<u64> {
    // SAFETY: poll(2), fcntl(2), ioctl(2) and getsockopt(2) with the arguments above write what lies on the callers' stacks, and change
    // nothing else.
    sys::check(unsafe { sys::raw(number, args) })
}
