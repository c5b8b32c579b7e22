//! Exec of another program: asks the supervisor to put the agent into the new image too.
//!
//! Tracing a process would take away the privileges that a set-user-ID program gives it. So such
//! programs, and those that the agent does not support, run natively, and so do their children. The
//! file is inspected first for that. If it is cold, that wait replaces the one that exec would have
//! had, and the supervisor meanwhile fetches what the program will need.
//!
//! The target opens nothing for reading here: a process that closes any descriptor of a file loses
//! its locks on it (fcntl(2)), which an exec keeps. The supervisor reads the files instead. It gets
//! `O_PATH` descriptors of them, whose close does not release locks.

use core::mem::MaybeUninit;

use linux_raw_sys::general as k;
use runahead_abi::OPT_OUT;
use runahead_abi::control_protocol::{self, Bequest};
use runahead_abi::overlay::DIRECTORY_MAX;
use runahead_estimators::follow_filter::ProgramKey;

use super::name_lookups::NameLocation;
use super::path_argument::PathArgument;
use super::target_state::TARGET;
use crate::control_client::{self as supervisor, Conversation, Reply};
use crate::descriptor_names;
use crate::path_text::FdPath;
use crate::plane::policy::NO_TOKEN as NONE;
use crate::plane::{Call, Token, signal_block};
use crate::session::{self, Session};
use crate::sys::{self, AT_FDCWD, Errno, Fd, nr};

/// Levels of interpreters that the kernel follows (`#!`, execve(2)).
const INTERPRETER_DEPTH_MAX: usize = 5;
/// Most environment strings that are inspected.
const ENVIRONMENT_MAX: usize = 4096;

/// Bytes of an argument that identify what a program is called to do.
const ARGUMENT_PREFIX_BYTES: usize = 64;

/// Longest wait for the supervisor while it reads a cold file, in milliseconds. It has just
/// answered that it is at work.
const COLD_PATIENCE_MS: i32 = 10_000;

/// Asks the supervisor to follow this exec, if that is possible. Signals are blocked.
pub(super) fn before_exec(call: &Call) -> Token {
    match prepare_call(call, None) {
        Ok(token) => token,
        Err(_) => NONE,
    }
}

/// Prepares an exec whose new program must not run without the agent. The agent inherits a word
/// (not 0) and the mask of signals that it starts with.
///
/// Returns an error if the exec cannot be followed: the error of the call itself if it would fail.
/// Signals are blocked.
pub fn prepare_strictly(call: &Call, word: u64, mask: u64) -> sys::Result<Token> {
    match prepare_call(call, Some(Bequest { word, mask }))? {
        NONE => Err(Errno(sys::EOPNOTSUPP)),
        token => Ok(token),
    }
}

fn prepare_call(call: &Call, bequest: Option<Bequest>) -> sys::Result<Token> {
    let Some(session) = session::get() else { return Ok(NONE) };
    match call.thread.is_lent() {
        true => TARGET.end_shadows(session),
        // A shadow executes this program's file.
        false => {
            TARGET.record_all_mapped(session);
            TARGET.outlive_shadows(session);
        }
    }
    // An exec by another thread than the first changes that thread's TID, and the supervisor would
    // not know which thread to follow.
    if sys::gettid() != sys::getpid() || opts_out(call) {
        return Ok(NONE);
    }
    let (dir, path, flags) = match call.nr {
        nr::EXECVE => (AT_FDCWD, call.args[0], 0),
        _ => (call.fd(0), call.args[1], call.args[4] as u32),
    };
    let arguments = call.args[if call.nr == nr::EXECVE { 1 } else { 2 }];
    let mut room = MaybeUninit::uninit();
    let name = PathArgument::copied(dir, path, &mut room);
    let program = Program { name, arguments, flags, lent: call.thread.is_lent() };
    // If there is no such file, the exec fails, or this process may not look at it.
    let found = program.find_file(session)?;
    Ok(prepare(session, &program, found, bequest).unwrap_or(NONE))
}

