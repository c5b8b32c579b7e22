//! Asking the supervisor for something (`abi::socket`).
//!
//! Each conversation takes a socket for its duration, and waits a bounded time for a supervisor that may
//! be stopped, or gone. Signals must be blocked: a handler that ran in between, and forked, would
//! copy the descriptors.

use linux_raw_sys::general as k;
use runahead_abi::agent_config::TOKEN_BYTES;
use runahead_abi::follow_filter::ProgramKey;
use runahead_abi::{ABI_VERSION, Shared, control_protocol};

use crate::address_space;
use crate::plane::signal_block;
use crate::session::Session;
use crate::sys::{self, Fd};

/// How long an answer may take, in milliseconds; usually it takes a tenth of one.
pub const ANSWER_PATIENCE_MS: i32 = 500;

/// What the supervisor answered.
pub enum Reply {
    /// The request is granted, and this descriptor comes with the answer.
    Granted(Fd),
    /// Bytes of an answer in words, in the caller's buffer; the first says what they mean.
    Message(usize),
}

/// A conversation with the supervisor.
pub struct Conversation {
    socket: Fd,
}

impl Conversation {
    /// Goes to the control socket.
    pub fn new(session: &Session) -> Option<Self> {
        let config = &session.config;
        let name = config.socket.get(..config.socket_len as usize)?;
        let talk = Conversation { socket: sys::unix_socket().ok()? };
        sys::connect_unix(talk.socket, name).ok()?;
        Some(talk)
    }

    /// Asks for `what`; `of`: the file that is about to be executed, and how it is called.
    pub fn ask(
        &self,
        session: &Session,
        (what, of): (u8, Option<(Fd, ProgramKey)>),
        patience_ms: i32,
        answer: &mut [u8],
    ) -> Option<Reply> {
        let request = request(session, what);
        let sent = match of {
            Some((file, called)) => {
                let mut whole = [0; 1 + TOKEN_BYTES + size_of::<ProgramKey>()];
                whole[..request.len()].copy_from_slice(&request);
                whole[request.len()..].copy_from_slice(&called.to_bytes());
                sys::send_with(self.socket, &whole, file)
            }
            None => sys::send(self.socket, &request),
        };
        sent.ok()?;
        self.answer(patience_ms, answer)
    }

    fn answer(&self, patience_ms: i32, answer: &mut [u8]) -> Option<Reply> {
        if !sys::is_readable_within(self.socket, patience_ms) {
            return None;
        }
        let (got, file) = sys::receive(self.socket, answer).ok()?;
        match file {
            Some(file) if answer[0] == control_protocol::YES => Some(Reply::Granted(file)),
            Some(file) => {
                let _ = sys::close(file);
                None
            }
            None => Some(Reply::Message(got)),
        }
    }

    /// Tells what is no question. False: nobody hears it.
    pub fn tell(&self, bytes: &[u8]) -> bool {
        sys::send(self.socket, bytes).is_ok()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = sys::close(self.socket);
    }
}

/// `what`, and whose it is.
fn request(session: &Session, what: u8) -> [u8; 1 + TOKEN_BYTES] {
    let mut request = [what; 1 + TOKEN_BYTES];
    request[1..].copy_from_slice(&session.config.token);
    request
}

/// Asks for `what`, in a conversation of its own; what is granted.
pub fn ask(session: &Session, what: u8) -> Option<Fd> {
    // Before it answers this one, the supervisor waits for shadows.
    let waits = if what == control_protocol::LET_GO { control_protocol::LET_GO_MS } else { 0 };
    let patience = ANSWER_PATIENCE_MS + waits as i32;
    match Conversation::new(session)?.ask(session, (what, None), patience, &mut [0])? {
        Reply::Granted(file) => Some(file),
        Reply::Message(_) => None,
    }
}

/// Gives the supervisor a descriptor of `file`, for what `what` says. False: it does not take it.
pub fn hand_over_file(session: &Session, what: u8, file: Fd) -> bool {
    let taken = Conversation::new(session).and_then(|talk| {
        sys::send_with(talk.socket, &request(session, what), file).ok()?;
        talk.answer(ANSWER_PATIENCE_MS, &mut [0])
    });
    match taken {
        Some(Reply::Granted(file)) => sys::close(file).is_ok(),
        _ => false,
    }
}

/// Tells the supervisor `what`, and does not wait. Signals must be blocked.
pub fn tell(session: &Session, what: u8) {
    if let Some(talk) = Conversation::new(session) {
        talk.tell(&request(session, what));
    }
}

/// Joins the session: from here on this process is known to the supervisor. False: it was not to
/// be, and nothing has changed.
pub fn join(session: &'static Session) -> bool {
    let mask = signal_block::begin();
    let shared = ask(session, control_protocol::JOIN).and_then(|file| {
        let mapped = address_space::map_shared(file, size_of::<Shared>() as u64);
        let _ = sys::close(file);
        mapped.ok()
    });
    signal_block::end(mask);
    let Some(at) = shared else { return false };
    // SAFETY: a fresh mapping of a file of this size, never unmapped; all of it is atomics.
    let version = unsafe { &*(at as *const Shared) }
        .control
        .version
        .load(core::sync::atomic::Ordering::Acquire);
    if version != ABI_VERSION {
        return false;
    }
    // What it costs to write a core file of.
    // SAFETY: advice on that mapping.
    let _ = unsafe { sys::advise(at, size_of::<Shared>() as u64, k::MADV_DONTDUMP) };
    // A child that the agent does not know of may be one that gives up rights, and is not to speak for us.
    keep_from_children(at, true);
    // SAFETY: as above.
    unsafe { session.join(at) };
    true
}

/// Whether forks have the memory shared with the supervisor, which is at `at`.
pub fn keep_from_children(at: u64, keep: bool) {
    let advice = if keep { k::MADV_DONTFORK } else { k::MADV_DOFORK };
    // SAFETY: advice on a mapping of the agent's.
    let _ = unsafe { sys::advise(at, size_of::<Shared>() as u64, advice) };
}
