//! Control socket: the processes of a session send their requests here (`abi::control_protocol`).
//!
//! Each connection has a thread that serves it to the end: a tracer must wait for its process
//! itself, and an exec can take as long as the storage that the program comes from. One thread is
//! always free to accept, up to [`SERVERS_MAX`]. The last free one does nothing that takes long.
//!
//! A client is served if it is of the same user and knows the session's token, which is in the
//! memory of its programs. The address alone is not enough: every process can read it in
//! /proc/net/unix. A process whose own reads Landlock restricts could otherwise have the supervisor
//! read for it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use runahead_abi::agent_config::TOKEN_BYTES;
use runahead_abi::control_protocol::{
    COLD, EXEC, EXEC_WAITS, FORGET, GAVE_UP, JOIN, KEEP, LEND, LET_GO, NO, RULES, SCRIPT,
    SPECULATES, STOP, STRICTLY, THREAD_NAME, TRACES, YES,
};
use runahead_abi::overlay::DIRECTORY_MAX;
use runahead_admission::degradation_counts::{ReasonCounts, UNDER_OTHER_RULES};
use runahead_admission::process::shared_memory::Speculations;
use runahead_estimators::follow_filter::ProgramKey;
use runahead_inject::{Followed, Follower, Layout};
use runahead_speculation::Counts;
use rustix::cmsg_space;
use rustix::io::{Errno, read};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, bind, listen, recvmsg, send, sendmsg, shutdown, socket_with,
};
use rustix::process::{Pid, geteuid};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::descriptor_store::DescriptorStore;
use crate::exec_file::ExecFile;
use crate::joined_processes::{self, JoinedProcesses};
use crate::traced_processes::TracedProcesses;
use crate::{rlimits, signal_blocking, thread_names};

/// Most threads that serve.
const SERVERS_MAX: usize = 64;
/// Most connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Longest time between a client's connection and its request.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(200);
/// Longest time between an answer and the client's next request; the client may have to look for a
/// file.
const NEXT_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const STACK_BYTES: usize = 128 * 1024;

/// Control socket of a session, with its threads.
pub struct ControlSocket {
    listener: OwnedFd,
    token: [u8; TOKEN_BYTES],
    joined: Arc<JoinedProcesses>,
    file: OwnedFd,
    layout: Layout,
    degraded: Arc<ReasonCounts>,
    descriptors: DescriptorStore,
    traced: Arc<TracedProcesses>,
    servers: AtomicUsize,
    busy: AtomicUsize,
    /// Table of the session's predictions, from the first process that speculates on.
    speculations: OnceLock<Speculations>,
    /// Number of execs that were followed.
    pub followed: AtomicUsize,
}

/// Makes a random address in the abstract name space, which needs no file system and ends with its
/// owner. Another process cannot guess it, and so cannot take it first.
pub fn new_address() -> [u8; runahead_abi::agent_config::SOCKET_BYTES] {
    let mut name = [0u8; runahead_abi::agent_config::SOCKET_BYTES];
    let random = std::hash::BuildHasher::build_hasher(&std::hash::RandomState::new());
    let text =
        format!("\0runahead-{}-{:016x}", std::process::id(), std::hash::Hasher::finish(&random));
    let len = text.len().min(name.len());
    name[..len].copy_from_slice(&text.as_bytes()[..len]);
    name
}

/// Makes the secret that only programs of the session have.
pub fn new_token() -> Result<[u8; TOKEN_BYTES], Errno> {
    let mut token = [0; TOKEN_BYTES];
    match getrandom(&mut token, GetRandomFlags::empty())? {
        TOKEN_BYTES => Ok(token),
        _ => Err(Errno::AGAIN),
    }
}

/// Length of `address` without its trailing zero bytes.
pub fn address_len(address: &[u8]) -> usize {
    address.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1)
}

