//! Every record and layout that two processes share.
//!
//! The supervisor, the target's agent and the shadows map one memory file ([`Shared`]). This crate
//! says what lies in it, who may write each part, and how records are read when a writer may have
//! been killed at any instruction.
//!
//! Invariant: nothing in [`Shared`] can make the target compute a different result. The target
//! reads it only to decide *when to synchronise* and *what to count*; a torn, stale or hostile
//! value costs speed and nothing else. The supervisor validates every record it takes out.
#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

pub mod account;
pub mod config;
pub mod entries;
pub mod exemplars;
pub mod filesystems;
pub mod identity;
pub mod log;
pub mod overlay;
pub mod record;
pub mod ring;
pub mod shared;
pub mod sites;
pub mod slow;
pub mod socket;
pub mod spread;
pub mod swap;
pub mod touched;
pub mod unwatched;
mod words;

pub use account::Account;
pub use config::AgentConfig;
pub use entries::{Entries, Entry};
pub use identity::{ChunkIndex, Identity, Parents, Piece};
pub use log::{HintLog, HintState};
pub use record::{HintKind, Record, RecordError};
pub use ring::Ring;
pub use shared::{Control, RunEnd, RunStatus, Shared};
pub use sites::Sites;
pub use slow::SlowDevices;

/// Bumped when any layout in this crate changes; checked when the agent starts.
pub const ABI_VERSION: u32 = 15;

/// A device as one number: that of a file system, as everything here has it.
pub const fn device_number(major: u32, minor: u32) -> u64 {
    (major as u64) << 32 | minor as u64
}

/// Longest path in a hint, in bytes (`PATH_MAX`, limits.h).
pub const PATH_MAX: usize = 4096;
