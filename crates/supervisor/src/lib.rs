//! A session: one command, its shadows, the prefetcher, and the account of it all.
//!
//! [`session`] starts the command with the agent in it and waits for it; [`descriptors`] are given
//! up once it runs; [`dispatcher`] takes hints
//! out of shared memory, hands them to the prefetcher and decides when a shadow should run again;
//! [`sandbox`] prepares what the kernel will deny a shadow; [`stats`] says what happened.

pub mod descriptors;
pub mod dispatcher;
pub mod memory;
pub mod sandbox;
pub mod session;
pub mod shadows;
pub mod signals;
pub mod stats;

pub use session::{Ended, Faults, Keep, Options, SessionError, run};
pub use stats::Stats;
