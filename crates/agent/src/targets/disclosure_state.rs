//! State of the disclosures that the program makes ([`super::disclosure_calls`]): the run that its
//! hints belong to, and which disclosures are recent.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use runahead_abi::hint_record::DISCLOSED;
use runahead_estimators::{ChunkIndex, Identity};

/// Number of disclosures remembered; a power of two.
const RECENT: usize = 512;

/// State of the program's disclosures.
pub(super) struct DisclosureState {
    /// Run that the hints belong to.
    pub(super) run: AtomicU32,
    /// Access count of the target at which the last disclosure is expected.
    pub(super) position: AtomicU64,
    /// True if the ring may be waited for; false after a wait in vain, until the ring is available
    /// again.
    pub(super) may_pause: AtomicBool,
    /// Hashes of the most recent disclosures.
    recent: [AtomicU64; RECENT],
}

/// Disclosed part of a file.
pub(super) struct Disclosure<'a> {
    pub(super) object: Identity,
    pub(super) path: &'a [u8],
    /// True if the program is going to open the file.
    pub(super) by_name: bool,
    pub(super) start: u64,
    /// End offset; `None`: the end of the file.
    pub(super) end: Option<u64>,
}

impl DisclosureState {
    pub(super) const fn new() -> Self {
        DisclosureState {
            run: AtomicU32::new(DISCLOSED),
            position: AtomicU64::new(0),
            may_pause: AtomicBool::new(true),
            recent: [const { AtomicU64::new(0) }; RECENT],
        }
    }

    /// Forgets what the parent disclosed, in a forked child.
    pub(super) fn start_in_child(&self) {
        self.may_pause.store(true, Relaxed);
        self.reset(DISCLOSED);
    }

    /// Starts over with run `run`: forgets all disclosures.
    pub(super) fn reset(&self, run: u32) {
        self.run.store(run, Relaxed);
        self.position.store(0, Relaxed);
        self.recent.iter().for_each(|mixed| mixed.store(0, Relaxed));
    }

    /// Remembers the disclosure. Returns true if it was disclosed recently.
    pub(super) fn is_repeated(&self, wanted: &Disclosure<'_>) -> bool {
        let mixed = wanted.object.chunk(ChunkIndex(wanted.start));
        let mixed = mixed.chunk(ChunkIndex(wanted.end.unwrap_or(u64::MAX))).raw();
        self.recent[mixed as usize % RECENT].swap(mixed, Relaxed) == mixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recent_disclosure_is_repeated_until_it_is_cancelled() {
        let disclosed = DisclosureState::new();
        let of = |start, end| Disclosure {
            object: Identity::ROOT,
            path: b"/",
            by_name: false,
            start,
            end,
        };
        assert!(!disclosed.is_repeated(&of(0, None)) && disclosed.is_repeated(&of(0, None)));
        assert!(!disclosed.is_repeated(&of(0, Some(4096))));
        disclosed.reset(DISCLOSED + 1);
        assert!(!disclosed.is_repeated(&of(0, None)));
    }
}
