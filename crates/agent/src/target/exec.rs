//! Before the program becomes another one: the supervisor is asked to put the agent into that, too.
//!
//! Tracing a process would take away the privileges that a set-user-ID program gives it, so those,
//! and what the agent is not made for, are left alone: they run natively, and so do their children.
//! The file is looked at first, for that; if it is cold, that wait is the one that exec would have
//! had, and what the program is going to need is fetched meanwhile.

use linux_raw_sys::general as k;
use runahead_abi::record::DEMAND;
use runahead_abi::{ChunkIndex, HintKind, desk};

use super::access::Stall;
use super::lookups::Place;
use super::{TARGET, Target};
use crate::desk as supervisor;
use crate::hints::Hint;
use crate::paths::{self, FdPath};
use crate::plane::{Call, Token, quiet};
use crate::session::{self, Session};
use crate::sys::{self, AT_FDCWD, Errno, Fd, nr};

/// Nothing was prepared.
const NONE: Token = -1;
/// Interpreters of interpreters that the kernel follows (`#!`, execve(2)).
const INTERPRETERS: usize = 5;
/// Bytes that the kernel looks at for `#!` (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: usize = 256;
/// Set in the environment to 0, the program and its children run natively.
const OPT_OUT: &[u8] = b"RUNAHEAD=0";
/// Environment strings looked at.
const ENVIRONMENT_MAX: usize = 4096;

/// What exec would run.
enum Image {
    /// A program that the agent is made for.
    Ours,
    /// Privileged: whatever we hold may be in its way.
    Privileged,
    /// Anything else.
    Other,
}

/// Asks the supervisor to follow, if this exec is one that it can follow. Signals are blocked.
pub(super) fn before(call: &Call) -> Token {
    let Some(session) = session::get() else { return NONE };
    match call.thread.is_lent() {
        true => TARGET.let_go_of_all(session),
        // A shadow executes this program's file.
        false => TARGET.outlive_all(session),
    }
    // The kernel gives a new number to another thread than the first; then nobody would know whom to
    // follow.
    if sys::gettid() != sys::getpid() || opts_out(call) {
        return NONE;
    }
    let (dir, path, flags) = match call.nr {
        nr::EXECVE => (AT_FDCWD, call.args[0], 0),
        _ => (call.fd(0), call.args[1], call.args[4] as u32),
    };
    let lent = call.thread.is_lent();
    match open(&TARGET, session, (dir, path), flags, lent).map(examine) {
        // It will fail, or is not ours to look at.
        Err(_) => NONE,
        Ok(Image::Ours) => follow(session),
        Ok(Image::Privileged) => {
            let_go_everywhere(session);
            NONE
        }
        Ok(Image::Other) => NONE,
    }
}

fn follow(session: &Session) -> Token {
    let Some(granted) = supervisor::ask(session, desk::EXEC) else { return NONE };
    // Its number in the new program. (The other end is closed by exec itself.)
    let _ = sys::send(granted.socket, &granted.file.to_le_bytes());
    if granted.file > 0xffff {
        failed(granted.file);
        return NONE;
    }
    granted.file
}

/// The exec that was prepared has failed: nobody is to wait for it.
pub(super) fn failed(file: Token) {
    if file == NONE {
        return;
    }
    let _ = sys::close(file);
    let bit = 1u64 << (desk::EXEC_FAILED - 1);
    let _ = sys::queue_to_self(desk::EXEC_FAILED, desk::EXEC_FAILED_VALUE);
    // The tracer takes it, and lets us go.
    let mask = sys::set_mask(!bit);
    sys::set_mask(mask);
}

/// Has every shadow of the session let go of what it holds.
pub(super) fn let_go_everywhere(session: &'static Session) {
    TARGET.let_go_of_all(session);
    let mask = quiet::begin();
    if let Some(granted) = supervisor::ask(session, desk::LET_GO) {
        let _ = sys::close(granted.file);
        let _ = sys::close(granted.socket);
    }
    quiet::end(mask);
}

/// The environment says so.
fn opts_out(call: &Call) -> bool {
    let environment = call.args[if call.nr == nr::EXECVE { 2 } else { 3 }];
    if environment == 0 {
        return false;
    }
    let mut strings = [0u64; sys::GATHER_MAX];
    for part in 0..ENVIRONMENT_MAX / strings.len() {
        let at = environment + size_of_val(&strings) as u64 * part as u64;
        strings = sys::copy_in(at).unwrap_or_else(|_| {
            // Not all of it is there: the end may be near.
            core::array::from_fn(|n| sys::copy_in(at + 8 * n as u64).unwrap_or(0))
        });
        let count = strings.iter().position(|string| *string == 0).unwrap_or(strings.len());
        if any_opts_out(&strings[..count]) {
            return true;
        }
        if count < strings.len() {
            break;
        }
    }
    false
}

fn any_opts_out(mut strings: &[u64]) -> bool {
    const BYTES: usize = OPT_OUT.len() + 1;
    let is_it = |start: &[u8; BYTES]| start.split_last() == Some((&0, OPT_OUT));
    let mut starts = [[0u8; BYTES]; sys::GATHER_MAX];
    while !strings.is_empty() {
        let got = sys::gather(strings, &mut starts);
        if starts[..got].iter().any(is_it) {
            return true;
        }
        // One that is shorter, at the end of memory.
        strings = &strings[strings.len().min(got + 1)..];
    }
    false
}

