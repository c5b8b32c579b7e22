//! A target that means harm: it writes whatever it likes to the memory that it shares with us.
//!
//! The supervisor neither ends nor hangs nor grows without bound, and reads for a process only what
//! that process may read itself.

use std::fs::File;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
};
use nix::unistd::Pid;
use runahead_abi::record::{DEMAND, Header, STEERS};
use runahead_abi::{Control, HintKind, Shared};
use runahead_inject::Layout;
use runahead_prefetch::Prefetcher;
use runahead_supervisor::desk::{self, Desk};
use runahead_supervisor::dispatcher;
use runahead_supervisor::losses::Losses;
use runahead_supervisor::members::Members;

/// A process that stands for the target: its memory is written by this test.
struct Target {
    child: Child,
    members: Arc<Members>,
    prefetcher: Arc<Prefetcher>,
    losses: Arc<Losses>,
}

impl Target {
    /// Waits for a line, and then executes `then`.
    fn new(then: &[&str]) -> Self {
        let losses = Arc::new(Losses::default());
        let prefetcher = Arc::new(Prefetcher::new(Default::default()));
        let members = Arc::new(Members::new(prefetcher.clone(), losses.clone()).expect("epoll"));
        let child = Command::new("sh")
            .args(["-c", "read -r line; exec \"$@\"", "sh"])
            .args(then)
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        Target { child, members, prefetcher, losses }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    fn join(&self) -> Result<Seen, Errno> {
        Ok(Seen::new(self.members.join(self.pid())?))
    }

    fn go_on(&mut self) {
        use std::io::Write;
        let mut input = self.child.stdin.take().expect("not gone on yet");
        input.write_all(b"\n").expect("it waits");
    }

    fn submitted(&self) -> u64 {
        self.prefetcher.stats().submitted
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.members.end();
    }
}

/// The shared memory as the target has it.
struct Seen {
    file: File,
    at: *mut Shared,
}

impl Seen {
    fn new(file: OwnedFd) -> Self {
        // SAFETY: a new mapping of a file of that size.
        let at = unsafe {
            let rights = nix::libc::PROT_READ | nix::libc::PROT_WRITE;
            let len = size_of::<Shared>();
            nix::libc::mmap(std::ptr::null_mut(), len, rights, 1, file.as_raw_fd(), 0)
        };
        assert_ne!(at, nix::libc::MAP_FAILED);
        Seen { file: file.into(), at: at.cast() }
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped until the test ends, and atomics throughout.
        unsafe { &*self.at }
    }

    fn hint(&self, path: &str, run: u32) -> bool {
        let header = Header {
            kind: HintKind::Data as u32,
            run,
            position: 1,
            key: 77,
            offset: 0,
            length: 4096,
            flags: STEERS | DEMAND,
            path_len: path.len() as u32,
        };
        let pushed = self.shared().ring(run).push(&[header.as_bytes(), path.as_bytes()]);
        dispatcher::ring(self.shared());
        pushed
    }
}

fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while !done() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    done()
}

/// splitmix64
struct Random(u64);

