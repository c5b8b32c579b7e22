//! Looks at the whole world from outside; two looks are compared.
//!
//! Looking changes nothing: files are read without touching their access time, and nothing is
//! taken out of a pipe, socket or terminal.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::checked_calls::{ask, c_path, call, option, ready, unread};
use crate::process::{self, Seen};
use crate::test_world::{self, World, read_quietly};
use crate::world_objects::again;

/// Everything that is visible of the world. `session` is the process whose children are the
/// command and its shadows, which are not looked at here.
pub fn look(world: &World, session: Option<i32>) -> Seen {
    let mut seen = Seen::new();
    // Before any file is opened: that would break a lease.
    seen.insert("locks".into(), locks(&world.root));
    for (place, path) in [
        ("tree", world.root.join("tree")),
        ("shm", "/dev/shm".into()),
        ("mq", world.root.join("mq")),
        ("bpf", world.root.join("bpf")),
    ] {
        entries(place, &path, &mut seen);
    }
    descriptors(world, &mut seen);
    network(world, &mut seen);
    ipc(world, &mut seen);
    process::look(world.bystander.pid, "bystander", &mut seen);
    process::look(world.group, "group", &mut seen);
    let state = |pid| process::stat(pid).first().cloned().unwrap_or_default();
    let mut put = |key: &str, value: String| seen.insert(key.into(), value);
    put("bystander/State", state(world.bystander.pid));
    put("group/State", state(world.group));
    let woken = read_quietly(Path::new("futex")).unwrap_or_default();
    put("futex", format!("{:?} {}", woken.get(128), futex_key(world.waiter)));
    put("bystander/memory", memory(world.bystander.pid, world.bystander.word));
    put("bystander/huge", huge(world.bystander.pid));
    let alien = |pid: &i32| {
        // One without a parent has ended since it was listed.
        session != Some(*pid) && process::parent(*pid).is_some_and(|parent| session != Some(parent))
    };
    let mut others: Vec<i32> = process::all().into_iter().filter(alien).collect();
    others.sort_unstable();
    for pid in others {
        put(&format!("processes/{pid}"), String::new());
    }
    put("mounts", mounts(&world.root));
    put("uts", uts());
    put("keys", keys(test_world::SESSION, 0));
    let names = fs::read_dir("/dev/pts").into_iter().flatten().flatten();
    let mut names: Vec<_> = names.map(|e| e.file_name()).collect();
    names.sort();
    put("pts", format!("{names:?}"));
    put("space", free_inodes(&world.root));
    if let Some(device) = &world.quota {
        put("quota", quota(device));
    }
    seen
}

/// Mounts in the world, and of what is its own. Those of the rest of the machine come and go here,
/// too, when their places are removed elsewhere.
fn mounts(root: &Path) -> String {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let ours = |line: &&str| {
        let at = Path::new(line.split(' ').nth(4).unwrap_or_default());
        at.starts_with(root) || ["/", "/proc", "/dev/pts", "/dev/shm"].iter().any(|p| at == *p)
    };
    text.lines().filter(ours).collect::<Vec<_>>().join("\n")
}

/// Locks on files of the world; proc_locks(5).
fn locks(root: &Path) -> String {
    let Ok(meta) = fs::metadata(root) else { return String::new() };
    let device = format!(" {:02x}:{:02x}:", libc::major(meta.dev()), libc::minor(meta.dev()));
    let text = fs::read_to_string("/proc/locks").unwrap_or_default();
    text.lines().filter(|l| l.contains(&device)).collect::<Vec<_>>().join("\n")
}

