//! A world that can be harmed, in namespaces of its own, of which this process is the first.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::bystander_process::{self, Bystander};
use crate::checked_calls::{self, c_path, call, must};
use crate::world_objects::WorldObjects;

/// A world that can be harmed.
pub struct World {
    /// Directory of the world.
    pub root: PathBuf,
    /// Descriptors.
    pub held: WorldObjects,
    /// A bystander process.
    pub bystander: Bystander,
    /// Leads the process group that commands run in.
    pub group: i32,
    /// Waits on a futex.
    pub waiter: i32,
    /// The environment that tells the program of all this.
    pub told: Vec<(String, String)>,
    /// System V objects: shared memory, messages, semaphores.
    pub ipc: [usize; 3],
    /// The block device with quotas, if there is one.
    pub quota: Option<PathBuf>,
}

impl World {
    /// Makes everything below `root`.
    pub fn build(root: &Path) -> Self {
        mounts(root);
        tree(&root.join("tree"));
        std::env::set_current_dir(root.join("tree")).expect("the tree");
        network_up();
        let ipc = system_v();
        let (key, keyring) = keys();
        message();
        let bystander = Bystander::start();
        let group = bystander_process::start_group();
        let mut held = WorldObjects::new(root, bystander.pid);
        let pts = held.terminal();
        let quota: Option<PathBuf> =
            fs::read_to_string(root.join("../quota")).ok().map(|d| d.trim().into());
        if quota.is_some() {
            let dir =
                fs::File::open(root.join("../quota.mnt")).expect("the file system with quotas");
            held.give("quota", dir.into());
        }
        let futex = fs::File::options().read(true).write(true).open("futex").expect("a file");
        let waiter = bystander_process::start_waiter(futex.as_raw_fd());
        let mut told: Vec<(String, String)> =
            held.numbers().map(|(name, fd)| (name.into(), fd.to_string())).collect();
        let mut tell = |name: &str, value: String| told.push((name.into(), value));
        tell("bystander", bystander.pid.to_string());
        tell("group", group.to_string());
        tell("word", bystander.word.to_string());
        tell("region", bystander.region.to_string());
        // Its standard output, which is ours.
        tell("its_pipe", "1".into());
        for (name, id) in ["shm", "msg", "sem", "key", "keyring"]
            .into_iter()
            .zip([ipc[0], ipc[1], ipc[2], key, keyring])
        {
            tell(name, id.to_string());
        }
        tell("pts", pts.display().to_string());
        tell("pin", root.join("bpf/made").display().to_string());
        if let Some(device) = &quota {
            tell("quota_device", device.display().to_string());
        }
        World { root: root.into(), held, bystander, group, waiter, told, ipc, quota }
    }
}

fn mounts(root: &Path) {
    checked_calls::mount("tmpfs", Path::new("leak"), root, "size=64m");
    checked_calls::mount("tmpfs", Path::new("leak"), Path::new("/dev/shm"), "size=1m");
    checked_calls::mount(
        "devpts",
        Path::new("devpts"),
        Path::new("/dev/pts"),
        "newinstance,ptmxmode=666",
    );
    for (kind, name) in [("mqueue", "mq"), ("bpf", "bpf")] {
        fs::create_dir(root.join(name)).expect("the world is ours");
        checked_calls::mount(kind, Path::new(kind), &root.join(name), "");
    }
    fs::create_dir(root.join("tree")).expect("the world is ours");
}

fn tree(tree: &Path) {
    let path = |name: &str| tree.join(name);
    for dir in ["dir", "empty", "mnt"] {
        fs::create_dir(path(dir)).expect("a new tree");
    }
    checked_calls::mount("tmpfs", Path::new("mnt"), &path("mnt"), "size=1m");
    fs::create_dir(path("mnt/old")).expect("a new tree");
    let text = "0123456789abcdefghijklmnopqrstuvwxyz\n".repeat(200);
    for name in ["file", "other", "victim", "leased", "foreign", "dir/inner"] {
        fs::write(path(name), &text).expect("a new tree");
    }
    for name in ["mapped", "read_only", "futex", "/dev/shm/leak"] {
        fs::write(path(name), [0; 4096]).expect("a new tree");
    }
    fs::write(path("accounts"), "").expect("a new tree");
    std::os::unix::fs::chown(path("foreign"), Some(4321), Some(4321)).expect("root may");
    symlink("file", path("link")).expect("a new tree");
    let fifo = c_path(&path("fifo"));
    must("mknod", libc::SYS_mknod, [fifo.as_ptr() as usize, (libc::S_IFIFO | 0o600) as usize, 0]);
    let file = c_path(&path("file"));
    let (name, value) = (c"trusted.old".as_ptr() as usize, c"v".as_ptr() as usize);
    must("setxattr", libc::SYS_setxattr, [file.as_ptr() as usize, name, value, 1, 0]);
    fs::write(path("other"), text.replace(char::is_alphanumeric, ".")).expect("a new tree");
    let names = ["file", "other", "victim", "foreign", "link", "dir", "leased"];
    names.into_iter().for_each(|name| make_old(&path(name)));
}

