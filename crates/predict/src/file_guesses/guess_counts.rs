//! Counts of guesses.

use super::guess_kind::KINDS;

/// Counts of guesses since the session began.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Guesses that were begun, by kind.
    pub begun: [u64; KINDS],
    /// Guesses that were used, by kind.
    pub used: [u64; KINDS],
}

impl Tally {
    /// Begun and used.
    pub fn by_kind(&self) -> [(u64, u64); KINDS] {
        std::array::from_fn(|kind| (self.begun[kind], self.used[kind]))
    }
}