fn entries(name: &str, path: &Path, seen: &mut Seen) {
    let Ok(meta) = path.symlink_metadata() else { return };
    let mut put = |key: &str, value: String| seen.insert(format!("{name}:{key}"), value);
    put("mode", format!("{:o}", meta.mode()));
    put("owner", format!("{} {}", meta.uid(), meta.gid()));
    put("ino", meta.ino().to_string());
    put("nlink", meta.nlink().to_string());
    put("size", format!("{} in {}", meta.size(), meta.blocks()));
    // Queues of messages have times of their own making.
    if !name.starts_with("mq") {
        // Of those that the world made old; the others the command itself maps.
        if meta.mtime() <= test_world::OLD {
            put("atime", format!("{}.{}", meta.atime(), meta.atime_nsec()));
        }
        put("mtime", format!("{}.{}", meta.mtime(), meta.mtime_nsec()));
        put("ctime", format!("{}.{}", meta.ctime(), meta.ctime_nsec()));
    }
    put("xattr", xattrs(path));
    if meta.is_file() {
        put("content", String::from_utf8_lossy(&read_quietly(path).unwrap_or_default()).into());
    }
    if meta.is_file() || meta.is_dir() {
        put("flags", flags(path));
    }
    let kind = meta.mode() & libc::S_IFMT;
    if kind == libc::S_IFIFO {
        put("reader", has_reader(path).to_string());
    }
    if meta.is_dir() {
        for entry in list(path) {
            entries(&format!("{name}/{}", entry.display()), &path.join(&entry), seen);
        }
    }
}

/// Names in a directory; its access time is not touched, since it is opened through a descriptor
/// that says so.
fn list(path: &Path) -> Vec<std::ffi::OsString> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::OpenOptionsExt;
    let flags = libc::O_NOATIME | libc::O_DIRECTORY;
    let Ok(dir) = fs::File::options().read(true).custom_flags(flags).open(path) else {
        return Vec::new();
    };
    let (mut names, mut buf) = (Vec::new(), vec![0u8; 32768]);
    let args = [dir.as_raw_fd() as usize, buf.as_mut_ptr() as usize, buf.len()];
    // getdents64(2): 8 bytes inode, 8 offset, 2 length, 1 type, the name.
    while let Ok(got @ 1..) = call(libc::SYS_getdents64, args) {
        let mut at = 0;
        while at < got {
            let len = u16::from_le_bytes([buf[at + 16], buf[at + 17]]) as usize;
            let name = buf[at + 19..at + len].split(|&b| b == 0).next().unwrap_or_default();
            if name != b"." && name != b".." {
                names.push(std::ffi::OsStr::from_bytes(name).to_owned());
            }
            at += len;
        }
    }
    names.sort();
    names
}

fn xattrs(path: &Path) -> String {
    let path = c_path(path);
    let mut buf = [0u8; 1024];
    let args = [path.as_ptr() as usize, buf.as_mut_ptr() as usize, buf.len()];
    let got = call(libc::SYS_llistxattr, args).unwrap_or(0);
    String::from_utf8_lossy(&buf[..got]).into_owned()
}

/// Attributes as chattr(1) shows them.
fn flags(path: &Path) -> String {
    use std::os::unix::fs::OpenOptionsExt;
    let quiet = libc::O_NOATIME | libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = fs::File::options().read(true).custom_flags(quiet).open(path);
    let flags = file.and_then(|f| ask::<u64>(&f, libc::FS_IOC_GETFLAGS as usize));
    flags.map_or_else(|e| e.to_string(), |f| format!("{f:x}"))
}

fn has_reader(fifo: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    fs::File::options().write(true).custom_flags(libc::O_NONBLOCK).open(fifo).is_ok()
}

/// fcntl(2), which libc does not name.
const F_GETSIG: i32 = 11;

