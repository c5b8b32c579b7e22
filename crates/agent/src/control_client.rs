//! Client of the supervisor's control socket (`abi::control_protocol`).
//!
//! Each conversation takes a socket for its duration, and waits a bounded time for a supervisor
//! that may be stopped or gone. Signals must be blocked: a handler that ran in between and forked
//! would copy the descriptors.

use linux_raw_sys::general as k;
use runahead_abi::agent_config::TOKEN_BYTES;
use runahead_abi::{ABI_VERSION, Shared, control_protocol};
use runahead_estimators::follow_filter::ProgramKey;

use crate::address_space;
use crate::plane::signal_block;
use crate::session::Session;
use crate::sys::{self, Fd};

/// Longest wait for an answer, in milliseconds; usually it takes a tenth of one.
pub const ANSWER_PATIENCE_MS: i32 = 500;

/// Reply of the supervisor.
pub enum Reply {
    /// The request is granted, with this descriptor.
    Granted(Fd),
    /// Length of a message in the caller's buffer; its first byte says what it means.
    Message(usize),
}

/// A conversation with the supervisor.
pub struct Conversation {
    socket: Fd,
}

impl Conversation {
    /// Connects to the control socket.
    pub fn new(session: &Session) -> Option<Self> {
        let config = &session.config;
        let name = config.socket.get(..config.socket_len as usize)?;
        let talk = Conversation { socket: sys::unix_socket().ok()? };
        sys::connect_unix(talk.socket, name).ok()?;
        Some(talk)
    }

    /// Sends the request `what` and waits for its reply. `of`: the file that is about to be
    /// executed, and its key.
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

    /// Sends a message that has no reply. Returns false if the supervisor does not receive it.
    pub fn tell(&self, bytes: &[u8]) -> bool {
        sys::send(self.socket, bytes).is_ok()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = sys::close(self.socket);
    }
}

/// Bytes of the request `what`: its code and the session's token.
fn request(session: &Session, what: u8) -> [u8; 1 + TOKEN_BYTES] {
    let mut request = [what; 1 + TOKEN_BYTES];
    request[1..].copy_from_slice(&session.config.token);
    request
}

/// Sends the request `what` in a conversation of its own. Returns the descriptor that is granted.
pub fn ask(session: &Session, what: u8) -> Option<Fd> {
    // The supervisor waits for shadows before it answers this request.
    let waits = if what == control_protocol::LET_GO { control_protocol::LET_GO_MS } else { 0 };
    let patience = ANSWER_PATIENCE_MS + waits as i32;
    match Conversation::new(session)?.ask(session, (what, None), patience, &mut [0])? {
        Reply::Granted(file) => Some(file),
        Reply::Message(_) => None,
    }
}

/// Asks the supervisor to prepare another process, of that number, for being traced.
pub fn ask_before_trace(session: &Session, process: u32) {
    let Some(talk) = Conversation::new(session) else { return };
    let mut whole = [0; 1 + TOKEN_BYTES + 8];
    whole[..1 + TOKEN_BYTES].copy_from_slice(&request(session, control_protocol::TRACES));
    whole[1 + TOKEN_BYTES..].copy_from_slice(&u64::from(process).to_le_bytes());
    if sys::send(talk.socket, &whole).is_err() {
        return;
    }
    let patience = ANSWER_PATIENCE_MS + control_protocol::TRACES_MS as i32;
    if let Some(Reply::Granted(file)) = talk.answer(patience, &mut [0]) {
        let _ = sys::close(file);
    }
}

/// Passes a descriptor of `file` to the supervisor, for the purpose `what`. Returns false if it is
/// not accepted.
pub fn hand_over_file(session: &Session, what: u8, file: Fd) -> bool {
    exchange_file(session, what, file).is_some_and(|granted| sys::close(granted).is_ok())
}

/// Passes a descriptor of `file` to the supervisor, for the purpose `what`. Returns the descriptor
/// that is granted.
pub fn exchange_file(session: &Session, what: u8, file: Fd) -> Option<Fd> {
    let talk = Conversation::new(session)?;
    sys::send_with(talk.socket, &request(session, what), file).ok()?;
    match talk.answer(ANSWER_PATIENCE_MS, &mut [0])? {
        Reply::Granted(granted) => Some(granted),
        Reply::Message(_) => None,
    }
}

/// Sends the notice `what` to the supervisor, without waiting. Signals must be blocked.
pub fn tell(session: &Session, what: u8) {
    if let Some(talk) = Conversation::new(session) {
        talk.tell(&request(session, what));
    }
}

/// Joins the session: from here on the supervisor knows this process. Returns false, with nothing
/// changed, if that was refused.
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
    // Core files need not contain the shared memory. SAFETY: advice on that mapping.
    let _ = unsafe { sys::advise(at, size_of::<Shared>() as u64, k::MADV_DONTDUMP) };
    // A child that the agent does not know of may give up privileges, and must not write here.
    keep_from_children(at, true);
    // SAFETY: as above.
    unsafe { session.join(at) };
    true
}

/// Decides whether forks inherit the memory shared with the supervisor, which is at `at`.
pub fn keep_from_children(at: u64, keep: bool) {
    let advice = if keep { k::MADV_DONTFORK } else { k::MADV_DOFORK };
    // SAFETY: advice on a mapping of the agent's.
    let _ = unsafe { sys::advise(at, size_of::<Shared>() as u64, advice) };
}
