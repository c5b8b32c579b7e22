//! Descriptors that the command is given, and the suite's own ends of what is behind them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use crate::checked_calls::eventually;
use crate::checked_calls::{self, call, open, two};

/// The first number of what is given.
const FIRST: usize = 300;

/// Resources of the world that harm could reach.
pub struct WorldObjects {
    given: BTreeMap<&'static str, OwnedFd>,
    /// Ends that the command is not given.
    pub own: BTreeMap<&'static str, OwnedFd>,
    /// The ring's memory.
    ring: *const u8,
    ring_tail: usize,
    map_value: Box<u64>,
}

/// A `struct sockaddr_un` for a path.
pub fn unix_address(path: &Path) -> libc::sockaddr_un {
    // SAFETY: numbers, for which zero is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let name = checked_calls::c_path(path);
    for (to, from) in address.sun_path.iter_mut().zip(name.as_bytes()) {
        *to = *from as libc::c_char;
    }
    address
}

fn address_of<T>(value: &T) -> usize {
    std::ptr::from_ref(value) as usize
}

fn fd(of: &impl AsRawFd) -> usize {
    of.as_raw_fd() as usize
}

fn socket(domain: i32, kind: i32) -> OwnedFd {
    let kind = kind | libc::SOCK_NONBLOCK;
    open("socket", libc::SYS_socket, [domain as usize, kind as usize, 0])
}

fn bind(socket: &OwnedFd, path: &Path) {
    let address = unix_address(path);
    checked_calls::must(
        "bind",
        libc::SYS_bind,
        [fd(socket), address_of(&address), size_of_val(&address)],
    );
}

fn connect(path: &Path) -> OwnedFd {
    let (it, address) = (socket(libc::AF_UNIX, libc::SOCK_STREAM), unix_address(path));
    let args = [fd(&it), address_of(&address), size_of_val(&address)];
    checked_calls::must("connect", libc::SYS_connect, args);
    it
}

/// 127.0.0.1:7777, as in `leak_descriptors.h`.
const PORT: [u16; 8] = [libc::AF_INET as u16, 0x611e, 0x007f, 0x0100, 0, 0, 0, 0];

impl WorldObjects {
    /// Makes all of it in `root`, a world that has its `tree` already.
    pub fn new(root: &Path, bystander: i32) -> Self {
        let mut held = WorldObjects {
            given: BTreeMap::new(),
            own: BTreeMap::new(),
            ring: std::ptr::null(),
            ring_tail: 0,
            map_value: Box::new(1),
        };
        held.files(&root.join("tree"));
        held.pipes_and_events();
        held.sockets(&root.join("tree"));
        held.mounts();
        held.ring_and_map();
        let flags = libc::O_RDWR as usize;
        held.give(
            "mq",
            open("mq_open", libc::SYS_mq_open, [c"leak".as_ptr() as usize, flags, 0, 0]),
        );
        let pid = bystander as usize;
        held.give("pidfd", open("pidfd_open", libc::SYS_pidfd_open, [pid, 0]));
        let ns = std::fs::File::open(format!("/proc/{bystander}/ns/uts")).expect("a namespace");
        held.give("namespace", ns.into());
        held
    }

    /// The command inherits it, under a number that no other code takes.
    pub fn give(&mut self, name: &'static str, it: OwnedFd) {
        let args = [fd(&it), libc::F_DUPFD as usize, FIRST];
        self.given.insert(name, open("dup", libc::SYS_fcntl, args));
    }

    /// Returns the object of that name.
    pub fn get(&self, name: &str) -> &OwnedFd {
        &self.given[name]
    }