fn descriptors(world: &World, seen: &mut Seen) {
    let held = &world.held;
    for (name, fd) in held.numbers() {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        // How long there is to go is not the same twice.
        let lines = info.lines().filter(|l| !l.starts_with("Sq") || !l.contains("Cpu"));
        seen.insert(format!("fd/{name}:info"), lines.collect::<Vec<_>>().join("\n"));
        let ask = |command: i32| {
            format!("{:?}", call(libc::SYS_fcntl, [fd as usize, command as usize]).ok())
        };
        seen.insert(format!("fd/{name}:owner"), ask(libc::F_GETOWN));
        seen.insert(format!("fd/{name}:signal"), ask(F_GETSIG));
    }
    let mut put = |key: &str, value: String| seen.insert(format!("fd/{key}"), value);
    let own = &held.own;
    put("pipe_in:unread", unread(&own["pipe_in"]).to_string());
    put("pipe_out:unread", unread(held.get("pipe_out")).to_string());
    let size =
        call(libc::SYS_fcntl, [own["pipe_in"].as_raw_fd() as usize, libc::F_GETPIPE_SZ as usize]);
    put("pipe_in:size", format!("{size:?}"));
    put("sock:sent", unread(&own["sock"]).to_string());
    put("sock:unread", unread(held.get("sock")).to_string());
    put("sock:hung", (ready(&own["sock"], libc::POLLRDHUP) & libc::POLLRDHUP).to_string());
    put("sock:passcred", format!("{:?}", option(held.get("sock"), libc::SO_PASSCRED).ok()));
    put("bound:listening", format!("{:?}", option(held.get("bound"), libc::SO_ACCEPTCONN).ok()));
    put("waiting:waiting", ready(held.get("waiting"), libc::POLLIN).to_string());
    let memfd = again(held.get("memfd"));
    let mut content = [0u8; 16];
    let args = [memfd.as_raw_fd() as usize, content.as_mut_ptr() as usize, 16, 0];
    let _ = call(libc::SYS_pread64, args);
    put("memfd:content", format!("{content:?}"));
    let seals = call(libc::SYS_fcntl, [memfd.as_raw_fd() as usize, libc::F_GET_SEALS as usize]);
    put("memfd:seals", format!("{seals:?}"));
    put("ring:completed", held.completed().to_string());
    put("map:value", format!("{:?}", held.map_value()));
    let mut log = [0u8; 256];
    // A context reports a complaint once; no other code reads it.
    let args = [held.get("context").as_raw_fd() as usize, log.as_mut_ptr() as usize, log.len()];
    put("context:log", format!("{:?}", call(libc::SYS_read, args).ok()));
    let mut name = [0u8; 16];
    let len = 16u32;
    let args = [
        held.get("inet").as_raw_fd() as usize,
        name.as_mut_ptr() as usize,
        std::ptr::from_ref(&len) as usize,
    ];
    let _ = call(libc::SYS_getsockname, args);
    put("inet:name", format!("{name:?}"));
    let (master, slave) = (&own["tty"], held.get("tty"));
    put("tty:output", unread(master).to_string());
    put("tty:unread", unread(slave).to_string());
    put("tty:attributes", format!("{:?}", ask::<[u64; 8]>(slave, libc::TCGETS as usize).ok()));
    put("tty:window", format!("{:?}", ask::<[u16; 4]>(slave, libc::TIOCGWINSZ as usize).ok()));
    put("tty:exclusive", format!("{:?}", ask::<i32>(slave, libc::TIOCGEXCL as usize).ok()));
    put("tty:session", format!("{:?}", ask::<i32>(master, libc::TIOCGSID as usize).ok()));
    put("tty:group", format!("{:?}", ask::<i32>(master, libc::TIOCGPGRP as usize).ok()));
    put("tty:hung", (ready(slave, libc::POLLHUP) & libc::POLLHUP).to_string());
}

fn network(world: &World, seen: &mut Seen) {
    let own = &world.held.own;
    let mut put = |key: &str, value: String| seen.insert(format!("net/{key}"), value);
    put("receiver:unread", unread(&own["receiver"]).to_string());
    put("listener:waiting", ready(&own["listener"], libc::POLLIN).to_string());
    put("port:waiting", ready(&own["port"], libc::POLLIN).to_string());
    put("lo", format!("{:?}", test_world::interface(libc::SIOCGIFMTU, None).ok()));
    let flags = test_world::interface(libc::SIOCGIFFLAGS, None).ok();
    put("lo:flags", format!("{flags:?}"));
}

