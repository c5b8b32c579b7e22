//! What came of guesses.

use super::KINDS;

/// See the module's text: since the session began.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    /// Guesses that were begun and that were there when they were used, by kind.
    pub begun: [u64; KINDS],
    pub used: [u64; KINDS],
}

impl Tally {
    /// Begun and used.
    pub(crate) fn by_kind(&self) -> [(u64, u64); KINDS] {
        std::array::from_fn(|kind| (self.begun[kind], self.used[kind]))
    }
}