/// A file that exec may run.
struct File {
    /// It, however it may be opened (`O_PATH`).
    place: Fd,
    mode: u32,
    /// Open for reading, where that can do no harm and is allowed.
    open: Option<Fd>,
}

impl File {
    fn at(place: Fd) -> Self {
        let stat = sys::statx_fd(place, k::STATX_TYPE | k::STATX_MODE);
        let mode = stat.map_or(0, |stat| stat.stx_mode.into());
        let flags = k::O_RDONLY | k::O_CLOEXEC | k::O_NOCTTY;
        let open = if mode & k::S_IFMT == k::S_IFREG {
            sys::openat2(AT_FDCWD, FdPath::new(place).address(), flags, 0, 0).ok()
        } else {
            None
        };
        File { place, mode, open }
    }

    /// The start of the file is in memory, or cannot be asked for.
    fn is_warm(&self) -> bool {
        let Some(file) = self.open else { return true };
        let mut byte = 0u8;
        let read = sys::read_nowait(file, &raw mut byte as u64, 1, Some(0));
        let remote = read == Err(Errno(sys::EOPNOTSUPP));
        let cold =
            read == Err(Errno(sys::EAGAIN)) || remote && sys::cached_pages(file, 0, 1) == Ok(0);
        !cold
    }

    /// It gives privileges to who runs it.
    fn is_privileged(&self) -> bool {
        const SET_ID: u32 = 0o6000;
        self.mode & SET_ID != 0
            || match self.open {
                Some(file) => sys::has_capabilities(file),
                None => sys::path_has_capabilities(FdPath::new(self.place).address()),
            }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.open.into_iter().chain([self.place]).for_each(|fd| _ = sys::close(fd));
    }
}

/// The program's file. If it is cold, it and what it needs are asked for.
fn open(
    target: &Target,
    session: &'static Session,
    (dir, path): (Fd, u64),
    flags: u32,
    lent: bool,
) -> sys::Result<File> {
    if flags & k::AT_EMPTY_PATH != 0 && sys::copy_in::<u8>(path)? == 0 {
        let path = FdPath::new(dir);
        return sys::openat2(AT_FDCWD, path.address(), k::O_PATH | k::O_CLOEXEC, 0, 0)
            .map(File::at);
    }
    let nofollow = if flags & k::AT_SYMLINK_NOFOLLOW != 0 { k::O_NOFOLLOW } else { 0 };
    let how = k::O_PATH | k::O_CLOEXEC | nofollow;
    let open = |resolve| sys::openat2(dir, path, how, 0, resolve).map(File::at);
    let known = match open(k::RESOLVE_CACHED) {
        Ok(file) => Some(file),
        Err(Errno(sys::EAGAIN)) => None,
        Err(errno) => return Err(errno),
    };
    // SAFETY: the kernel has just read this path.
    let text = unsafe { paths::c_string(path) };
    target.tell_exec(session, dir, text, lent);
    let file = match known {
        None if !matches!(target.place_of(session, dir, text), Place::Slow) => Some(open(0)?),
        known => known,
    };
    if file.as_ref().is_some_and(File::is_warm) {
        target.family.executes(false, lent);
    } else {
        target.family.executes(true, lent);
        target.wake();
        target.pace.stalled();
        target.join(session);
        // Not the name itself, which is known as soon as it has been looked up.
        let object = target.identity(session, dir, text).chunk(ChunkIndex(u64::MAX));
        let kind = HintKind::Program;
        let hint = Hint::whole(kind, object, DEMAND, b"");
        target.demand(session, &Stall { piece: object.into(), hint, dir, path: text });
    }
    file.map_or_else(|| open(0), Ok)
}

fn examine(mut file: File) -> Image {
    for _ in 0..INTERPRETERS {
        let mut head = [0u8; HEAD_BYTES];
        match look(&file, &mut head) {
            Seen::Script(Some(interpreter)) => file = File::at(interpreter),
            Seen::Script(None) => return Image::Other,
            Seen::Program(image) => return image,
        }
    }
    Image::Other
}

enum Seen {
    Script(Option<Fd>),
    Program(Image),
}

fn look(file: &File, head: &mut [u8; HEAD_BYTES]) -> Seen {
    if file.is_privileged() {
        return Seen::Program(Image::Privileged);
    }
    let got = file.open.and_then(|file| sys::pread(file, head, 0).ok());
    let Some(head) = got.and_then(|got| head.get(..got)) else {
        return Seen::Program(Image::Other);
    };
    if head.starts_with(b"#!") {
        return Seen::Script(interpreter(head));
    }
    // ELF, 64 bits, little-endian; machine at 18 (elf(5)).
    const EM_X86_64: u8 = 62;
    let ours = head.starts_with(b"\x7fELF\x02\x01") && head.get(18..20) == Some(&[EM_X86_64, 0]);
    Seen::Program(if ours { Image::Ours } else { Image::Other })
}

/// A place of the interpreter that a script's first line names.
fn interpreter(head: &[u8]) -> Option<Fd> {
    let line = &head[2..];
    let start = line.iter().position(|b| !matches!(b, b' ' | b'\t'))?;
    let rest = &line[start..];
    let end = rest.iter().position(|b| matches!(b, b' ' | b'\t' | b'\n' | 0))?;
    let mut text = [0u8; HEAD_BYTES];
    text[..end].copy_from_slice(&rest[..end]);
    sys::openat2(AT_FDCWD, text.as_ptr() as u64, k::O_PATH | k::O_CLOEXEC, 0, 0).ok()
}