/// Returns the descriptor number of the agent's file in the new program, if the supervisor follows.
fn prepare(
    session: &'static Session,
    program: &Program<'_>,
    (mut file, mut said): (ExecFile, bool),
    bequest: Option<Bequest>,
) -> Option<Token> {
    let strictly = if bequest.is_some() { control_protocol::STRICTLY } else { 0 };
    let mut talk = None;
    let mut answer = [0u8; control_protocol::ANSWER_BYTES + 1];
    let mut request = (control_protocol::EXEC, supervisor::ANSWER_PATIENCE_MS);
    let mut interpreters = 0;
    let mut called = None;
    loop {
        let look = file.inspect();
        if look.is_privileged {
            drop((talk, file));
            // Anything that a shadow holds may be in its way.
            end_session_shadows(session);
            return None;
        }
        let known =
            *called.get_or_insert_with(|| look.key.map(|key| program.key_with_arguments(key)));
        let is_watched = |key: Option<ProgramKey>| key.is_none_or(|key| session.is_followed(key));
        if bequest.is_none() && !(is_watched(look.key) && is_watched(known)) {
            if !said {
                program.note_exec(false);
            }
            return None;
        }
        let room = &mut answer[..control_protocol::ANSWER_BYTES];
        let (what, patience) = request;
        let talk = talk.get_or_insert_with(|| Conversation::new(session)).as_ref();
        let reply = talk.and_then(|talk| {
            let reply =
                talk.ask(session, (what | strictly, Some((file.0, known?))), patience, room)?;
            Some((talk, reply))
        });
        let cold =
            matches!(reply, Some((_, Reply::Message(_)))) && room[0] == control_protocol::COLD;
        if !core::mem::replace(&mut said, true) {
            program.note_exec(cold);
        }
        match reply? {
            (talk, Reply::Granted(agent)) => return send_bequest(talk, agent, bequest),
            _ if cold && what == control_protocol::EXEC => {
                request = (control_protocol::EXEC_WAITS, COLD_PATIENCE_MS)
            }
            (_, Reply::Message(got))
                if room[0] == control_protocol::SCRIPT && interpreters < INTERPRETER_DEPTH_MAX =>
            {
                interpreters += 1;
                answer[got] = 0;
                file = ExecFile::open(AT_FDCWD, answer[1..].as_ptr() as u64, 0, 0).ok()?;
                request = (control_protocol::EXEC, supervisor::ANSWER_PATIENCE_MS);
            }
            _ => return None,
        }
    }
}

/// Tells the supervisor the number of the agent's descriptor, which the new program keeps, and what
/// the new agent inherits.
fn send_bequest(talk: &Conversation, agent: Fd, bequest: Option<Bequest>) -> Option<Token> {
    let left = bequest.map(Bequest::to_bytes);
    let said = left.as_ref().map_or(session::nested_try(), |bytes| &bytes[..]);
    let mut told = [0; 4 + DIRECTORY_MAX];
    told[..4].copy_from_slice(&agent.to_le_bytes());
    told[4..4 + said.len()].copy_from_slice(said);
    let is_told = talk.tell(&told[..4 + said.len()]);
    // A program that may run without the agent need not get the message.
    if agent > 0xffff || bequest.is_some() && !is_told {
        exec_failed(agent);
        return None;
    }
    Some(agent)
}

/// Withdraws an exec that was prepared and has failed, so that the supervisor stops waiting for it.
pub(super) fn exec_failed(file: Token) {
    if file == NONE {
        return;
    }
    let _ = sys::close(file);
    let bit = 1u64 << (control_protocol::EXEC_FAILED - 1);
    let _ = sys::queue_to_self(control_protocol::EXEC_FAILED, control_protocol::EXEC_FAILED_VALUE);
    // The tracer takes the signal and detaches.
    let mask = sys::set_mask(!bit);
    sys::set_mask(mask);
}

/// Ends every shadow of the session, in all of its processes, and waits until they hold nothing.
pub(super) fn end_session_shadows(session: &'static Session) {
    TARGET.end_shadows(session);
    let mask = signal_block::begin();
    if let Some(file) = supervisor::ask(session, control_protocol::LET_GO) {
        let _ = sys::close(file);
    }
    signal_block::end(mask);
}