impl Random {
    fn new() -> Self {
        let given = std::env::var("RUNAHEAD_SEED").ok().and_then(|s| s.parse().ok());
        let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64);
        let seed = given.unwrap_or(now);
        eprintln!("repeat with RUNAHEAD_SEED={seed}");
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// What breaks arithmetic, or anything.
    fn word(&mut self) -> u64 {
        const ODD: [u64; 8] = [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 32, 1 << 31, 4100];
        match self.next() % 3 {
            0 => ODD[self.next() as usize % ODD.len()],
            1 => self.next() % 4096,
            _ => self.next(),
        }
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number") * 4096
}

const ROUNDS: u64 = 4000;

#[test]
fn nonsense_in_shared_memory_is_survived() {
    let full = std::env::var_os("RUNAHEAD_FULL").is_some_and(|v| v != "0");
    let rounds = if full { ROUNDS * 50 } else { ROUNDS };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, [7; 10_000]).expect("ours");
    let path = file.to_str().expect("plain");
    let mut random = Random::new();
    let target = Target::new(&["true"]);
    let seen = target.join().expect("it has our rights");
    let before = resident();
    for round in 0..rounds {
        let shared = seen.shared();
        // Control words, statuses and heads of rings lie here; other places are hit now and then.
        for _ in 0..random.next() % 64 {
            let first = size_of_val(&shared.control) + size_of_val(&shared.runs) + 128;
            let within = if random.next().is_multiple_of(4) { size_of::<Shared>() } else { first };
            let at = random.next() as usize % (within / 8) * 8;
            // (Having said that it gives up, it is not listened to any more.)
            if at != offset_of!(Control, stopped) / 8 * 8 {
                seen.file.write_all_at(&random.word().to_le_bytes(), at as u64).expect("ours");
            }
        }
        // Records that are nearly right.
        for _ in 0..random.next() % 8 {
            let mut header = Header {
                kind: 1 + random.next() as u32 % 5,
                run: random.next() as u32,
                position: random.word(),
                key: random.word(),
                offset: random.word(),
                length: random.word(),
                flags: random.next() as u32,
                path_len: path.len() as u32,
            };
            let mut name = path.as_bytes().to_vec();
            if random.next().is_multiple_of(4) {
                let at = dir.path().as_os_str().len() + 1;
                let place = at + random.next() as usize % (name.len() - at);
                name[place] = random.next() as u8;
            }
            if random.next().is_multiple_of(8) {
                header.path_len = random.word() as u32;
            }
            shared.ring(random.next() as u32).push(&[header.as_bytes(), &name]);
        }
        // A run that seems to have ended leads furthest.
        if random.next().is_multiple_of(2) {
            let control = &shared.control;
            let run = control.run_request.load(Relaxed);
            shared.run(run).run.store(run, Relaxed);
            shared.run(run).end.store(random.next() as u32 % 9, Relaxed);
            shared.run(run).accesses.store(random.word(), Relaxed);
            control.accesses.store(random.word(), Relaxed);
            control.accesses_at_sync.store(random.word(), Relaxed);
            control.horizon.store(1, Relaxed);
        }
        dispatcher::ring(shared);
        if round % 8 == 0 {
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    let submitted = target.submitted();
    eprintln!("{rounds} rounds, {submitted} records came through");
    assert!(submitted > rounds / 16, "nothing was tried: {submitted} records came through");
    // It still serves, whatever is left there. What it was told to give up it does not take up again.
    let shared = seen.shared();
    let alive = || {
        shared.control.sleeping.store(1, std::sync::atomic::Ordering::SeqCst);
        dispatcher::ring(shared);
        seen.hint(path, 0);
        eventually(|| shared.rings.iter().all(|ring| ring.is_empty()))
    };
    assert!(alive(), "the dispatcher does not take records any more");
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 20, "it grew by {} MiB", grown >> 20);
    // And others.
    let other = Target::new(&["true"]);
    let fresh = other.join().expect("a new one may join");
    fresh.hint(path, 0);
    assert!(eventually(|| other.submitted() > 0), "a new process is not served");
}

/// Whatever is sent to the desk, and however little is waited for, who asks next is answered.
#[test]
fn nonsense_at_the_desk_is_survived() {
    let mut random = Random::new();
    let target = Target::new(&["true"]);
    let address = desk::address();
    let name = || UnixAddr::new_abstract(&address[1..desk::address_len(&address)]).expect("short");
    let listener = desk::open(&address).expect("nobody else is there");
    let file = File::open("/dev/null").expect("there").into();
    let layout = Layout { file_len: 4096, total_len: 4096, entry: 0 };
    let losses = target.losses.clone();
    let _desk = Desk::new(listener, target.members.clone(), file, layout, losses);
    let connect = || {
        let kind = SockType::SeqPacket;
        let socket = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).expect("one");
        connect(socket.as_raw_fd(), &name()).map(|()| socket)
    };
    let full = std::env::var_os("RUNAHEAD_FULL").is_some_and(|v| v != "0");
    let before = resident();
    let mut kept = Vec::new();
    for _ in 0..if full { 20_000 } else { 400 } {
        // Too many wait: they would be refused, too.
        let Ok(socket) = connect() else { continue };
        let mut bytes = vec![0; random.next() as usize % 64];
        bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
        if let Some(first) = bytes.first_mut().filter(|_| random.next().is_multiple_of(2)) {
            *first = b"JELX"[random.next() as usize % 4];
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
        let _ = send(socket.as_raw_fd(), b"?", MsgFlags::MSG_NOSIGNAL);
        let mut answer = [0];
        recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()) == Ok(1) && answer == *b"n"
    });
    assert!(answered, "nobody answers any more");
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 20, "it grew by {} MiB", grown >> 20);
}

/// A file of ours that the target makes shorter must not end us.
#[test]
fn the_shared_file_keeps_its_length() {
    let target = Target::new(&["true"]);
    let seen = target.join().expect("it has our rights");
    assert!(seen.file.set_len(0).is_err(), "it can be cut");
    assert!(seen.file.set_len(1 << 40).is_err(), "it can grow");
}

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        assert!(std::env::var_os("RUNAHEAD_SKIP_NONE").is_none(), "would be skipped: needs root");
        eprintln!("skipped: needs root, to make a process of another user");
    }
    root
}

/// Ways to have fewer rights, or other names.
const LESS: [&[&str]; 6] = [
    &["setpriv", "--reuid=65534", "--clear-groups", "sleep", "60"],
    &["setpriv", "--regid=65534", "--clear-groups", "sleep", "60"],
    &["setpriv", "--groups=65534", "sleep", "60"],
    &["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search", "sleep", "60"],
    &["unshare", "--mount", "sleep", "60"],
    &["unshare", "--user", "sleep", "60"],
];

/// The process has become what it was to become.
fn is_asleep(pid: Pid) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim() == "sleep"
}

#[test]
fn what_a_process_may_not_read_is_not_read_for_it() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "for root").expect("ours");
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).expect("ours");
    let path = secret.to_str().expect("plain");
    // As long as it has our rights, what it names is read: the test can see that.
    let mut same = Target::new(&["sleep", "60"]);
    let seen = same.join().expect("it has our rights");
    same.go_on();
    assert!(eventually(|| is_asleep(same.pid())));
    assert!(seen.hint(path, 0));
    assert!(eventually(|| same.submitted() == 1), "the test sees nothing: {:?}", same.losses.all());
    for less in LESS {
        let mut target = Target::new(less);
        let seen = target.join().expect("it has our rights");
        target.go_on();
        assert!(eventually(|| is_asleep(target.pid())), "{less:?} does not run");
        assert!(seen.hint(path, 0));
        assert!(eventually(|| seen.shared().rings[0].is_empty()), "{less:?}: not looked at");
        assert!(eventually(|| !target.losses.all().is_empty()), "{less:?}: nobody says so");
        assert_eq!(target.submitted(), 0, "read for {less:?}");
        // For good; nor may it join as it is now.
        seen.hint(path, 1);
        assert!(eventually(|| seen.shared().rings[2].is_empty()));
        assert_eq!(target.submitted(), 0, "read for {less:?}");
        assert_eq!(target.join().err(), Some(Errno::EPERM), "{less:?} may join");
    }
}