/// When old files were changed, in seconds.
pub const OLD: i64 = 1_000_000_000;

/// Changed in 2001, and not read since: any reading that is noted shows.
fn make_old(path: &Path) {
    let old = OLD as usize;
    let times = [old - 1000, 0, old, 0];
    let (name, flags) = (c_path(path), libc::AT_SYMLINK_NOFOLLOW as usize);
    let here = libc::AT_FDCWD as usize;
    let args = [here, name.as_ptr() as usize, times.as_ptr() as usize, flags];
    must("utimensat", libc::SYS_utimensat, args);
}

/// The flags of an interface, `struct ifreq`.
pub fn interface(request: libc::c_ulong, value: Option<i32>) -> std::io::Result<i32> {
    let (inet, datagrams) = (libc::AF_INET as usize, libc::SOCK_DGRAM as usize);
    let socket: OwnedFd = checked_calls::open("socket", libc::SYS_socket, [inet, datagrams, 0]);
    let mut request_of = [0u8; 40];
    request_of[..2].copy_from_slice(b"lo");
    request_of[16..20].copy_from_slice(&value.unwrap_or(0).to_le_bytes());
    let at = request_of.as_mut_ptr() as usize;
    call(libc::SYS_ioctl, [socket.as_raw_fd() as usize, request as usize, at])?;
    Ok(i32::from_le_bytes(std::array::from_fn(|i| request_of[16 + i])))
}

fn network_up() {
    let flags = libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_LOOPBACK;
    interface(libc::SIOCSIFFLAGS, Some(flags)).expect("the loopback interface comes up");
}

fn system_v() -> [usize; 3] {
    let create = (libc::IPC_CREAT | 0o600) as usize;
    let shm = must("shmget", libc::SYS_shmget, [0x1eaf, 4096, create]);
    let msg = must("msgget", libc::SYS_msgget, [0x1eaf, create]);
    let message = [1usize, 0x6b61_656c];
    must("msgsnd", libc::SYS_msgsnd, [msg, message.as_ptr() as usize, 8, 0]);
    let sem = must("semget", libc::SYS_semget, [0x1eaf, 1, create]);
    const SETVAL: usize = 16;
    must("semctl", libc::SYS_semctl, [sem, 0, SETVAL, 5]);
    [shm, msg, sem]
}

/// The session's keyring, as add_key(2) names it.
pub const SESSION: usize = -3isize as usize;

/// A key, and a keyring without any.
fn keys() -> (usize, usize) {
    const JOIN: usize = 1;
    must("keyctl", libc::SYS_keyctl, [JOIN, c"leak".as_ptr() as usize]);
    let (user, name) = (c"user".as_ptr() as usize, c"present".as_ptr() as usize);
    let args = [user, name, c"data".as_ptr() as usize, 4, SESSION];
    let key = must("add_key", libc::SYS_add_key, args);
    let (kind, name) = (c"keyring".as_ptr() as usize, c"second".as_ptr() as usize);
    (key, must("add_key", libc::SYS_add_key, [kind, name, 0, 0, SESSION]))
}

/// A POSIX message queue with one message in it.
fn message() {
    let flags = (libc::O_CREAT | libc::O_RDWR) as usize;
    let name = c"leak".as_ptr() as usize;
    // Small: all worlds together have a limit.
    let attributes = [0usize, 2, 64, 0, 0, 0, 0, 0];
    let at = attributes.as_ptr() as usize;
    let queue = checked_calls::open("mq_open", libc::SYS_mq_open, [name, flags, 0o600, at]);
    let args = [queue.as_raw_fd() as usize, c"message".as_ptr() as usize, 7, 0, 0];
    must("mq_timedsend", libc::SYS_mq_timedsend, args);
}

/// Reads `path` without leaving a trace or waiting; `None` where that cannot be.
pub fn read_quietly(path: &Path) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut file = fs::File::options()
        .read(true)
        .custom_flags(libc::O_NOATIME | libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(path)
        .ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
