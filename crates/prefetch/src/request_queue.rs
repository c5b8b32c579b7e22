//! Queue of requests: what is to be read, as data without threads, files or a clock.
//!
//! There is one entry for each path, from the first hint that names it until nothing is left to do
//! for it, with a *share* for each client that hinted it. A worker looks the path up once
//! ([`Step::Look`]), which answers `Lookup` hints and tells what the others may do; the handle it
//! brings back serves all of them, those too that arrive while it is being looked up. See
//! [`crate::fair_queue`] and `hint_order` in `predict` for the order and [`crate::byte_ranges`] for
//! data.
//!
//! Log keys and runs are a client's own: keys of different clients are different things, whatever
//! their values.
//!
//! Invariants: a hint that was accepted is completed once (possibly merged with others of its
//! client) or dropped; each of its log keys is marked done when nothing that it covers is left to
//! be read, or forgotten, after which no trace of it remains; no entry without work or worker
//! exists; nothing is told to a client that is gone.
//!
//! Nothing here calls out: what has to be told to the [`crate::Sink`] is collected in [`Effects`],
//! for the caller to act on once it has let go of the lock.

mod cancellation;
mod client_lifecycle;
mod client_requests;
mod hint_submission;
mod job_selection;
mod lookup_turns;
mod path_entry;
mod queue_state;
#[cfg(test)]
mod tests;
mod worker_job;

pub(crate) use self::queue_state::Queue;
pub(crate) use self::worker_job::{Class, Found, Job, Place, Step, TakenPart};