/// True if the environment of the new program contains [`OPT_OUT`].
fn opts_out(call: &Call) -> bool {
    let environment = call.args[if call.nr == nr::EXECVE { 2 } else { 3 }];
    if environment == 0 {
        return false;
    }
    let mut strings = [0u64; sys::GATHER_MAX];
    for part in 0..ENVIRONMENT_MAX / strings.len() {
        let at = environment + size_of_val(&strings) as u64 * part as u64;
        strings = sys::copy_in(at).unwrap_or_else(|_| {
            // Part of it is unmapped: the end of the list may be near.
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
    let is_it = |start: &[u8; BYTES]| start.split_last() == Some((&0, OPT_OUT.as_bytes()));
    let mut starts = [[0u8; BYTES]; sys::GATHER_MAX];
    while !strings.is_empty() {
        let got = sys::gather(strings, &mut starts);
        if starts[..got].iter().any(is_it) {
            return true;
        }
        // The next string is shorter and ends at the end of mapped memory.
        strings = &strings[strings.len().min(got + 1)..];
    }
    false
}

/// Copies the beginning of the string at `at`, as far as it can be read.
fn copy_prefix(at: u64, text: &mut [u8; ARGUMENT_PREFIX_BYTES]) {
    const PART: usize = 16;
    let parts: [u64; ARGUMENT_PREFIX_BYTES / PART] =
        core::array::from_fn(|n| at.wrapping_add((n * PART) as u64));
    sys::gather(&parts, text.as_chunks_mut::<PART>().0);
}

/// Facts about a file that is about to be executed.
struct FileFacts {
    /// True if the file gives privileges to the process that executes it.
    is_privileged: bool,
    key: Option<ProgramKey>,
}

/// An `O_PATH` descriptor of a file that exec may run.
struct ExecFile(Fd);

impl ExecFile {
    fn open(dir: Fd, path: u64, flags: u32, resolve: u32) -> sys::Result<Self> {
        let flags = k::O_PATH | k::O_CLOEXEC | flags;
        sys::openat2(dir, path, flags, 0, resolve).map(ExecFile)
    }

    fn inspect(&self) -> FileFacts {
        const SET_ID: u16 = 0o6000;
        let stat = sys::statx_fd(self.0, k::STATX_MODE | k::STATX_INO).ok();
        let is_set_id = stat.as_ref().is_some_and(|stat| stat.stx_mode & SET_ID != 0);
        FileFacts {
            is_privileged: is_set_id || sys::path_has_capabilities(FdPath::new(self.0).address()),
            key: stat.map(|stat| ProgramKey::new(descriptor_names::device_of(&stat), stat.stx_ino)),
        }
    }
}

impl Drop for ExecFile {
    fn drop(&mut self) {
        let _ = sys::close(self.0);
    }
}

/// Program to execute, as the call names it.
struct Program<'a> {
    name: PathArgument<'a>,
    /// Address of the argument list.
    arguments: u64,
    flags: u32,
    /// True in a vfork child, which uses its parent's memory.
    lent: bool,
}

impl Program<'_> {
    /// Opens the program's file. The bool is true if its name was cold and that has been counted.
    fn find_file(&self, session: &'static Session) -> sys::Result<(ExecFile, bool)> {
        let &Program { name: PathArgument { dir, at, .. }, flags, .. } = self;
        if flags & k::AT_EMPTY_PATH != 0 && self.name.copy().ok_or(Errno(sys::EFAULT))?.is_empty() {
            return Ok((ExecFile::open(AT_FDCWD, FdPath::new(dir).address(), 0, 0)?, false));
        }
        let nofollow = if flags & k::AT_SYMLINK_NOFOLLOW != 0 { k::O_NOFOLLOW } else { 0 };
        let open = |resolve| ExecFile::open(dir, at, nofollow, resolve);
        let known = match open(k::RESOLVE_CACHED) {
            Ok(file) => Some(file),
            Err(Errno(sys::EAGAIN)) => None,
            Err(errno) => return Err(errno),
        };
        let text = self.text().ok_or(Errno(sys::EFAULT))?;
        TARGET.record_exec(session, dir, text, self.lent);
        if let Some(file) = known {
            return Ok((file, false));
        }
        let slow = matches!(TARGET.locate_name(session, dir, text), NameLocation::Slow);
        if slow {
            self.note_exec(true);
        }
        Ok((open(0)?, slow))
    }

    /// Key of the file `key` extended by the beginnings of its first two arguments.
    fn key_with_arguments(&self, key: ProgramKey) -> ProgramKey {
        let [_, first, second] = sys::copy_in(self.arguments).unwrap_or([0; 3]);
        let mut texts = [[0u8; ARGUMENT_PREFIX_BYTES]; 2];
        texts.iter_mut().zip([first, second]).for_each(|(text, at)| copy_prefix(at, text));
        let [first, second] =
            texts.each_ref().map(|text| text.split(|byte| *byte == 0).next().unwrap_or_default());
        key.called(first, second)
    }

    /// Name of the program, once the kernel has read it.
    fn text(&self) -> Option<&[u8]> {
        // SAFETY: the kernel has just found the file by it.
        unsafe { self.name.text() }
    }

    /// Counts the exec for the parent as cold or warm. After a cold one, calls are probed: the
    /// process that shares this memory is going to wait.
    fn note_exec(&self, cold: bool) {
        TARGET.child_stalls.note_exec(cold, self.lent);
        if cold {
            TARGET.leave_sampling();
            TARGET.stall_probing.note_stall();
        }
    }
}
