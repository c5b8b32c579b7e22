//! Asking the supervisor for something (`abi::desk`).
//!
//! Each request takes a socket for its duration, and waits a bounded time for a supervisor that may
//! be stopped, or gone. Signals must be blocked: a handler that ran in between, and forked, would
//! copy the descriptors.

use linux_raw_sys::general as k;
use runahead_abi::config::TOKEN_BYTES;
use runahead_abi::{ABI_VERSION, Shared, desk};

use crate::plane::quiet;
use crate::room;
use crate::session::Session;
use crate::sys::{self, Fd};

/// How long an answer may take, in milliseconds; usually it takes a tenth of one.
const PATIENCE_MS: i32 = 500;

/// A request that was granted.
pub struct Granted {
    /// The conversation, which may go on.
    pub socket: Fd,
    /// What was asked for.
    pub file: Fd,
}

/// Asks for `what`.
pub fn ask(session: &Session, what: u8) -> Option<Granted> {
    let socket = sys::unix_socket().ok()?;
    let granted = converse(session, socket, what);
    if granted.is_none() {
        let _ = sys::close(socket);
    }
    granted
}

fn converse(session: &Session, socket: Fd, what: u8) -> Option<Granted> {
    let config = &session.config;
    let name = config.desk.get(..config.desk_len as usize)?;
    sys::connect_unix(socket, name).ok()?;
    let mut request = [what; 1 + TOKEN_BYTES];
    request[1..].copy_from_slice(&config.token);
    sys::send(socket, &request).ok()?;
    if !sys::is_readable_within(socket, PATIENCE_MS) {
        return None;
    }
    let (byte, file) = sys::receive(socket).ok()?;
    match file {
        Some(file) if byte == desk::YES => Some(Granted { socket, file }),
        Some(file) => {
            let _ = sys::close(file);
            None
        }
        None => None,
    }
}

/// Joins the session: from here on this process is known to the supervisor. False: it was not to
/// be, and nothing has changed.
pub fn join(session: &'static Session) -> bool {
    let mask = quiet::begin();
    let shared = ask(session, desk::JOIN).and_then(|granted| {
        let mapped = room::map_shared(granted.file, size_of::<Shared>() as u64);
        let _ = sys::close(granted.file);
        let _ = sys::close(granted.socket);
        mapped.ok()
    });
    quiet::end(mask);
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