fn ipc(world: &World, seen: &mut Seen) {
    let [shm, _, sem] = world.ipc;
    for name in ["shm", "msg", "sem"] {
        let text = fs::read_to_string(format!("/proc/sysvipc/{name}")).unwrap_or_default();
        // The process that did something last, and when, is of no interest without what it did;
        // attaching, which the command itself does, is.
        seen.insert(format!("ipc/{name}"), columns(&text, name));
    }
    const GETVAL: usize = 12;
    let value = call(libc::SYS_semctl, [sem, 0, GETVAL]);
    seen.insert("ipc/sem:value".into(), format!("{value:?}"));
    // Attached only to look: looking is not to count.
    let read_only = libc::SHM_RDONLY as usize;
    let content = call(libc::SYS_shmat, [shm, 0, read_only]).map(|at| {
        // SAFETY: the first bytes of memory that has just been attached.
        let byte = unsafe { (at as *const u8).read_volatile() };
        let _ = call(libc::SYS_shmdt, [at]);
        byte
    });
    seen.insert("ipc/shm:content".into(), format!("{content:?}"));
}

/// proc_sysvipc without the columns that looking changes.
fn columns(text: &str, name: &str) -> String {
    let left_out: &[&str] =
        if name == "shm" { &["cpid", "lpid", "atime", "dtime", "rss", "swap"] } else { &["otime"] };
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let kept = |line: &str| -> String {
        let fields = line.split_whitespace().zip(&head);
        let fields = fields.filter(|(_, name)| !left_out.contains(name));
        fields.map(|(value, name)| format!("{name}={value} ")).collect()
    };
    lines.map(kept).collect::<Vec<_>>().join("\n")
}

fn memory(pid: i32, at: usize) -> String {
    let mut bytes = [0u8; 8];
    let local = [bytes.as_mut_ptr() as usize, 8];
    let remote = [at, 8];
    let (local, remote) = (local.as_ptr() as usize, remote.as_ptr() as usize);
    let got = call(libc::SYS_process_vm_readv, [pid as usize, local, 1, remote, 1, 0]);
    format!("{got:?} {bytes:?}")
}

fn huge(pid: i32) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    maps.lines().filter(|l| l.starts_with("AnonHuge")).collect()
}

/// The call that the waiter is in, and on which address.
fn futex_key(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default()
}

fn uts() -> String {
    ["hostname", "domainname"]
        .map(|name| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default())
        .concat()
}

/// A keyring and what is in it.
fn keys(ring: usize, depth: usize) -> String {
    const DESCRIBE: usize = 6;
    const READ: usize = 11;
    let mut text = [0u8; 256];
    let args = [DESCRIBE, ring, text.as_mut_ptr() as usize, text.len()];
    let Ok(len) = call(libc::SYS_keyctl, args) else { return "gone".into() };
    let what = String::from_utf8_lossy(&text[..len.min(256)]).into_owned();
    let mut content = [0u8; 256];
    let args = [READ, ring, content.as_mut_ptr() as usize, content.len()];
    let len = call(libc::SYS_keyctl, args).unwrap_or(0).min(256);
    if !what.starts_with("keyring") || depth > 3 {
        return format!("{what} {:?}\n", &content[..len]);
    }
    let members = content[..len].chunks_exact(4);
    let members =
        members.map(|m| keys(i32::from_le_bytes([m[0], m[1], m[2], m[3]]) as usize, depth + 1));
    format!("{what} [{}]\n", members.collect::<String>())
}

fn free_inodes(path: &Path) -> String {
    let path = c_path(path);
    // SAFETY: numbers, for which zero is valid, filled in by the call.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string and a struct that live.
    unsafe { libc::statvfs(path.as_ptr(), &mut stat) };
    stat.f_ffree.to_string()
}

fn quota(device: &Path) -> String {
    const GET: usize = 0x8000_0700;
    let (device, mut limits) = (c_path(device), [0u64; 9]);
    let args = [GET, device.as_ptr() as usize, 1234, limits.as_mut_ptr() as usize];
    format!("{:?} {:?}", call(libc::SYS_quotactl, args).is_ok(), &limits[..2])
}
