//! Arbitrary bytes at the control socket.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runahead_abi::agent_config::{SOCKET_BYTES, TOKEN_BYTES};
use runahead_inject::Layout;
use runahead_supervisor::control_socket::{self, ControlSocket};
use rustix::cmsg_space;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::{Errno, read};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, send, sendmsg, socket_with,
};

use crate::fake_target::Target;
use crate::random::Random;
use crate::{assert_bounded, eventually, is_full, resident};

/// An open control socket, its address and token.
struct Open {
    address: [u8; SOCKET_BYTES],
    token: [u8; TOKEN_BYTES],
    _socket: Arc<ControlSocket>,
}

impl Open {
    fn new(target: &Target) -> Self {
        let address = control_socket::new_address();
        let listener = control_socket::open_listener(&address).expect("nobody else is there");
        let token = control_socket::new_token().expect("random numbers");
        let file = File::open("/dev/null").expect("there").into();
        let layout = Layout { file_len: 4096, total_len: 4096, entry: 0 };
        let degraded = target.common.admission.degraded.clone();
        let joined = target.joined.clone();
        let socket = ControlSocket::new((listener, token), joined, file, layout, degraded);
        Open { address, token, _socket: socket }
    }

    fn connect(&self) -> Result<OwnedFd, Errno> {
        let socket = of_kind(SocketType::SEQPACKET);
        let name = &self.address[1..control_socket::address_len(&self.address)];
        connect(&socket, &SocketAddrUnix::new_abstract_name(name).expect("short"))?;
        Ok(socket)
    }

    /// Answer to a process that is about to execute what `file` stands for.
    fn of_exec(&self, file: Option<&OwnedFd>) -> Vec<u8> {
        let socket = self.connect().expect("it listens");
        let patience = Some(Duration::from_secs(10));
        set_socket_timeout(&socket, Timeout::Recv, patience).expect("a time");
        let request = [b"E", &self.token[..]].concat();
        let fds: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        let part = [IoSlice::new(&request)];
        sendmsg(&socket, &part, &mut beside, SendFlags::NOSIGNAL).expect("it listens");
        let mut answer = vec![0; 300];
        let got = read(&socket, &mut answer).expect("an answer");
        answer.truncate(got);
        answer
    }
}

fn of_kind(kind: SocketType) -> OwnedFd {
    socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("one")
}

/// Only regular files are examined; nothing else is opened or waited for.
#[test]
fn only_regular_files_are_opened() {
    let target = Target::new(&["true"]);
    let open = Open::new(&target);
    let dir = tempfile::tempdir().expect("a directory");
    let named = |name: &str| dir.path().join(name);
    mknodat(CWD, named("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("ours");
    std::fs::write(named("text"), "text").expect("ours");
    std::fs::write(named("empty"), "").expect("ours");
    std::fs::write(named("script"), "#! /bin/sh -e\n").expect("ours");
    let place = |path: &Path| {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("there")
    };
    let null = Path::new("/dev/null");
    for path in [dir.path(), null, &named("pipe"), &named("text"), &named("empty")] {
        assert_eq!(open.of_exec(Some(&place(path))), b"n", "{}", path.display());
    }
    assert_eq!(open.of_exec(Some(&of_kind(SocketType::STREAM))), b"n");
    assert_eq!(open.of_exec(None), b"n");
    assert_eq!(open.of_exec(Some(&place(&named("script")))), b"s/bin/sh");
}

/// After any bytes, and clients that do not wait for answers, the next client is answered.
#[test]
fn nonsense_at_the_control_socket_is_survived() {
    let mut random = Random::new();
    let target = Target::new(&["true"]);
    let open = Open::new(&target);
    let (token, connect) = (open.token, || open.connect());
    let before = resident();
    let mut kept = Vec::new();
    for _ in 0..if is_full() { 20_000 } else { 400 } {
        // A full backlog refuses the client.
        let Ok(socket) = connect() else { continue };
        let mut bytes = vec![0; random.next() as usize % 64];
        bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        if let Some(first) = bytes.first_mut().filter(|_| random.next().is_multiple_of(2)) {
            *first = b"JEWLSX"[random.next() as usize % 6];
            // Mostly the client is of the session.
            if !random.next().is_multiple_of(4) {
                bytes.truncate(1);
                bytes.extend(token);
            }
        }
        let _ = send(&socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        // Some clients stay connected and send nothing more.
        if random.next().is_multiple_of(16) && kept.len() < 40 {
            kept.push(socket);
        }
    }
    drop(kept);
    let answered = eventually(|| {
        let Ok(socket) = connect() else { return false };
        let request = [b"?", &token[..]].concat();
        let _ = send(&socket, &request, SendFlags::NOSIGNAL);
        let mut answer = [0];
        read(&socket, &mut answer) == Ok(1) && answer == *b"n"
    });
    assert!(answered, "nobody answers any more");
    assert_bounded(before);
}
