//! What this process knows of the session that it belongs to.

use runahead_abi::{AgentConfig, Shared};

use crate::owned::Owned;

/// Set once, when the agent starts; copied with the process into every shadow.
pub struct Session {
    /// The memory shared with the supervisor and the shadows.
    pub shared: &'static Shared,
    /// What the supervisor said at injection.
    pub config: AgentConfig,
    /// Process of the target.
    pub target_pid: u32,
}

impl Session {
    /// Whether any of `len` bytes from `at` is the agent's image or the shared memory, which are
    /// not the program's to change.
    pub fn owns_any(&self, at: u64, len: u64) -> bool {
        let shared = (core::ptr::from_ref(self.shared) as u64, size_of_val(self.shared) as u64);
        let image = (self.config.image, self.config.image_len);
        [image, shared]
            .into_iter()
            .any(|(start, bytes)| at < start + bytes && start < at.saturating_add(len))
    }
}

static SESSION: Owned<Option<Session>> = Owned::new(None);

/// The session, if the agent has started.
pub fn get() -> Option<&'static Session> {
    // SAFETY: written once before anything reads it, and never changed.
    unsafe { &*SESSION.as_ptr() }.as_ref()
}

/// Starts the session.
///
/// # Safety
/// Called once, on the only thread of the process, before any call of `get`.
pub unsafe fn set(session: Session) {
    // SAFETY: passed on to the caller.
    unsafe { *SESSION.get() = Some(session) };
}