    /// Names and numbers of what is given.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, RawFd)> {
        self.given.iter().map(|(name, fd)| (*name, fd.as_raw_fd()))
    }

    fn files(&mut self, tree: &Path) {
        let both = || std::fs::File::options().read(true).write(true).clone();
        for name in ["file", "other"] {
            let file = both().open(tree.join(name)).expect("a file of the tree");
            checked_calls::must("lseek", libc::SYS_lseek, [fd(&file), 5, 0]);
            self.give(name, file.into());
        }
        let elsewhere = std::fs::File::open(tree.join("dir")).expect("a directory of the tree");
        self.give("elsewhere", elsewhere.into());
        let leased = std::fs::File::open(tree.join("leased")).expect("a file of the tree");
        self.give("leased", leased.into());
        let directory = std::fs::File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOATIME)
            .open(tree)
            .expect("the tree");
        self.give("directory", directory.into());
        let name = c"leak".as_ptr() as usize;
        const SEALING: usize = 2;
        let memfd = open("memfd", libc::SYS_memfd_create, [name, SEALING]);
        let page = [0u8; 4096];
        checked_calls::must("write", libc::SYS_write, [fd(&memfd), address_of(&page), page.len()]);
        self.give("memfd", memfd);
    }

    fn pipes_and_events(&mut self) {
        let pipe = |p: *mut RawFd| call(libc::SYS_pipe2, [p as usize, 0]);
        let (reader, writer) = two("pipe", pipe);
        self.give("pipe_in", writer);
        self.own.insert("pipe_in", reader);
        let (reader, writer) = two("pipe", pipe);
        checked_calls::must(
            "write",
            libc::SYS_write,
            [fd(&writer), c"abcdefgh".as_ptr() as usize, 8],
        );
        self.give("pipe_out", reader);
        self.own.insert("pipe_out", writer);
        let event = open("eventfd", libc::SYS_eventfd2, [3, 0]);
        let epoll = open("epoll", libc::SYS_epoll_create1, [0]);
        // EPOLLIN once: the process that gets the event takes it.
        let once = [1u32 | 1 << 30, 1, 0];
        let args = [fd(&epoll), libc::EPOLL_CTL_ADD as usize, fd(&event), address_of(&once)];
        checked_calls::must("epoll_ctl", libc::SYS_epoll_ctl, args);
        self.give("epoll", epoll);
        self.give("event", event);
        self.give("timer", open("timerfd", libc::SYS_timerfd_create, [1, 0]));
        let mask = 1u64 << 5;
        let none = usize::MAX;
        let args = [none, address_of(&mask), 8, 0];
        self.give("signal", open("signalfd", libc::SYS_signalfd4, args));
        let inotify = open("inotify", libc::SYS_inotify_init1, [0]);
        let args = [fd(&inotify), c"/proc/sys".as_ptr() as usize, libc::IN_CREATE as usize];
        checked_calls::must("inotify_add_watch", libc::SYS_inotify_add_watch, args);
        self.give("inotify", inotify);
        self.give("fanotify", open("fanotify", libc::SYS_fanotify_init, [0, 0]));
    }

    fn sockets(&mut self, tree: &Path) {
        let (unix, stream) = (libc::AF_UNIX as usize, libc::SOCK_STREAM as usize);
        let pair = |p: *mut RawFd| call(libc::SYS_socketpair, [unix, stream, 0, p as usize]);
        let (ours, theirs) = two("socketpair", pair);
        checked_calls::must("write", libc::SYS_write, [fd(&ours), c"hello".as_ptr() as usize, 5]);
        self.own.insert("sock", ours);
        self.give("sock", theirs);
        self.give("datagrams", socket(libc::AF_UNIX, libc::SOCK_DGRAM));
        self.give("stream", socket(libc::AF_UNIX, libc::SOCK_STREAM));
        let receiver = socket(libc::AF_UNIX, libc::SOCK_DGRAM);
        bind(&receiver, &tree.join("receiver"));
        self.own.insert("receiver", receiver);
        let listen = |it: &OwnedFd| checked_calls::must("listen", libc::SYS_listen, [fd(it), 5]);
        let bound = |name: &str| {
            let it = socket(libc::AF_UNIX, libc::SOCK_STREAM);
            bind(&it, &tree.join(name));
            it
        };
        self.give("bound", bound("bound"));
        let listener = bound("listener");
        listen(&listener);
        self.own.insert("listener", listener);
        let waiting = bound("waiting");
        listen(&waiting);
        self.own.insert("waiting client", connect(&tree.join("waiting")));
        self.give("waiting", waiting);
        let port = socket(libc::AF_INET, libc::SOCK_STREAM);
        checked_calls::must("bind", libc::SYS_bind, [fd(&port), address_of(&PORT), 16]);
        listen(&port);
        self.own.insert("port", port);
        self.give("inet", socket(libc::AF_INET, libc::SOCK_STREAM));
    }

    /// File systems in the making.
    fn mounts(&mut self) {
        const CREATE: usize = 6;
        let context = || open("fsopen", libc::SYS_fsopen, [c"tmpfs".as_ptr() as usize, 0]);
        let create = |it: &OwnedFd| {
            checked_calls::must("fsconfig", libc::SYS_fsconfig, [fd(it), CREATE, 0, 0, 0]);
        };
        self.give("context", context());
        let ready = context();
        create(&ready);
        self.give("ready", ready);
        let other = context();
        create(&other);
        self.give("mount", open("fsmount", libc::SYS_fsmount, [fd(&other), 0, 0]));
    }

    fn ring_and_map(&mut self) {
        let mut params = [0u32; 30];
        let at = params.as_mut_ptr() as usize;
        let ring = open("io_uring", libc::SYS_io_uring_setup, [4, at]);
        // struct io_uring_params: the offsets of the queues begin at 40 and at 80.
        let (tail, array, completed) = (params[11], params[16], params[21]);
        let queues = checked_calls::shared_memory(Some(ring.as_raw_fd()), 0, 4096);
        // The entries, all zero, are NOPs; one is ready to be submitted.
        checked_calls::shared_memory(Some(ring.as_raw_fd()), 0x1000_0000, 4096);
        // SAFETY: inside the queues' memory, where the kernel says.
        unsafe {
            queues.add(array as usize).cast::<u32>().write_volatile(0);
            queues.add(tail as usize).cast::<u32>().write_volatile(1);
        }
        (self.ring, self.ring_tail) = (queues, completed as usize);
        self.give("ring", ring);
        // An array of one number.
        let mut attributes = [0u32; 32];
        attributes[..4].copy_from_slice(&[2, 4, 8, 1]);
        let args = [0, attributes.as_ptr() as usize, 128];
        self.give("map", open("bpf", libc::SYS_bpf, args));
    }

    /// Completions in the ring.
    pub fn completed(&self) -> u32 {
        // SAFETY: inside the queues' memory.
        unsafe { self.ring.add(self.ring_tail).cast::<u32>().read_volatile() }
    }

    /// The number in the map.
    pub fn map_value(&self) -> io::Result<u64> {
        let key = 0u32;
        let mut attributes = [0u64; 16];
        let value = address_of(&*self.map_value) as u64;
        attributes[..3].copy_from_slice(&[
            fd(self.get("map")) as u64,
            address_of(&key) as u64,
            value,
        ]);
        const LOOKUP: usize = 1;
        call(libc::SYS_bpf, [LOOKUP, attributes.as_ptr() as usize, 128])?;
        // SAFETY: the kernel has written it behind the compiler's back.
        Ok(unsafe { std::ptr::from_ref(&*self.map_value).read_volatile() })
    }

    /// Both ends of a new terminal: the command is given the slave.
    pub fn terminal(&mut self) -> std::path::PathBuf {
        let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
        let open = |path: &Path| {
            let file =
                std::fs::File::options().read(true).write(true).custom_flags(flags).open(path);
            OwnedFd::from(file.unwrap_or_else(|e| panic!("{}: {e}", path.display())))
        };
        let master = open(Path::new("/dev/pts/ptmx"));
        let unlock = 0i32;
        let args = [fd(&master), libc::TIOCSPTLCK as usize, address_of(&unlock)];
        checked_calls::must("TIOCSPTLCK", libc::SYS_ioctl, args);
        let number: u32 =
            checked_calls::ask(&master, libc::TIOCGPTN as usize).expect("a terminal's number");
        let path = std::path::PathBuf::from(format!("/dev/pts/{number}"));
        let slave = open(&path);
        // Input that waits to be read, a line of it.
        checked_calls::must(
            "write",
            libc::SYS_write,
            [fd(&master), c"typed\n".as_ptr() as usize, 6],
        );
        // The kernel passes it on, and echoes it, in its own time.
        let mut echo = [0u8; 64];
        let echoed = eventually(Duration::from_secs(5), || {
            let there = checked_calls::unread(&master) == 7 && checked_calls::unread(&slave) == 6;
            there && call(libc::SYS_read, [fd(&master), echo.as_mut_ptr() as usize, 64]).is_ok()
        });
        assert!(echoed, "a terminal that does not echo: {:?}", checked_calls::unread(&master));
        self.own.insert("tty", master);
        self.give("tty", slave);
        path
    }
}

/// Duplicate that no process inherits.
pub fn again(of: &OwnedFd) -> OwnedFd {
    let fd =
        checked_calls::must("dup", libc::SYS_fcntl, [fd(of), libc::F_DUPFD_CLOEXEC as usize, 3]);
    // SAFETY: the kernel has just made it.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}
