//! Peers of local stream sockets (sock_diag(7), unix(7)).
//!
//! Bytes written to one end are read at its peer only. So each of the two directions is a pipe,
//! named by the socket at which it is read.

use runahead_speculation::Pipe;

use super::write_capacity::socket_option;
use crate::plane;
use crate::sys::{self, Fd, nr};

// From socket(2), socket(7), netlink(7) and sock_diag(7).
const SO_DOMAIN: u64 = 39;
const SO_TYPE: u64 = 3;
const AF_UNIX: u64 = 1;
const AF_NETLINK: u64 = 16;
const SOCK_STREAM: u64 = 1;
const SOCK_RAW: u64 = 3;
const SOCK_CLOEXEC: u64 = 0x80000;
const NETLINK_SOCK_DIAG: u64 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;

/// Device number for sockets: their file system has none that differs from those of pipes.
const SOCKETS: u64 = u64::MAX;

/// The two directions of a connected socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketPipes {
    /// Direction that is read from it.
    pub reads: Pipe,
    /// Direction that is written to it.
    pub writes: Pipe,
}

/// True if `fd` is a local stream socket.
pub fn is_local_stream(fd: Fd) -> bool {
    socket_option(fd, SO_DOMAIN) == Some(AF_UNIX) && socket_option(fd, SO_TYPE) == Some(SOCK_STREAM)
}

/// Returns the directions of the local stream socket with this inode number. None: it is not
/// connected yet, or its peer cannot be found. The query takes a descriptor, which another thread
/// might see, so it is made only in processes with one thread. Signals must be blocked.
pub fn pipes_of_socket(inode: u64) -> Option<SocketPipes> {
    if plane::has_threads() {
        return None;
    }
    // The kernel's socket numbers have 32 bits there.
    let peer = peer(u32::try_from(inode).ok()?)?;
    let [reads, writes] = [inode, peer.into()].map(|inode| Pipe::new(SOCKETS, inode));
    Some(SocketPipes { reads, writes })
}

/// `struct nlmsghdr` and `struct unix_diag_req`.
#[repr(C)]
#[derive(Default)]
struct Request {
    len: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
    family: u8,
    protocol: u8,
    _pad: u16,
    states: u32,
    inode: u32,
    show: u32,
    cookie: [u32; 2],
}

fn peer(inode: u32) -> Option<u32> {
    let request = Request {
        len: size_of::<Request>() as u32,
        kind: SOCK_DIAG_BY_FAMILY,
        flags: NLM_F_REQUEST,
        family: AF_UNIX as u8,
        states: u32::MAX,
        inode,
        show: UDIAG_SHOW_PEER,
        cookie: [u32::MAX; 2],
        ..Request::default()
    };
    let mut answer = [0u32; 64];
    let args = [AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG, 0, 0, 0];
    // SAFETY: creates a descriptor, which is closed below.
    let socket = sys::check(unsafe { sys::raw(nr::SOCKET, args) }).ok()?;
    let (at, room) = (answer.as_mut_ptr() as u64, size_of_val(&answer) as u64);
    // SAFETY: reads the request. The kernel has answered when it returns.
    let asked = sys::check(unsafe {
        sys::raw(nr::WRITE, [socket, &raw const request as u64, request.len.into(), 0, 0, 0])
    });
    // SAFETY: writes to the answer.
    let told =
        asked.and_then(|_| sys::check(unsafe { sys::raw(nr::READ, [socket, at, room, 0, 0, 0]) }));
    let _ = sys::close(socket as Fd);
    peer_in(answer.get(..told.ok()? as usize / 4)?)
}

/// Finds the peer in an answer: `struct nlmsghdr`, `struct unix_diag_msg`, and attributes
/// (rtnetlink(7)).
fn peer_in(answer: &[u32]) -> Option<u32> {
    /// Words of the two headers.
    const HEADER: usize = 4;
    const MESSAGE: usize = 4;
    let is_answer = *answer.get(1)? as u16 == SOCK_DIAG_BY_FAMILY;
    let mut rest = answer.get(HEADER + MESSAGE..).filter(|_| is_answer)?;
    while let [head, values @ ..] = rest {
        let (len, kind) = (*head as u16, (*head >> 16) as u16);
        if kind == UNIX_DIAG_PEER {
            // 0: the connection is not accepted yet.
            return values.first().copied().filter(|peer| *peer != 0);
        }
        rest = rest.get(usize::from(len).div_ceil(4).max(1)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    /// Returns the answer for socket 7: `peer`, if there is one, and its backlog
    /// (`UNIX_DIAG_RQLEN`).
    fn answer(kind: u16, peer: Option<u32>) -> std::vec::Vec<u32> {
        let peer = peer.map(|peer| [8 | u32::from(UNIX_DIAG_PEER) << 16, peer]);
        let head = [0, kind.into(), 0, 0, 0x0101, 7, 0, 0];
        head.into_iter().chain(peer.into_iter().flatten()).chain([12 | 4 << 16, 0, 0]).collect()
    }

    #[test]
    fn the_peer_is_read_from_the_answer() {
        assert_eq!(peer_in(&answer(SOCK_DIAG_BY_FAMILY, Some(9))), Some(9));
        assert_eq!(peer_in(&answer(SOCK_DIAG_BY_FAMILY, Some(0))), None, "not accepted yet");
        assert_eq!(peer_in(&answer(SOCK_DIAG_BY_FAMILY, None)), None);
        // NLMSG_ERROR.
        assert_eq!(peer_in(&answer(2, Some(9))), None);
        assert_eq!(peer_in(&[]), None);
    }
}