/// Opens a socket that listens at `address`.
pub fn open_listener(address: &[u8]) -> Result<OwnedFd, Errno> {
    let name = SocketAddrUnix::new_abstract_name(&address[1..address_len(address)])?;
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let listener = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    bind(&listener, &name)?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

impl ControlSocket {
    /// Starts to serve. `listener` comes from [`open_listener`], clients must know `token`, and
    /// `file` holds the agent.
    pub fn new(
        (listener, token): (OwnedFd, [u8; TOKEN_BYTES]),
        joined: Arc<JoinedProcesses>,
        file: OwnedFd,
        layout: Layout,
        degraded: Arc<ReasonCounts>,
    ) -> Arc<Self> {
        let socket = Arc::new(ControlSocket {
            listener,
            token,
            joined,
            file,
            layout,
            degraded,
            descriptors: DescriptorStore::default(),
            traced: Arc::default(),
            servers: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            speculations: OnceLock::new(),
            followed: AtomicUsize::new(0),
        });
        socket.ensure_free_server();
        socket
    }

    /// Makes sure that a thread waits for the next client. Returns false if there can be none.
    fn ensure_free_server(self: &Arc<Self>) -> bool {
        let servers = self.servers.load(SeqCst);
        if servers > self.busy.load(SeqCst) {
            return true;
        }
        if servers >= SERVERS_MAX || servers > 0 && !self.joined.common.task_limits.allows_thread()
        {
            return false;
        }
        self.servers.fetch_add(1, SeqCst);
        let socket = self.clone();
        let thread = std::thread::Builder::new().name("socket".into()).stack_size(STACK_BYTES);
        if thread.spawn(move || socket.accept_loop()).is_err() {
            self.degraded.count("no thread could be started to serve programs");
            if self.servers.fetch_sub(1, SeqCst) == 1 {
                // Without a thread to accept it a client would wait forever: refuse it.
                self.close();
            }
            return false;
        }
        true
    }

    /// Refuses further clients, also while a child keeps the descriptor open.
    pub(crate) fn close(&self) {
        let _ = shutdown(&self.listener, Shutdown::Both);
    }

    fn accept_loop(self: Arc<Self>) {
        signal_blocking::block_all();
        loop {
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(client) => {
                    self.busy.fetch_add(1, SeqCst);
                    let is_last = !self.ensure_free_server();
                    // A client that is not served continues without the agent.
                    let _ = self.serve(&client, is_last);
                    self.busy.fetch_sub(1, SeqCst);
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::MFILE | Errno::NFILE) => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => return,
            }
        }
    }

    /// Serves `client`. The last free thread refuses requests that take long, since later clients
    /// wait for it.
    fn serve(&self, client: &OwnedFd, is_last: bool) -> Result<(), Errno> {
        // rustix's own call fails for a client in another PID namespace, whose number is 0 here.
        let peer = getsockopt(client, PeerCredentials)
            .map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
        if peer.uid() != geteuid().as_raw() {
            self.degraded.count("a process of another user asked, and was refused");
            return Err(Errno::PERM);
        }
        let process = Pid::from_raw(peer.pid());
        let request = self.read_request(client, REQUEST_TIMEOUT)?;
        match request.kind {
            STOP => {
                self.joined.stop();
                send_answer(client, Some(self.file.as_fd()))
            }
            JOIN | EXEC | EXEC_WAITS if self.joined.is_stopped() => send_answer(client, None),
            JOIN => {
                let joined = process.ok_or(Errno::INVAL).and_then(|pid| self.joined.join(pid));
                if let Err(errno) = &joined {
                    self.degraded.count(format!("a process could not join ({errno})"));
                }
                send_answer(client, joined.as_ref().ok().map(AsFd::as_fd))
            }
            EXEC | EXEC_WAITS if is_last => {
                self.degraded.count("a program ran natively: no thread was left to follow it");
                send_answer(client, None)
            }
            EXEC | EXEC_WAITS => match process {
                Some(pid) => self.follow_exec(client, pid, request),
                None => {
                    self.degraded.count("a program ran natively: its process has no number here");
                    send_answer(client, None)
                }
            },
            LET_GO => {
                self.joined.let_go(joined_processes::LET_GO_TIMEOUT);
                send_answer(client, Some(self.file.as_fd()))
            }
            KEEP => {
                let file = request.place.ok_or(Errno::INVAL);
                let pid = process.ok_or(Errno::INVAL);
                let kept = file.and_then(|file| self.descriptors.store(pid?, file));
                send_answer(client, kept.is_ok().then(|| self.file.as_fd()))
            }
            LEND => {
                let kept = process.and_then(|pid| self.descriptors.get(pid));
                send_answer(client, kept.as_ref().map(|file| file.as_fd()))
            }
            FORGET => {
                process.into_iter().for_each(|pid| self.descriptors.remove(pid));
                send_answer(client, Some(self.file.as_fd()))
            }
            THREAD_NAME => {
                let (file, pid) = (request.place.ok_or(Errno::INVAL), process.ok_or(Errno::INVAL));
                let opened = file.and_then(|file| thread_names::open_name(&file, pid?));
                send_answer(client, opened.as_ref().ok().map(AsFd::as_fd))
            }
            RULES => {
                self.degraded.count(UNDER_OTHER_RULES);
                Ok(())
            }
            TRACES if !is_last => {
                let word = request.word.map(u64::from_le_bytes);
                let number = word.and_then(|word| i32::try_from(word).ok());
                let traced = number.and_then(Pid::from_raw);
                if let (Some(traced), Some(tracer)) = (traced, process) {
                    self.traced.prepare(traced, tracer, &self.file);
                }
                send_answer(client, Some(self.file.as_fd()))
            }
            GAVE_UP => {
                process.into_iter().for_each(|pid| self.traced.gave_up(pid));
                Ok(())
            }
            SPECULATES => {
                send_answer(client, self.speculation_table().map(|table| table.file.as_fd()))
            }
            _ => send_answer(client, None),
        }
    }

    /// Counts of predictions, if any were made.
    pub(crate) fn speculation_counts(&self) -> Option<Counts> {
        self.speculations.get().map(|shared| shared.table.counts())
    }

    fn speculation_table(&self) -> Option<&Speculations> {
        if let Some(table) = self.speculations.get() {
            return Some(table);
        }
        match Speculations::new() {
            Ok(table) => Some(self.speculations.get_or_init(|| table)),
            Err(errno) => {
                self.degraded.count(format!("a process could not speculate ({errno})"));
                None
            }
        }
    }

    fn read_request(&self, client: &OwnedFd, patience: Duration) -> Result<Request, Errno> {
        set_socket_timeout(client, Timeout::Recv, Some(patience))?;
        let mut bytes = [0u8; 1 + TOKEN_BYTES + size_of::<ProgramKey>()];
        let (got, place) = receive(client, &mut bytes)?;
        let Some((&what, rest)) = bytes[..got].split_first() else { return Err(Errno::PIPE) };
        let Some(word) = rest.strip_prefix(&self.token) else {
            self.degraded.count("a process that is not of the session asked, and was refused");
            return Err(Errno::PERM);
        };
        let (what, strictly) = (what & !STRICTLY, what & STRICTLY != 0);
        Ok(Request { kind: what, strictly, place, word: word.try_into().ok() })
    }

    /// Follows the exec of `pid` if the file is supported. For a script or a file that is not
    /// cached, the client asks again: up to `REQUESTS_MAX` times.
    fn follow_exec(&self, client: &OwnedFd, pid: Pid, mut asked: Request) -> Result<(), Errno> {
        const REQUESTS_MAX: usize = 16;
        for _ in 0..REQUESTS_MAX {
            let Request { kind: what @ (EXEC | EXEC_WAITS), place: Some(place), word, strictly } =
                asked
            else {
                break;
            };
            let place = Arc::new(place);
            let common = &self.joined.common;
            match common.io_process.examine_exec_file(&place, pid, what == EXEC_WAITS) {
                ExecFile::Supported => {
                    let called = word.map(ProgramKey::from_bytes);
                    common.follow_policy.exec_followed(pid, &place, called);
                    drop(place);
                    return self.follow(client, pid, strictly);
                }
                ExecFile::NotCached => {
                    send_bytes(client, &[COLD])?;
                    self.joined.prefetch_program(&place, pid);
                }
                ExecFile::Script(name) => send_bytes(client, &[&[SCRIPT], &name[..]].concat())?,
                ExecFile::Other => break,
            }
            drop(place);
            asked = self.read_request(client, NEXT_REQUEST_TIMEOUT)?;
        }
        send_answer(client, None)
    }

    fn follow(&self, client: &OwnedFd, pid: Pid, strictly: bool) -> Result<(), Errno> {
        if let Some(why) = rlimits::reason_to_run_natively(Some(pid)) {
            self.degraded.count(format!("a program ran natively: {why}"));
            return send_answer(client, None);
        }
        let follower = match Follower::new(nix::unistd::Pid::from_raw(pid.as_raw_pid()), strictly) {
            Ok(follower) => follower,
            Err(errno) => {
                self.degraded.count(format!("a program ran natively: no tracing here ({errno})"));
                return send_answer(client, None);
            }
        };
        if let Err(errno) = send_answer(client, Some(self.file.as_fd())) {
            follower.release();
            return Err(errno);
        }
        let number = || {
            let mut said = [0u8; 4 + DIRECTORY_MAX];
            let got = read(client, &mut said).ok()?;
            let (number, told) = said[..got].split_first_chunk()?;
            Some((i32::from_le_bytes(*number), told.to_vec()))
        };
        match follower.follow(self.layout, number) {
            Followed::Inserted => {
                self.followed.fetch_add(1, Relaxed);
                let history = &self.joined.common.history;
                history.iter().for_each(|history| history.program_started());
            }
            Followed::Native(why) => {
                self.degraded.count(format!("a program ran natively: {why}"));
            }
            Followed::Not => {}
        }
        Ok(())
    }
}

/// Request of a client.
struct Request {
    kind: u8,
    /// True if the request carries [`STRICTLY`].
    strictly: bool,
    /// Descriptor that came with the request: `O_PATH` of the file to execute, or the one to keep.
    place: Option<OwnedFd>,
    /// Key of the program and its command, before an exec; or the process that is to be traced.
    word: Option<[u8; size_of::<ProgramKey>()]>,
}

/// Receives bytes, and the first descriptor that comes with them. The kernel closes those for which
/// there is no room.
fn receive(client: &OwnedFd, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut part = [IoSliceMut::new(bytes)];
    let message = recvmsg(client, &mut part, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::NOBUFS);
    }
    let beside = control.drain().find_map(|control| match control {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((message.bytes, beside))
}

/// Sends bytes.
fn send_bytes(client: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    send(client, bytes, SendFlags::NOSIGNAL).map(drop)
}

fn send_answer(client: &OwnedFd, file: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let byte = [if file.is_some() { YES } else { NO }];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !file.as_slice().is_empty() {
        control.push(SendAncillaryMessage::ScmRights(file.as_slice()));
    }
    sendmsg(client, &[IoSlice::new(&byte)], &mut control, SendFlags::NOSIGNAL).map(drop)
}
