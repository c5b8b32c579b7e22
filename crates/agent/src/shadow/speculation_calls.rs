//! What the program says of its predictions when it is a shadow that runs it: it is taken at its word, and nobody hears of it.
//!
//! A prediction is what the program holds for most probable, so a shadow goes on with it as its target will, past an answer for which
//! it would have had to stop. What is settled, and asked of what is open, is answered as if nothing had been.

use runahead_speculate::protocol as p;

use super::runner::{CallAnswer, Runner};
use crate::plane::Call;
use crate::sys;

impl Runner {
    /// Answers as a target that can speculate does, but that a prediction has no number.
    pub(super) fn answer_prediction(&self, call: &Call) -> CallAnswer {
        Ok(match call.args[1] {
            _ if self.session.config.speculates == 0 => sys::fail(sys::EBADF),
            p::BEGIN | p::COMMIT | p::FAIL | p::SET_POLICY | p::OPEN | p::BARRIER | p::EVENTS => 0,
            p::ANSWER => sys::fail(sys::ESRCH),
            _ => sys::fail(sys::EINVAL),
        })
    }
}
