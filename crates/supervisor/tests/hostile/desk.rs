//! Nonsense at the desk.

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
};
use runahead_inject::Layout;
use runahead_supervisor::desk::{self, Desk};
use runahead_supervisor::unwatched::Unwatched;

use crate::random::Random;
use crate::target::Target;
use crate::{assert_bounded, eventually, is_full, resident};

/// Whatever is sent to the desk, and however little is waited for, who asks next is answered.
#[test]
fn nonsense_at_the_desk_is_survived() {
    let mut random = Random::new();
    let target = Target::new(&["true"]);
    let address = desk::address();
    let name = || UnixAddr::new_abstract(&address[1..desk::address_len(&address)]).expect("short");
    let listener = desk::open(&address).expect("nobody else is there");
    let token = desk::token().expect("random numbers");
    let file = File::open("/dev/null").expect("there").into();
    let layout = Layout { file_len: 4096, total_len: 4096, entry: 0 };
    let losses = target.common.losses.clone();
    let unwatched = Unwatched::new(target.common.waits.clone(), false);
    let members = target.members.clone();
    let _desk = Desk::new((listener, token), members, file, layout, losses, unwatched);
    let connect = || {
        let kind = SockType::SeqPacket;
        let socket = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).expect("one");
        connect(socket.as_raw_fd(), &name()).map(|()| socket)
    };
    let before = resident();
    let mut kept = Vec::new();
    for _ in 0..if is_full() { 20_000 } else { 400 } {
        // Too many wait: they would be refused, too.
        let Ok(socket) = connect() else { continue };
        let mut bytes = vec![0; random.next() as usize % 64];
        bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        if let Some(first) = bytes.first_mut().filter(|_| random.next().is_multiple_of(2)) {
            *first = b"JELX"[random.next() as usize % 4];
            // By somebody who is of the session, mostly.
            if !random.next().is_multiple_of(4) {
                bytes.truncate(1);
                bytes.extend(token);
            }
        }
        let _ = send(socket.as_raw_fd(), &bytes, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
        // Some stay and say nothing.
        if random.next().is_multiple_of(16) && kept.len() < 40 {
            kept.push(socket);
        }
    }
    drop(kept);
    let answered = eventually(|| {
        let Ok(socket) = connect() else { return false };
        let request = [b"?", &token[..]].concat();
        let _ = send(socket.as_raw_fd(), &request, MsgFlags::MSG_NOSIGNAL);
        let mut answer = [0];
        recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()) == Ok(1) && answer == *b"n"
    });
    assert!(answered, "nobody answers any more");
    assert_bounded(before);
}
