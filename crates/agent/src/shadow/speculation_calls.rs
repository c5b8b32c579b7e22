//! Prediction calls that the program makes when it runs in a shadow: predictions are taken as true,
//! and none is reported.
//!
//! A prediction is what the program holds for most probable. A shadow goes on with it, as its
//! target will, past an answer for which it would have had to stop. Commits, failures and queries
//! are answered as if nothing were open.

use runahead_client::prediction::protocol as p;

use super::runner::{CallAnswer, Runner};
use crate::plane::Call;
use crate::sys;

impl Runner {
    /// Answers like a target that can speculate, except that a prediction has no number.
    pub(super) fn answer_prediction(&self, call: &Call) -> CallAnswer {
        Ok(match call.args[1] {
            _ if self.session.config.speculates == 0 => sys::fail(sys::EBADF),
            p::BEGIN | p::COMMIT | p::FAIL | p::SET_POLICY | p::OPEN | p::BARRIER | p::EVENTS => 0,
            p::ANSWER => sys::fail(sys::ESRCH),
            _ => sys::fail(sys::EINVAL),
        })
    }
}
