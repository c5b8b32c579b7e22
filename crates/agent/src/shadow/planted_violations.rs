//! Violations planted by tests: a runner really tries what it would only pretend to do, and the
//! kernel must refuse it.
//!
//! The same programs without the plant show the shadow's own restraint. The same calls without a
//! sandbox show that the tests would see an effect. Another plant is for the supervisor to find: a
//! runner that hints nothing but rubbish.
//!
//! Only the supervisor's options choose a plant. The command line reaches the last one only, the
//! environment none; without a test or a measurement there is none.

use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as k;
use runahead_abi::agent_config::plant;
use runahead_abi::{HintKind, PATH_MAX, RunEnd};
use runahead_estimators::ChunkIndex;
use runahead_estimators::access_identity::CHUNK_BYTES;

use super::runner::{Runner, Stop};
use crate::hint_sender::Hint;
use crate::path_text;
use crate::plane::Call;
use crate::session::Session;
use crate::sys::{self, AT_FDCWD, Errno, nr};
use crate::thread_owned::Owned;

/// Calls that have an effect, made as the program makes them.
const EFFECTS: &[u64] = &[
    nr::WRITE,
    nr::PWRITE64,
    nr::WRITEV,
    nr::SENDTO,
    nr::SENDMSG,
    nr::KILL,
    nr::UNLINK,
    nr::UNLINKAT,
    nr::RENAME,
    nr::RENAMEAT2,
    nr::MKDIR,
    nr::MKDIRAT,
    nr::FTRUNCATE,
    nr::TRUNCATE,
    nr::CHMOD,
    nr::FCHMODAT,
    nr::UTIMENSAT,
    nr::IOCTL,
    CONNECT,
    SOCKET,
    nr::SHMAT,
    nr::EXECVE,
    nr::FORK,
    nr::VFORK,
    nr::CLONE3,
];
const CONNECT: u64 = k::__NR_connect as u64;
const SOCKET: u64 = k::__NR_socket as u64;

/// First argument of a getppid(2), which takes none, by which the program marks calls. The second
/// argument is the number of marked calls that follow.
const MARK: u64 = u64::from_le_bytes(*b"leakmark");

/// File in the working directory that rubbish hints name, and the number of its chunks that are
/// hinted.
const RUBBISH: &[u8] = b"rubbish";
const RUBBISH_CHUNKS: u64 = 1 << 13;

/// Marked calls that are still to come.
static MARKED: Owned<u64> = Owned::new(0);

/// True if a test has asked for shadows without a sandbox.
pub(super) fn without_sandbox(session: &Session) -> bool {
    session.plant() == plant::UNGUARDED
}

/// Does what the test has planted. Returns the kernel's answer if `call` was really made.
pub(super) fn attempt(session: &Session, call: &Call) -> Option<i64> {
    match session.plant() {
        plant::EFFECTS => try_effect(session, call),
        plant::MARKED | plant::UNGUARDED => return as_it_stands(call),
        _ => {}
    }
    None
}

/// Makes a marked call, which only the sandbox can refuse.
fn as_it_stands(call: &Call) -> Option<i64> {
    // SAFETY: the armed thread of a runner, depth held by the plane: the only reference.
    let left = unsafe { MARKED.get() };
    if call.nr == nr::GETPPID && call.args[0] == MARK {
        *left = call.args[1];
        return None;
    }
    *left = left.checked_sub(1)?;
    Some(call.perform())
}

/// Tries the effect of `call`, if it has one, and counts the kernel's answer.
fn try_effect(session: &Session, call: &Call) {
    let outcome = match call.nr {
        n if EFFECTS.contains(&n) => sys::check(call.perform()),
        // seccomp does not see the flags of openat2: Landlock must refuse this one.
        nr::OPEN => open(AT_FDCWD, call.args[0], call.args[1] as u32),
        nr::OPENAT => open(call.fd(0), call.args[1], call.args[2] as u32),
        nr::MMAP if call.args[3] as u32 & k::MAP_SHARED != 0 => {
            let [_, len, prot, flags, ..] = call.args;
            let flags = flags | u64::from(k::MAP_ANONYMOUS);
            // SAFETY: asks for new memory, not shared yet.
            sys::check(unsafe { sys::raw(nr::MMAP, [0, len, prot, flags, u64::MAX, 0]) })
        }
        _ => return,
    };
    let control = &session.shared().control;
    match outcome {
        Err(Errno(sys::EPERM | sys::EACCES)) => control.planted_refused.fetch_add(1, Relaxed),
        // Not an attempt: an open that only reads.
        Err(Errno(sys::EALREADY)) => 0,
        _ => control.planted_done.fetch_add(1, Relaxed),
    };
}

fn open(dir: sys::Fd, path: u64, flags: u32) -> sys::Result<u64> {
    if flags & (k::O_CREAT | k::O_TRUNC) == 0 && flags & k::O_ACCMODE == k::O_RDONLY {
        return Err(Errno(sys::EALREADY));
    }
    let mode = if flags & k::O_CREAT != 0 { 0o600 } else { 0 };
    sys::openat2(dir, path, flags | k::O_CLOEXEC, mode, 0).map(|fd| fd as u64)
}

impl Runner {
    /// Hints the chunks of a file that the program does not read, one after the other, as fast as
    /// any shadow may, and then ends the run.
    pub(super) fn plant_rubbish(&mut self) -> Result<(), Stop> {
        if self.session.plant() != plant::RUBBISH {
            return Ok(());
        }
        let object = self.cwd.1.join(RUBBISH);
        let mut text = [0u8; PATH_MAX + 1];
        let directory = self.directory_path(AT_FDCWD).ok_or(Stop(RunEnd::Call))?;
        let len = path_text::append(&mut text, 0, directory)
            .and_then(|len| path_text::append(&mut text, len, RUBBISH))
            .ok_or(Stop(RunEnd::Call))?;
        for chunk in 0..RUBBISH_CHUNKS {
            self.count_access()?;
            if self.log_hint(object.chunk(ChunkIndex(chunk))) {
                let (kind, path) = (HintKind::Data, &text[..len]);
                let (offset, length) = (chunk * CHUNK_BYTES, CHUNK_BYTES);
                self.send_hint(&Hint { kind, object, offset, length, flags: 0, path });
            }
        }
        Err(Stop(RunEnd::Call))
    }
}
